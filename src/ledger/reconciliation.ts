/**
 * A portal's own list against the ledger: what agrees, what only one side has, what differs. It reads only, in short statements of many lines each,
 * and keeps nothing. Each difference of the two sides' totals is explained by exceptions; two currencies are never added.
 */
import { and, type SQL, sql } from "drizzle-orm"
import type { Db, Reads } from "../db/client.js"
import type { Place } from "../db/page.js"
import { bootstrapPortal, utc } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { disbursements } from "../db/tables/money.js"
import { limits } from "../limits.js"
import { type LedgerStretch, rangeOf } from "./ledger-range.js"
import type { ListedLine } from "./listing.js"

export const exceptionKinds = [
  "missing_here",
  "missing_there",
  "reference_differs",
  "award_differs",
  "currency_differs",
  "amount_differs",
  "listed_twice",
  "outside_period",
] as const
type ExceptionKind = (typeof exceptionKinds)[number]

/** `lines`: each line on its own, returns and reversals as negative ones; `net`: each disbursement by what is left of it. */
export const comparisons = ["lines", "net"] as const

export interface ReconciliationAsked extends LedgerStretch {
  readonly ownerId: string
  readonly compare: (typeof comparisons)[number]
}

/** Both sides where both are known. */
export interface Exception {
  readonly kind: ExceptionKind
  /** Of the list; null: it is not there. */
  readonly line: number | null
  /** The line that names the same, for one that is listed twice. */
  readonly first_line: number | null
  readonly submission_id: string | null
  readonly idempotency_key: string | null
  readonly award_id: string
  readonly listed_amount_cents: number | null
  readonly listed_currency: string | null
  readonly recorded_award_id: string | null
  readonly recorded_amount_cents: number | null
  readonly recorded_currency: string | null
  readonly disbursement_id: string | null
  readonly recorded_at: string | null
  /** Pointers of the members that differ. */
  readonly differs: readonly string[]
}

/** Both sides of an award in a currency, or of a currency. */
export interface BothSides {
  readonly award_id?: string
  readonly currency: string
  listed_cents: bigint
  listed_lines: number
  recorded_cents: bigint
  recorded_lines: number
}

export interface Reconciliation {
  readonly lines: number
  readonly matched: number
  readonly exceptions: readonly Exception[]
  /** By currency. */
  readonly currencies: readonly BothSides[]
  /** Those whose sides differ first, then by award id. */
  readonly awards: readonly BothSides[]
}

/** A ledger line as far as it is compared. */
interface Recorded extends Record<string, unknown> {
  id: string
  award_key: string
  award_id: string
  cents: string
  currency: string
  submission_id: string | null
  idempotency_key: string
  recorded_at: string
  in_period: boolean
}

type Pool = Pick<Reads, "run">
const d = disbursements

/** Compares them; lines recorded meanwhile may be seen or not. */
export async function reconcile(
  reads: Pool,
  asked: ReconciliationAsked,
  listed: readonly ListedLine[],
): Promise<Reconciliation> {
  const exceptions: Exception[] = []
  const sides = new Sides()
  const seen = new Map<string, number>()
  let matched = 0
  for (let from = 0; from < listed.length; from += limits.reconciliationBatchLines) {
    const batch = listed.slice(from, from + limits.reconciliationBatchLines)
    const found = await reads.run((db) => findRecorded(db, asked, batch), limits.exportBatchMs)
    batch.forEach((line, i) => {
      sides.list(line)
      const exception = judge(line, found.get(i) ?? null, seen)
      if (exception === null) matched += 1
      else exceptions.push(exception)
    })
  }
  for await (const recorded of recordedIn(reads, asked)) {
    sides.record(recorded)
    if (!seen.has(recorded.id)) exceptions.push(exceptionOf("missing_there", null, recorded))
  }
  return { lines: listed.length, matched, exceptions, ...sides.totals() }
}

