/**
 * All SQL on `claims` and `answers`, as sets. Each statement is a prepared Drizzle builder inside the group's transaction (`tx.execute` would
 * never be prepared: two round trips a statement). The unique indexes of `claims` are the guard that makes a retry safe;
 * the advisory locks only keep anyone from waiting on them. Rows are taken in the order of (portal_id, idempotency_key), and travel as one JSON
 * text a statement, which costs the one busy thread of this process far less than the driver's arrays.
 */
import { sql } from "drizzle-orm"
import type { Db, Tx } from "../db/client.js"
import { rowsOf, statement } from "../db/statement.js"
import { answers, claims } from "../db/tables/keys.js"
import type { Answer, Ask } from "./operation.js"

/** The lock of a key; everyone who may create or void the claim takes it. */
export const keyLock = (ask: Pick<Ask, "portalId" | "key">): string => `k:${ask.portalId}:${ask.key}`
/** The lock of a portal's own number. */
export const submissionIdLock = (ask: Pick<Ask, "portalId" | "submissionId">): string =>
  `s:${ask.portalId}:${ask.submissionId}`

const none: readonly string[] = []

/** The locks of what a request touches and its group has to itself, beside keys, numbers and awards. */
export function sharedLocks(ask: Pick<Ask, "portalId" | "undoes" | "account">): readonly string[] {
  if (ask.undoes !== null) return [`d:${ask.undoes}`]
  return ask.account === null ? none : [`b:${ask.portalId}:${ask.account}`]
}

export interface Locks {
  /** By position of the names asked for. */
  readonly got: readonly boolean[]
  /** Start of the transaction by the database's clock, RFC 3339 UTC with six digits. */
  readonly now: string
}

const tryLocksStatement = statement("try_locks", (db) =>
  db
    .select({
      now: sql<string>`to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`,
      got: sql<string>`string_agg(CASE WHEN pg_try_advisory_xact_lock(hashtextextended(name, 0)) THEN '1' ELSE '0' END, '' ORDER BY at)`,
    })
    .from(sql`json_array_elements_text(${rowsOf("names")}) WITH ORDINALITY AS wanted(name, at)`),
)

