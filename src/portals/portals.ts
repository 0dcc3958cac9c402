/**
 * Portals and their tokens: all SQL on both tables; each change with its operator's action. A token is 256 random bits, shown once and kept only as its sha256; it is found by that hash
 * and compared in constant time. Revoked tokens stay in the table, as evidence of who could do what when. Nothing here logs a token.
 */
import { hash, randomBytes, timingSafeEqual } from "node:crypto"
import { and, asc, eq, isNull, sql } from "drizzle-orm"
import { z } from "zod"
import type { Db } from "../db/client.js"
import { bootstrapPortal, utc } from "../db/reading.js"
import { portals, portalTokens } from "../db/tables/callers.js"
import { type Action, type Actor, recordActions } from "../evidence/operator-actions.js"
import { newId } from "../ids.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"

export const roles = ["portal", "operator", "auditor"] as const
export type Role = (typeof roles)[number]

/** Who makes a request. */
export interface Caller {
  readonly portalId: string
  readonly portal: string
  readonly role: Role
  /** The portal's requests must bring an Idempotency-Key of their own. */
  readonly keyRequired: boolean
}

const portalName = z
  .string()
  .refine((name) => {
    const chars = [...name].length
    return chars >= 1 && chars <= limits.portalNameCharsMax && !/^\s|\s$|[\p{C}\p{Zl}\p{Zp}]/u.test(name)
  }, `must be 1 to ${limits.portalNameCharsMax} printable characters without a space at either end`)
  .meta({ minLength: 1, maxLength: limits.portalNameCharsMax })

/** What a new portal is made of. */
export const portalRequest = z.strictObject({
  name: portalName.describe("Unique; what the ledger and `?portal=` call the portal"),
  role: z
    .enum(roles)
    .describe("What its tokens may do: `portal` submits, `operator` administers and reads all, `auditor` reads all"),
  key_required: z
    .boolean()
    .optional()
    .describe("true: each submission must bring an Idempotency-Key; false when absent"),
})

export interface NewPortal {
  readonly id: string
  readonly name: string
  readonly role: Role
  /** The only time it is seen. */
  readonly token: string
}

export interface PortalRow {
  readonly id: string
  readonly name: string
  readonly role: Role
  readonly key_required: boolean
  readonly created_at: string
  /** Tokens that have not been revoked, oldest first. */
  readonly tokens: readonly { readonly id: string; readonly created_at: string }[]
}

/**
 * Registers a portal with its first token, both or neither.
 * @throws Problem invalid-request when the name is taken or reserved
 */
export async function createPortal(db: Db, request: z.output<typeof portalRequest>, actor: Actor): Promise<NewPortal> {
  if (request.name.toLowerCase() === bootstrapPortal.name) throw nameFault("reserved", "the name is reserved")
  const portal = { id: newId(), name: request.name, role: request.role, key_required: request.key_required ?? false }
  const { token, row } = newToken(portal.id)
  await db.transaction(async (tx) => {
    const made = await tx
      .insert(portals)
      .values(portal)
      .onConflictDoNothing({ target: portals.name })
      .returning({ id: portals.id })
    if (made.length === 0) throw nameFault("taken", "another portal has this name")
    await tx.insert(portalTokens).values(row)
    const { id: subject, ...after } = portal
    await recordActions(tx, actor, [
      {
        id: newId(),
        action: "portal.create",
        subject,
        before: null,
        after: { ...after, token_id: row.id },
        reason: null,
      },
    ])
  })
  return { id: portal.id, name: portal.name, role: portal.role, token }
}

/** Of these names, those that no portal has. */
export async function findMissingPortals(db: Db, names: readonly string[]): Promise<string[]> {
  const found = await db
    .select({ name: portals.name })
    .from(portals)
    .where(sql`${portals.name} = ANY(${sql.param(names)}::text[])`)
  const known = new Set(found.map((row) => row.name))
  return names.filter((name) => !known.has(name))
}