/** null: it agrees. */
function judge(line: ListedLine, recorded: Recorded | null, seen: Map<string, number>): Exception | null {
  const name = recorded?.id ?? `${line.idempotencyKey === null ? "s" : "k"}:${line.idempotencyKey ?? line.submissionId}`
  const first = seen.get(name)
  if (first !== undefined) return { ...exceptionOf("listed_twice", line, recorded), first_line: first }
  seen.set(name, line.line)
  if (recorded === null) return exceptionOf("missing_here", line, null)
  const differs: [ExceptionKind, string, boolean][] = [
    [
      "reference_differs",
      "/idempotency_key",
      line.idempotencyKey !== null && line.idempotencyKey !== recorded.idempotency_key,
    ],
    ["reference_differs", "/submission_id", line.submissionId !== null && line.submissionId !== recorded.submission_id],
    ["award_differs", "/award_id", line.awardKey !== recorded.award_key],
    ["currency_differs", "/currency", line.currency !== recorded.currency],
    ["amount_differs", "/amount_cents", line.cents !== Number(recorded.cents)],
  ]
  const real = differs.filter(([, , yes]) => yes)
  const [most] = real
  if (most) return { ...exceptionOf(most[0], line, recorded), differs: real.map(([, pointer]) => pointer) }
  return recorded.in_period ? null : exceptionOf("outside_period", line, recorded)
}

function exceptionOf(kind: ExceptionKind, line: ListedLine | null, recorded: Recorded | null): Exception {
  return {
    kind,
    line: line?.line ?? null,
    first_line: null,
    submission_id: line === null ? (recorded?.submission_id ?? null) : line.submissionId,
    idempotency_key: line === null ? (recorded?.idempotency_key ?? null) : line.idempotencyKey,
    award_id: line?.awardId ?? recorded?.award_id ?? "",
    listed_amount_cents: line?.cents ?? null,
    listed_currency: line?.currency ?? null,
    recorded_award_id: recorded?.award_id ?? null,
    recorded_amount_cents: recorded === null ? null : Number(recorded.cents),
    recorded_currency: recorded?.currency ?? null,
    disbursement_id: recorded?.id ?? null,
    recorded_at: recorded?.recorded_at ?? null,
    differs: [],
  }
}

/** What is compared of a line; `net` is as of the period's end. */
function columns({ compare, from, to }: ReconciliationAsked): SQL {
  const until = to === null ? sql`` : sql`AND r.recorded_at < ${to}::timestamptz`
  const cents =
    compare === "lines"
      ? sql`d.amount_cents`
      : sql`d.amount_cents + coalesce((SELECT sum(r.amount_cents) FROM ${d} r WHERE r.disbursement_id = d.id ${until}), 0)`
  return sql`d.id, d.award_key, d.award_id, (${cents})::text AS cents, d.currency, d.submission_id, d.idempotency_key,
    ${utc(sql`d.recorded_at`)} AS recorded_at,
    d.recorded_at >= ${from ?? "-infinity"}::timestamptz AND d.recorded_at < ${to ?? "infinity"}::timestamptz AS in_period`
}

/** The recorded line of each listed one, by its key or else by its number; by position. Two look-ups a line, each by an index. */
async function findRecorded(
  db: Db,
  asked: ReconciliationAsked,
  batch: readonly ListedLine[],
): Promise<Map<number, Recorded>> {
  const rows = JSON.stringify(
    batch.map((line, i) => ({ i, k: line.idempotencyKey, s: line.submissionId, back: line.cents < 0 })),
  )
  const own = sql`coalesce(d.owner_id, d.portal_id) = ${asked.ownerId}::uuid`
  const kind = asked.compare === "net" ? sql`AND d.kind = 'disbursement'` : sql``
  // Operators record returns under keys of their own. Where a key is both's, the number and the sign tell which line is meant, else it is the portal's.
  const recorders = sql`ARRAY(SELECT ${asked.ownerId}::uuid UNION SELECT ${bootstrapPortal.id}::uuid
    UNION SELECT p.id FROM ${portals} p WHERE p.role = 'operator')`
  const found = await db.execute<Recorded & { i: number }>(sql`
    SELECT l.i, f.* FROM json_to_recordset(${rows}::text::json) AS l(i int, k text, s text, back boolean)
    CROSS JOIN LATERAL (
      SELECT * FROM (
        SELECT 1 AS nearness, d.portal_id <> ${asked.ownerId}::uuid AS by_operator, ${columns(asked)} FROM ${d} d
        WHERE d.portal_id = ANY(${recorders}) AND d.idempotency_key = l.k AND ${own} ${kind}
        UNION ALL
        SELECT 2, false, ${columns(asked)} FROM ${d} d
        WHERE d.submission_id = l.s AND ${own} AND d.kind = 'disbursement'
      ) either
      ORDER BY nearness, (l.s IS NULL OR submission_id = l.s) IS TRUE DESC, (cents LIKE '-%') = l.back DESC, by_operator
      LIMIT 1
    ) f`)
  return new Map(found.map(({ i, ...recorded }) => [i, recorded as unknown as Recorded]))
}