/** Takes each lock that is free until the transaction ends, and waits for none. */
export async function tryLocks(tx: Tx, names: readonly string[]): Promise<Locks> {
  const [row] = await tryLocksStatement(tx, { names: JSON.stringify(names) })
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

const claimKeysStatement = statement("claim_keys", (db) =>
  db
    .insert(claims)
    .select(
      sql`SELECT c.portal_id, c.key, c.strategy, c.operation, c.fingerprint, c.award_key, c.submission_id, c.resource_id, c.state,
            ${sql.placeholder("now")}::text::timestamptz
          FROM json_to_recordset(${rowsOf("claims")}) AS c(portal_id uuid, key text, strategy text, operation text,
            fingerprint text, award_key text, submission_id text, resource_id uuid, state text)
          ORDER BY c.portal_id, c.key`,
    )
    .onConflictDoNothing()
    .returning({ resource_id: claims.resource_id }),
)

/**
 * Claims the keys: one INSERT for the whole group, index order, conflicts skipped. Answers the resource ids of those that won;
 * a loser's key, or its submission_id, is recorded already.
 */
export async function claimKeys(tx: Tx, claimants: readonly Claimant[], now: string): Promise<Set<string>> {
  const rows = claimants.map(({ ask, voiding }) => ({
    portal_id: ask.portalId,
    key: ask.key,
    resource_id: ask.resourceId,
    ...(voiding
      ? { state: "voided" }
      : {
          state: "completed",
          strategy: ask.keyStrategy,
          operation: ask.operation,
          fingerprint: ask.fingerprint,
          award_key: ask.awardKey,
          submission_id: ask.submissionId,
        }),
  }))
  const won = await claimKeysStatement(tx, { claims: JSON.stringify(rows), now })
  return new Set(won.map((row) => row.resource_id))
}

const releaseClaimsStatement = statement("release_claims", (db) =>
  db.delete(claims).where(
    sql`(${claims.portal_id}, ${claims.idempotency_key}) IN
        (SELECT r.portal_id, r.key FROM json_to_recordset(${rowsOf("claims")}) AS r(portal_id uuid, key text))`,
  ),
)

/** Takes the claims of members that were refused, threw or dawdled out of the group's transaction again. */
export async function releaseClaims(tx: Tx, asks: readonly Ask[]): Promise<void> {
  const rows = asks.map((ask) => ({ portal_id: ask.portalId, key: ask.key }))
  await releaseClaimsStatement(tx, { claims: JSON.stringify(rows) })
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

const readClaimsStatement = statement("read_claims", (db) =>
  db
    .select({
      at: sql<number>`asked.at`,
      byKey: sql<boolean>`claim.by_key`,
      operation: sql<string | null>`claim.operation`,
      fingerprint: sql<string | null>`claim.fingerprint`,
      state: sql<Found["state"]>`claim.state`,
      resourceId: sql<string>`claim.resource_id`,
      request: sql<string | null>`answer.request`,
      status: sql<number | null>`answer.status`,
      contentType: sql<string | null>`answer.content_type`,
      location: sql<string | null>`answer.location`,
      body: sql<string | null>`answer.body`,
    })
    .from(
      sql`json_to_recordset(${rowsOf("asked")}) AS asked(at int, portal_id uuid, key text, submission_id text)
        CROSS JOIN LATERAL (
          SELECT true AS by_key, operation, fingerprint, state, resource_id FROM ${claims}
          WHERE portal_id = asked.portal_id AND idempotency_key = asked.key
          UNION ALL
          SELECT false, operation, fingerprint, state, resource_id FROM ${claims}
          WHERE portal_id = asked.portal_id AND submission_id = asked.submission_id AND idempotency_key <> asked.key
        ) AS claim
        LEFT JOIN LATERAL (
          SELECT request, status, content_type, location, body FROM ${answers} WHERE resource_id = claim.resource_id OFFSET 0
        ) AS answer ON true`,
    ),
)

/**
 * Reads what is recorded, locking nothing. Inside a group it is a later statement than the claim, so that it sees whatever made the claim lose.
 * One index probe for each identity and each answer: LATERAL with OFFSET 0 leaves the planner no join to choose, whatever it believes of the
 * tables' sizes (a join on `key OR submission_id` was planned as a scan of all claims for each ask).
 * @returns by position of the asks; the key's own row goes before the submission_id's; null where nothing is found
 */
export async function readClaims(db: Db | Tx, asks: readonly Ask[]): Promise<(Found | null)[]> {
  const wanted = asks.map((ask, at) => ({ at, portal_id: ask.portalId, key: ask.key, submission_id: ask.submissionId }))
  const rows = await readClaimsStatement(db, { asked: JSON.stringify(wanted) })
  const found: (Found | null)[] = asks.map(() => null)
  for (const row of rows) {
    const { at } = row
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

const writeAnswersStatement = statement("write_answers", (db) =>
  db.insert(answers).select(
    sql`SELECT a.resource_id, a.request, sha256(convert_to(a.request, 'UTF8')), a.status, a.content_type, a.location, a.body
          FROM json_to_recordset(${rowsOf("answers")}) AS a(resource_id uuid, request text, status smallint,
            content_type text, location text, body text)`,
  ),
)

/** Stores requests and answers, byte for byte, once. */
export function writeAnswers(tx: Tx, answered: readonly Answered[]): Promise<unknown> {
  const rows = answered.map(({ ask, answer }) => ({
    resource_id: ask.resourceId,
    request: ask.requestText,
    status: answer.status,
    content_type: answer.contentType,
    location: answer.location,
    body: answer.body,
  }))
  return writeAnswersStatement(tx, { answers: JSON.stringify(rows) })
}
