/**
 * All SQL on `claims` and `answers`, as sets. Each statement is a prepared Drizzle builder inside the group's transaction (`tx.execute` would
 * never be prepared: two round trips a statement). The unique indexes of `claims` are the guard that makes a retry safe;
 * the advisory locks only keep anyone from waiting on them. Rows are taken in the order of (portal_id, idempotency_key).
 */
import { and, eq, or, sql } from "drizzle-orm"
import type { Db, Tx } from "../db/client.js"
import { answers, claims } from "../db/schema.js"
import type { Answer, Ask } from "./operation.js"

/** The lock of a key; everyone who may create or void the claim takes it. */
export const keyLock = (ask: Pick<Ask, "portalId" | "key">): string => `k:${ask.portalId}:${ask.key}`
/** The lock of a portal's own number. */
export const submissionIdLock = (ask: Pick<Ask, "portalId" | "submissionId">): string =>
  `s:${ask.portalId}:${ask.submissionId}`

export interface Locks {
  /** By position of the names asked for. */
  readonly got: readonly boolean[]
  /** Start of the transaction by the database's clock, RFC 3339 UTC with six digits. */
  readonly now: string
}

/** Takes each lock that is free until the transaction ends, and waits for none. */
export async function tryLocks(tx: Tx, names: readonly string[]): Promise<Locks> {
  const [row] = await tx
    .select({
      now: sql<string>`to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`,
      got: sql<string>`string_agg(CASE WHEN pg_try_advisory_xact_lock(hashtextextended(name, 0)) THEN '1' ELSE '0' END, '' ORDER BY at)`,
    })
    .from(sql`unnest(${sql.param(names)}::text[]) WITH ORDINALITY AS wanted(name, at)`)
    .prepare("try_locks")
    .execute()
  if (row?.got?.length !== names.length) throw new Error("tryLocks: an answer for each name was expected")
  return { got: Array.from(row.got, (bit) => bit === "1"), now: row.now }
}

/** True while some transaction, of any process, holds the lock. */
export async function isLocked(db: Db, name: string): Promise<boolean> {
  const rows = await db.execute(sql`
    SELECT 1 FROM pg_locks, (SELECT hashtextextended(${name}, 0) AS h) AS wanted
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = ((h >> 32) & 4294967295)::oid AND objid = (h & 4294967295)::oid
    LIMIT 1`)
  return rows.length > 0
}

export interface Claimant {
  readonly ask: Ask
  readonly voiding: boolean
}

/**
 * Claims the keys: one INSERT for the whole group, index order, conflicts skipped. Answers the resource ids of those that won;
 * a loser's key, or its submission_id, is recorded already.
 */
export async function claimKeys(tx: Tx, claimants: readonly Claimant[], now: string): Promise<Set<string>> {
  const column = <T>(read: (ask: Ask, voiding: boolean) => T) => sql.param(claimants.map((c) => read(c.ask, c.voiding)))
  const won = await tx
    .insert(claims)
    .select(
      sql`SELECT c.portal_id, c.key, c.strategy, c.operation, c.fingerprint, c.award_key, c.submission_id, c.resource_id,
            CASE WHEN c.fingerprint IS NULL THEN 'voided' ELSE 'completed' END, ${sql.param(now)}::text::timestamptz
          FROM unnest(${column((a) => a.portalId)}::uuid[], ${column((a) => a.key)}::text[],
            ${column((a, v) => (v ? null : a.keyStrategy))}::text[], ${column((a, v) => (v ? null : a.operation))}::text[],
            ${column((a, v) => (v ? null : a.fingerprint))}::text[], ${column((a, v) => (v ? null : a.awardKey))}::text[],
            ${column((a, v) => (v ? null : a.submissionId))}::text[], ${column((a) => a.resourceId)}::uuid[])
            AS c(portal_id, key, strategy, operation, fingerprint, award_key, submission_id, resource_id)
          ORDER BY c.portal_id, c.key`,
    )
    .onConflictDoNothing()
    .returning({ resource_id: claims.resource_id })
    .prepare("claim_keys")
    .execute()
  return new Set(won.map((row) => row.resource_id))
}

