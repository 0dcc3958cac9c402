/**
 * Lines that may be the same payment twice, for a person to look at: never a refusal. A disbursement is told together with the last one before it
 * that has the same award and amount, and with the last one before it of the same portal that has its invoice on another award. What came back whole
 * is no payment any more, and neither told nor compared with. Read a bounded stretch of the ledger at a time, each line's partners by an index.
 */
import { type SQL, sql } from "drizzle-orm"
import type { Db } from "../db/client.js"
import type { Place } from "../db/page.js"
import { utc } from "../db/reading.js"
import { disbursements } from "../db/tables/money.js"
import { limits } from "../limits.js"
import { type LedgerLine, readLinesOf } from "./disbursement-reads.js"
import { type LedgerStretch, rangeOf } from "./ledger-range.js"

interface PossibleDuplicate {
  readonly disbursement: LedgerLine
  /** The last disbursement before it of the same award and amount, within the days asked for; null: there is none. */
  readonly same_amount_as: LedgerLine | null
  /** The last one before it of the same portal with the same `invoice_ref` on another award; null: there is none. */
  readonly same_invoice_as: LedgerLine | null
}

export interface DuplicatesFilters extends LedgerStretch {
  /** How far back the same amount may lie, by `recorded_at`. */
  readonly days: number
}

export interface Stretch {
  readonly found: readonly PossibleDuplicate[]
  /** Up to where the ledger was looked at; null: to its end. */
  readonly lookedAt: Place | null
}

/**
 * Looks at the next `duplicatesStretchLines` lines after `after`, and tells of at most `limit` in them. OFFSET 0 and casts leave the planner
 * the one index that was made for each question: it would rather read the ledger backwards until a partner turns up, which may be never.
 */
export async function findDuplicates(
  db: Db,
  filters: DuplicatesFilters,
  after: Place | null,
  limit: number,
): Promise<Stretch> {
  const d = disbursements
  const { where, ascending } = rangeOf(filters, after)
  const [lookedAt] = await db
    .select({ at: utc(d.recorded_at), id: d.id })
    .from(d)
    .where(where)
    .orderBy(ascending)
    .offset(limits.duplicatesStretchLines - 1)
    .limit(1)
  const stretch = rangeOf(filters, after, lookedAt ?? null)
  const rows = await db.execute<{ id: string; amount: string | null; invoice: string | null }>(sql`
    SELECT s.id, amount.id AS amount, invoice.id AS invoice
    FROM (SELECT * FROM ${d} WHERE ${stretch.where ?? sql`true`} ORDER BY ${stretch.ascending} LIMIT ${limits.duplicatesStretchLines}) AS s
      LEFT JOIN LATERAL (
        SELECT same.id FROM (
          SELECT p.id, p.recorded_at FROM ${d} p
          WHERE p.kind = 'disbursement' AND p.award_key = s.award_key AND p.amount_cents = s.amount_cents
            AND p.recorded_at BETWEEN s.recorded_at - ${filters.days}::int * interval '1 day' AND s.recorded_at
            AND ${isBefore} AND ${isOwn(filters, "p")} AND ${isLeft("p")}
          OFFSET 0) AS same
        ORDER BY same.recorded_at DESC, same.id DESC LIMIT 1) AS amount ON true
      LEFT JOIN LATERAL (
        SELECT same.id FROM (
          SELECT p.id, p.recorded_at FROM ${d} p
          WHERE p.kind = 'disbursement' AND p.invoice_ref = s.invoice_ref AND p.award_key <> s.award_key
            AND coalesce(p.owner_id, p.portal_id)::text = coalesce(s.owner_id, s.portal_id)::text
            AND ${isBefore} AND ${isLeft("p")}
          OFFSET 0) AS same
        ORDER BY same.recorded_at DESC, same.id DESC LIMIT 1) AS invoice ON true
    WHERE s.kind = 'disbursement' AND (amount.id IS NOT NULL OR invoice.id IS NOT NULL) AND ${isLeft("s")}
    ORDER BY s.recorded_at, s.id
    LIMIT ${limit}`)
  const ids = new Set(rows.flatMap(({ id, amount, invoice }) => [id, amount, invoice].filter((one) => one !== null)))
  const lines = new Map((await readLinesOf(db, [...ids])).map((line) => [line.id, line]))
  const lineOf = (id: string | null): LedgerLine | null => (id === null ? null : (lines.get(id) ?? null))
  const found = rows.flatMap(({ id, amount, invoice }) => {
    const disbursement = lineOf(id)
    if (disbursement === null) return []
    return [{ disbursement, same_amount_as: lineOf(amount), same_invoice_as: lineOf(invoice) }]
  })
  return { found, lookedAt: lookedAt ?? null }
}

/** In the order of the ledger; spelled so that no index of that order is taken for it. */
const isBefore = sql`(p.recorded_at + interval '0', p.id) < (s.recorded_at, s.id)`

/** A portal compares only with its own lines. */
function isOwn({ ownerId }: DuplicatesFilters, line: string): SQL {
  if (ownerId === null) return sql`true`
  return sql`coalesce(${sql.raw(line)}.owner_id, ${sql.raw(line)}.portal_id)::text = ${ownerId}`
}

/** Something of it did not come back. */
function isLeft(line: string): SQL {
  const name = sql.raw(line)
  return sql`${name}.amount_cents + coalesce((SELECT sum(r.amount_cents) FROM ${disbursements} r WHERE r.disbursement_id = ${name}.id), 0) > 0`
}
