/**
 * Reading the ledger: one line, or pages of lines in the order in which they were recorded. Nothing is locked; each call is one statement, so that
 * a line and what was returned of it are of the same instant. Amounts of two currencies are never added.
 */
import { and, eq, type SQL, sql } from "drizzle-orm"
import type { Db, Reads } from "../db/client.js"
import type { Place } from "../db/page.js"
import { bootstrapPortal, utc } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { disbursements } from "../db/tables/money.js"
import { limits } from "../limits.js"
import type { Column } from "./csv.js"
import { decimalText } from "./currency.js"
import { type LedgerFilters, linesOf, owner } from "./ledger-range.js"

/** One ledger line, as it is shown. Times are RFC 3339 UTC. */
export interface LedgerLine {
  readonly id: string
  readonly kind: "disbursement" | "return" | "reversal"
  readonly award_id: string
  /** Negative for returns and reversals. */
  readonly amount_cents: number
  readonly currency: string
  readonly submission_timestamp: string
  readonly submission_id: string | null
  readonly idempotency_key: string
  /** Whose it is: the portal that submitted the disbursement, whoever recorded the line. */
  readonly portal: string
  readonly recorded_at: string
  readonly assistance_listing_number: string | null
  readonly fain: string | null
  readonly recipient_uei: string | null
  readonly invoice_ref: string | null
  readonly period_from: string | null
  readonly period_to: string | null
  /** The original of a return or reversal; absent on a disbursement. */
  readonly disbursement_id?: string
  readonly reason?: string
  /** Under whose key a return or reversal was recorded: the portal itself, or an operator. */
  readonly recorded_by?: string
  /** As of now; on a disbursement only. */
  readonly returned_cents?: number
  readonly net_cents?: number
}

const d = disbursements

/** One line; null when there is none, or it is not this portal's. */
export async function readLine(db: Db, id: string, portalId: string | null): Promise<LedgerLine | null> {
  const [row] = await select(db, and(eq(disbursements.id, id), portalId === null ? undefined : eq(owner, portalId)), 1)
  return row ? toLine(row) : null
}

/** The lines with these ids, in no order. */
export async function readLinesOf(db: Db, ids: readonly string[]): Promise<LedgerLine[]> {
  if (ids.length === 0) return []
  return (await select(db, sql`${d.id} = ANY(${sql.param(ids)}::uuid[])`, ids.length)).map(toLine)
}

/**
 * At most `limit` lines after `after`, in the order of `recorded_at`, then `id`: by the index of the award, of the portal, or of all.
 * @param end null, or the place of the last line that is wanted
 */
export async function readLines(
  db: Db,
  filters: LedgerFilters,
  after: Place | null,
  limit: number,
  end: Place | null = null,
): Promise<LedgerLine[]> {
  const { where, ascending } = linesOf(filters, after, end)
  return (await select(db, where, limit, ascending)).map(toLine)
}

/**
 * Every line after `after` that is there now, in order, in batches of short statements: nothing is held open between them. It ends where the
 * ledger ends now, so that it ends at all while lines are being recorded.
 * @param limit of lines in all; null: none
 */
export async function* readAllLines(
  reads: Pick<Reads, "run">,
  filters: LedgerFilters,
  after: Place | null,
  limit: number | null,
): AsyncGenerator<LedgerLine[]> {
  const end = await reads.run((db) => readEnd(db, filters), limits.exportBatchMs)
  let place = after
  for (let left = limit ?? Number.POSITIVE_INFINITY; end !== null && left > 0; ) {
    const wanted = Math.min(left, limits.exportBatchLines)
    const lines = await reads.run((db) => readLines(db, filters, place, wanted, end), limits.exportBatchMs)
    yield lines
    const last = lines.at(-1)
    if (last === undefined || lines.length < wanted) return
    place = { at: last.recorded_at, id: last.id }
    left -= lines.length
  }
}

/** The place of the last line; null when there is none. */
async function readEnd(db: Db, filters: LedgerFilters): Promise<Place | null> {
  const { where, descending } = linesOf(filters)
  const [end] = await db
    .select({ at: utc(d.recorded_at), id: d.id })
    .from(d)
    .where(where)
    .orderBy(descending)
    .limit(1)
  return end ?? null
}

/** Not by a join, which the planner may do first, and then sort what was in order. */
function nameOf(portalId: unknown): SQL<string> {
  return sql`coalesce((SELECT p.name FROM ${portals} p WHERE p.id = ${portalId}), ${bootstrapPortal.name})`
}

function select(db: Db, where: SQL | undefined, limit: number, order: SQL = sql`${d.id}`) {
  return db
    .select({
      id: d.id,
      kind: d.kind,
      award_id: d.award_id,
      amount_cents: d.amount_cents,
      currency: d.currency,
      submission_timestamp: utc(d.submission_timestamp),
      submission_id: d.submission_id,
      idempotency_key: d.idempotency_key,
      portal: nameOf(owner),
      recorded_at: utc(d.recorded_at),
      assistance_listing_number: d.assistance_listing_number,
      fain: d.fain,
      recipient_uei: d.recipient_uei,
      invoice_ref: d.invoice_ref,
      period_from: d.period_from,
      period_to: d.period_to,
      disbursement_id: d.disbursement_id,
      reason: d.reason,
      recorded_by: nameOf(d.portal_id),
      // Lines that undo this one. Named in full: of a single table drizzle writes columns without its name, which would mean r's here.
      returned_cents: sql<number>`coalesce((SELECT -sum(r.amount_cents) FROM ${d} r
        WHERE r.disbursement_id = "disbursements"."id"), 0)`.mapWith(Number),
    })
    .from(d)
    .where(where)
    .orderBy(order)
    .limit(limit)
}

type Row = Awaited<ReturnType<typeof select>>[number]

function toLine({ disbursement_id, reason, recorded_by, returned_cents, ...row }: Row): LedgerLine {
  // The members keep their places: an answer that tells a line has these same bytes.
  const line = { ...row, submission_timestamp: withoutTrailingZeros(row.submission_timestamp) }
  if (row.kind === "disbursement") return { ...line, returned_cents, net_cents: row.amount_cents - returned_cents }
  if (disbursement_id === null || reason === null) throw new Error(`the ${row.kind} must name what it undoes, and why`)
  return { ...line, disbursement_id, reason, recorded_by }
}

/** Columns of the CSV: the members of a line in their order, and the amount as decimal text. */
export const ledgerColumns: readonly Column<LedgerLine>[] = [
  ...(["id", "kind", "award_id", "amount_cents"] as const).map(column),
  { name: "amount", cell: (line) => decimalText(line.amount_cents, line.currency), plain: true },
  ...(
    [
      "currency",
      "submission_timestamp",
      "submission_id",
      "idempotency_key",
      "portal",
      "recorded_at",
      "assistance_listing_number",
      "fain",
      "recipient_uei",
      "invoice_ref",
      "period_from",
      "period_to",
      "disbursement_id",
      "reason",
      "recorded_by",
      "returned_cents",
      "net_cents",
    ] as const
  ).map(column),
]

function column(name: keyof LedgerLine): Column<LedgerLine> {
  return { name, cell: (line) => line[name] ?? null }
}

/** The normal form of a submission's own timestamp. */
export function withoutTrailingZeros(timestamp: string): string {
  return timestamp.replace(/\.?0+Z$/, "Z")
}