/** Takes the claims of members that were refused, threw or dawdled out of the group's transaction again. */
export async function releaseClaims(tx: Tx, asks: readonly Ask[]): Promise<void> {
  await tx
    .delete(claims)
    .where(
      sql`(${claims.portal_id}, ${claims.idempotency_key}) IN (SELECT * FROM unnest(
        ${sql.param(asks.map((a) => a.portalId))}::uuid[], ${sql.param(asks.map((a) => a.key))}::text[]))`,
    )
    .prepare("release_claims")
    .execute()
}

/** What is recorded under an ask's key or submission_id. */
export interface Found {
  readonly by: "key" | "submission_id"
  readonly operation: string | null
  readonly fingerprint: string | null
  readonly state: "completed" | "voided" | "purged"
  readonly resourceId: string
  readonly request: string | null
  readonly answer: Answer | null
}

/**
 * Reads what is recorded, by index, locking nothing. Inside a group it is a later statement than the claim, so that it sees whatever made the claim lose.
 * @returns by position of the asks; the key's own row goes before the submission_id's; null where nothing is found
 */
export async function readClaims(db: Db | Tx, asks: readonly Ask[]): Promise<(Found | null)[]> {
  const rows = await db
    .select({
      at: sql<string>`asked.at`,
      byKey: sql<boolean>`${claims.idempotency_key} = asked.key`,
      operation: claims.operation,
      fingerprint: claims.fingerprint,
      state: claims.state,
      resourceId: claims.resource_id,
      request: answers.request,
      status: answers.status,
      contentType: answers.content_type,
      location: answers.location,
      body: answers.body,
    })
    .from(
      sql`unnest(${sql.param(asks.map((a) => a.portalId))}::uuid[], ${sql.param(asks.map((a) => a.key))}::text[],
        ${sql.param(asks.map((a) => a.submissionId))}::text[]) WITH ORDINALITY AS asked(portal_id, key, submission_id, at)`,
    )
    .innerJoin(
      claims,
      or(
        and(eq(claims.portal_id, sql`asked.portal_id`), eq(claims.idempotency_key, sql`asked.key`)),
        and(eq(claims.portal_id, sql`asked.portal_id`), eq(claims.submission_id, sql`asked.submission_id`)),
      ),
    )
    .leftJoin(answers, eq(answers.resource_id, claims.resource_id))
    .prepare("read_claims")
    .execute()
  const found: (Found | null)[] = asks.map(() => null)
  for (const row of rows) {
    const at = Number(row.at) - 1
    if (found[at]?.by === "key") continue
    found[at] = {
      by: row.byKey ? "key" : "submission_id",
      operation: row.operation,
      fingerprint: row.fingerprint,
      state: row.state,
      resourceId: row.resourceId,
      request: row.request,
      answer:
        row.status === null || row.contentType === null || row.body === null
          ? null
          : { status: row.status, contentType: row.contentType, location: row.location, body: row.body },
    }
  }
  return found
}

export interface Answered {
  readonly ask: Ask
  readonly answer: Answer
}

/** Stores requests and answers, byte for byte, once. */
export function writeAnswers(tx: Tx, answered: readonly Answered[]): Promise<unknown> {
  const column = <T>(read: (row: Answered) => T) => sql.param(answered.map(read))
  return tx
    .insert(answers)
    .select(
      sql`SELECT a.resource_id, a.request, sha256(convert_to(a.request, 'UTF8')), a.status, a.content_type, a.location, a.body
          FROM unnest(${column((r) => r.ask.resourceId)}::uuid[], ${column((r) => r.ask.requestText)}::text[],
            ${column((r) => r.answer.status)}::smallint[], ${column((r) => r.answer.contentType)}::text[],
            ${column((r) => r.answer.location)}::text[], ${column((r) => r.answer.body)}::text[])
            AS a(resource_id, request, status, content_type, location, body)`,
    )
    .prepare("write_answers")
    .execute()
}
