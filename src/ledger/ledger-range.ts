/**
 * A stretch of the ledger in its order, by the one index that holds it together: whatever the planner thinks of how much a portal and an award
 * have in common, a page costs a page. The whole stretch stands in row comparisons that begin with the index's leading columns, and in
 * an order that only this index has (https://www.postgresql.org/docs/current/functions-comparisons.html#ROW-WISE-COMPARISON).
 */
import { and, eq, type SQL, sql } from "drizzle-orm"
import type { Place } from "../db/page.js"
import { bootstrapPortal } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { disbursements } from "../db/tables/money.js"

const d = disbursements

/** Whose line it is; spelled as in the index. */
export const owner = sql`coalesce(${d.owner_id}, ${d.portal_id})`

/** Whose lines, of which award, recorded when. */
export interface LedgerStretch {
  /** Whose lines, also those that an operator recorded; null: everyone's. */
  readonly ownerId: string | null
  /** Normalised. */
  readonly awardKey: string | null
  /** Half-open on `recorded_at`. */
  readonly from: string | null
  readonly to: string | null
}

export interface LedgerFilters extends LedgerStretch {
  readonly submissionId: string | null
  readonly idempotencyKey: string | null
}

interface Range {
  readonly where: SQL | undefined
  readonly ascending: SQL
  readonly descending: SQL
}

/** No id is smaller. */
const least = "00000000-0000-0000-0000-000000000000"

/** The stretch from `after` on, without it, up to `end`, with it. */
export function rangeOf(stretch: LedgerStretch, after: Place | null = null, end: Place | null = null): Range {
  const { ownerId, awardKey, from, to } = stretch
  const leading = [
    ...(ownerId === null ? [] : [{ column: owner, value: sql`${ownerId}::uuid` }]),
    ...(awardKey === null ? [] : [{ column: sql`${d.award_key}`, value: sql`${awardKey}` }]),
  ]
  const columns = [...leading.map(({ column }) => column), sql`${d.recorded_at}`, sql`${d.id}`]
  const bound = (operator: string, at: string, id: string) => {
    const values = [...leading.map(({ value }) => value), sql`${at}::timestamptz`, sql`${id}::uuid`]
    return sql`(${sql.join(columns, sql`, `)}) ${sql.raw(operator)} (${sql.join(values, sql`, `)})`
  }
  return {
    // One bound at each end: of several the planner would multiply what each leaves.
    where: and(
      after !== null
        ? bound(">", after.at, after.id)
        : from !== null || leading.length > 0
          ? bound(">=", from ?? "-infinity", least)
          : undefined,
      end !== null
        ? bound("<=", end.at, end.id)
        : to !== null || leading.length > 0
          ? bound("<", to ?? "infinity", least)
          : undefined,
    ),
    ascending: sql.join(columns, sql`, `),
    descending: sql.join(
      columns.map((column) => sql`${column} DESC`),
      sql`, `,
    ),
  }
}

/** The lines that the filters leave: a stretch, or the very few of a key or a number, each of which has an index of its own. */
export function linesOf(filters: LedgerFilters, after: Place | null = null, end: Place | null = null): Range {
  const { ownerId, awardKey, from, to, submissionId, idempotencyKey } = filters
  if (submissionId === null && idempotencyKey === null) return rangeOf(filters, after, end)
  const { where, ascending, descending } = rangeOf({ ownerId: null, awardKey: null, from, to }, after, end)
  const narrowed = and(
    where,
    ownerId === null ? undefined : eq(owner, ownerId),
    awardKey === null ? undefined : eq(d.award_key, awardKey),
    submissionId === null ? undefined : eq(d.submission_id, submissionId),
    idempotencyKey === null ? undefined : byKey(idempotencyKey),
  )
  return { where: narrowed, ascending, descending }
}

/** The index of keys begins with who recorded the line: one look-up for each portal, of which there are few. */
function byKey(key: string): SQL {
  return sql`${d.portal_id} = ANY(ARRAY(SELECT p.id FROM ${portals} p UNION ALL SELECT ${bootstrapPortal.id}::uuid)) AND ${d.idempotency_key} = ${key}`
}