/** All portals, by name. Few by nature: they are registered by hand. */
export async function listPortals(db: Db): Promise<PortalRow[]> {
  const rows = await db
    .select({
      id: portals.id,
      name: portals.name,
      role: portals.role,
      key_required: portals.key_required,
      created_at: utc(portals.created_at),
      token_id: portalTokens.id,
      token_created_at: sql<string | null>`${utc(portalTokens.created_at)}`,
    })
    .from(portals)
    .leftJoin(portalTokens, and(eq(portalTokens.portal_id, portals.id), isNull(portalTokens.revoked_at)))
    .orderBy(asc(portals.name), asc(portalTokens.created_at), asc(portalTokens.id))
  const byId = new Map<string, Omit<PortalRow, "tokens"> & { tokens: { id: string; created_at: string }[] }>()
  for (const { token_id, token_created_at, ...portal } of rows) {
    const seen = byId.get(portal.id) ?? { ...portal, tokens: [] }
    byId.set(portal.id, seen)
    if (token_id !== null && token_created_at !== null) seen.tokens.push({ id: token_id, created_at: token_created_at })
  }
  return [...byId.values()]
}

export async function findPortalByName(db: Db, name: string): Promise<{ id: string; name: string; role: Role } | null> {
  if (name === bootstrapPortal.name) return { ...bootstrapPortal, role: "operator" }
  const [row] = await db
    .select({ id: portals.id, name: portals.name, role: portals.role })
    .from(portals)
    .where(eq(portals.name, name))
  return row ?? null
}

/** One more token, beside those the portal has, so that one can be rotated without a gap; null when there is no such portal. */
export async function addToken(db: Db, portalId: string, actor: Actor): Promise<{ id: string; token: string } | null> {
  const { token, row } = newToken(portalId)
  return db.transaction(async (tx) => {
    const made = await tx
      .insert(portalTokens)
      .select(
        // The portal's existence is part of the statement: no error to catch.
        sql`SELECT ${row.id}::uuid, p.id, ${row.token_sha256}::bytea, now(), NULL FROM ${portals} p WHERE p.id = ${portalId}::uuid`,
      )
      .returning({ portal_id: portalTokens.portal_id })
    const [portal] = made
    if (!portal) return null
    await recordActions(tx, actor, [tokenAction("token.add", portal.portal_id, row.id)])
    return { id: row.id, token }
  })
}

/** False when the portal has no such token. A token revoked before stays as it is, and counts as found. */
export async function revokeToken(db: Db, portalId: string, tokenId: string, actor: Actor): Promise<boolean> {
  const token = and(eq(portalTokens.id, tokenId), eq(portalTokens.portal_id, portalId))
  return db.transaction(async (tx) => {
    const [revoked] = await tx
      .update(portalTokens)
      .set({ revoked_at: sql`now()` })
      .where(and(token, isNull(portalTokens.revoked_at)))
      .returning({ id: portalTokens.id, portal_id: portalTokens.portal_id })
    if (!revoked) return (await tx.select({ id: portalTokens.id }).from(portalTokens).where(token)).length === 1
    await recordActions(tx, actor, [tokenAction("token.revoke", revoked.portal_id, revoked.id)])
    return true
  })
}

/** The token by its id: the token itself, and its hash, are nobody's to read. */
function tokenAction(action: "token.add" | "token.revoke", portalId: string, tokenId: string): Action {
  const token = { token_id: tokenId }
  const added = action === "token.add"
  return {
    id: newId(),
    action,
    subject: portalId,
    before: added ? null : token,
    after: added ? token : null,
    reason: null,
  }
}

/** Who the token belongs to; null when it is unknown or revoked. */
export async function findByToken(db: Db, tokenSha256: Buffer): Promise<Caller | null> {
  const [row] = await db
    .select({
      sha256: portalTokens.token_sha256,
      portalId: portals.id,
      portal: portals.name,
      role: portals.role,
      keyRequired: portals.key_required,
    })
    .from(portalTokens)
    .innerJoin(portals, eq(portals.id, portalTokens.portal_id))
    .where(and(eq(portalTokens.token_sha256, tokenSha256), isNull(portalTokens.revoked_at)))
  if (!row) return null
  const { sha256, ...caller } = row
  return timingSafeEqual(sha256, tokenSha256) ? caller : null
}

export function hashToken(token: string): Buffer {
  return hash("sha256", token, "buffer")
}

/** True for text that `newToken` could have made: anything else is refused without asking the database. */
export function looksLikeToken(text: string): boolean {
  return /^gg_[A-Za-z0-9_-]{43}$/.test(text)
}

function newToken(portalId: string) {
  const token = `gg_${randomBytes(limits.tokenBytes).toString("base64url")}`
  return { token, row: { id: newId(), portal_id: portalId, token_sha256: hashToken(token) } }
}

function nameFault(code: string, detail: string): Problem {
  return new Problem("invalid-request", `The portal cannot be made: ${detail}.`, {
    errors: [{ pointer: "/name", code, detail }],
  })
}
