/**
 * Reading the ledger: one line, or pages of lines in the order in which they were recorded. Nothing is locked; each call is one statement, so that
 * a line and what was returned of it are of the same instant. Amounts of two currencies are never added.
 */
import { and, asc, desc, eq, gte, lt, type SQL, sql } from "drizzle-orm"
import { alias } from "drizzle-orm/pg-core"
import type { Db, Reads } from "../db/client.js"
import type { Place } from "../db/page.js"
import { bootstrapPortal, portalIdOf, portalName, utc } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { disbursements } from "../db/tables/money.js"
import { limits } from "../limits.js"
import type { Column } from "./csv.js"
import { decimalText } from "./currency.js"

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

export interface LedgerFilters {
  /** Whose lines; null: everyone's. */
  readonly portalId: string | null
  /** By name; null: everyone's. */
  readonly portal: string | null
  /** Normalised. */
  readonly awardKey: string | null
  /** Half-open on `recorded_at`. */
  readonly from: string | null
  readonly to: string | null
  readonly submissionId: string | null
  readonly idempotencyKey: string | null
}

const d = disbursements

/** Whose line it is; spelled as in the index. */
const owner = sql`coalesce(${disbursements.owner_id}, ${disbursements.portal_id})`

/** One line; null when there is none, or it is not this portal's. */
export async function readLine(db: Db, id: string, portalId: string | null): Promise<LedgerLine | null> {
  const [row] = await select(db, and(eq(disbursements.id, id), portalId === null ? undefined : eq(owner, portalId)), 1)
  return row ? toLine(row) : null
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
  const upToEnd =
    end === null ? undefined : sql`(${d.recorded_at}, ${d.id}) <= (${end.at}::timestamptz, ${end.id}::uuid)`
  return (await select(db, and(matching(filters, after), upToEnd), limit)).map(toLine)
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
  const [end] = await db
    .select({ at: utc(d.recorded_at), id: d.id })
    .from(d)
    .where(matching(filters, null))
    .orderBy(desc(d.recorded_at), desc(d.id))
    .limit(1)
  return end ?? null
}

function matching(filters: LedgerFilters, after: Place | null): SQL | undefined {
  return and(
    filters.portalId === null ? undefined : eq(owner, filters.portalId),
    filters.portal === null ? undefined : eq(owner, portalIdOf(filters.portal)),
    filters.awardKey === null ? undefined : eq(d.award_key, filters.awardKey),
    filters.from === null ? undefined : gte(d.recorded_at, filters.from),
    filters.to === null ? undefined : lt(d.recorded_at, filters.to),
    filters.submissionId === null ? undefined : eq(d.submission_id, filters.submissionId),
    filters.idempotencyKey === null ? undefined : byKey(filters.idempotencyKey),
    after === null ? undefined : sql`(${d.recorded_at}, ${d.id}) > (${after.at}::timestamptz, ${after.id}::uuid)`,
  )
}

/** The index of keys begins with who recorded the line: one look-up for each portal, of which there are few. */
function byKey(key: string): SQL {
  return sql`${d.portal_id} = ANY(ARRAY(SELECT p.id FROM ${portals} p UNION ALL SELECT ${bootstrapPortal.id}::uuid)) AND ${d.idempotency_key} = ${key}`
}

const returned = alias(disbursements, "returned")
const recorder = alias(portals, "recorder")

function select(db: Db, where: SQL | undefined, limit: number) {
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
      portal: portalName,
      recorded_at: utc(d.recorded_at),
      assistance_listing_number: d.assistance_listing_number,
      fain: d.fain,
      recipient_uei: d.recipient_uei,
      invoice_ref: d.invoice_ref,
      period_from: d.period_from,
      period_to: d.period_to,
      disbursement_id: d.disbursement_id,
      reason: d.reason,
      recorded_by: sql<string>`coalesce(${recorder.name}, ${bootstrapPortal.name})`,
      // Lines that undo this one.
      returned_cents: sql<number>`coalesce((SELECT -sum(${returned.amount_cents}) FROM ${disbursements} "returned"
        WHERE ${returned.disbursement_id} = ${d.id}), 0)`.mapWith(Number),
    })
    .from(d)
    .leftJoin(portals, eq(portals.id, owner))
    .leftJoin(recorder, eq(recorder.id, d.portal_id))
    .where(where)
    .orderBy(asc(d.recorded_at), asc(d.id))
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