/** The ledger's lines within the period, as many as there are now. */
async function* recordedIn(reads: Pool, asked: ReconciliationAsked): AsyncGenerator<Recorded> {
  for (let after: Place | null = null; ; ) {
    const place: Place | null = after
    const rows: Recorded[] = await reads.run((db) => readRecorded(db, asked, place), limits.exportBatchMs)
    // Nothing is left of it, so a list of what is left does not have it.
    for (const row of rows) if (asked.compare === "lines" || row.cents !== "0") yield row
    const last = rows.at(-1)
    if (last === undefined || rows.length < limits.reconciliationBatchLines) return
    after = { at: last.recorded_at, id: last.id }
  }
}

async function readRecorded(db: Db, asked: ReconciliationAsked, after: Place | null): Promise<Recorded[]> {
  const { where, ascending } = rangeOf(asked, after)
  const kind = asked.compare === "net" ? sql`${d.kind} = 'disbursement'` : undefined
  const rows = await db.execute<Recorded>(sql`
    SELECT ${columns(asked)} FROM (
      SELECT * FROM ${d} WHERE ${and(where, kind)} ORDER BY ${ascending} LIMIT ${limits.reconciliationBatchLines}
    ) d ORDER BY d.recorded_at, d.id`)
  return [...rows]
}

/** The totals of both sides, kept up as lines come. */
class Sides {
  readonly #awards = new Map<string, BothSides>()

  list(line: ListedLine): void {
    const side = this.#of(line.awardKey, line.awardId, line.currency)
    side.listed_cents += BigInt(line.cents)
    side.listed_lines += 1
  }

  record(line: Recorded): void {
    const side = this.#of(line.award_key, line.award_id, line.currency)
    side.recorded_cents += BigInt(line.cents)
    side.recorded_lines += 1
  }

  totals(): Pick<Reconciliation, "currencies" | "awards"> {
    const currencies = new Map<string, BothSides>()
    for (const side of this.#awards.values()) {
      const sum = currencies.get(side.currency) ?? empty({ currency: side.currency })
      currencies.set(side.currency, {
        ...sum,
        listed_cents: sum.listed_cents + side.listed_cents,
        listed_lines: sum.listed_lines + side.listed_lines,
        recorded_cents: sum.recorded_cents + side.recorded_cents,
        recorded_lines: sum.recorded_lines + side.recorded_lines,
      })
    }
    const agrees = (side: BothSides) =>
      side.listed_cents === side.recorded_cents && side.listed_lines === side.recorded_lines
    const inOrder = [...this.#awards].sort(
      ([a, one], [b, other]) => Number(agrees(one)) - Number(agrees(other)) || (a < b ? -1 : 1),
    )
    return {
      currencies: [...currencies.values()].sort((a, b) => (a.currency < b.currency ? -1 : 1)),
      awards: inOrder.map(([, side]) => side),
    }
  }

  #of(awardKey: string, award_id: string, currency: string): BothSides {
    const key = `${awardKey}\0${currency}`
    const side = this.#awards.get(key) ?? empty({ award_id, currency })
    this.#awards.set(key, side)
    return side
  }
}

function empty(of: { award_id?: string; currency: string }): BothSides {
  return { ...of, listed_cents: 0n, listed_lines: 0, recorded_cents: 0n, recorded_lines: 0 }
}
