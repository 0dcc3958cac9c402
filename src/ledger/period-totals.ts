/**
 * Sums over the ledger: what was disbursed, what came back, and the difference, within a period and from the beginning to its end. Sums of
 * lines, not the running totals of awards, so that they are exact as of any instant. Two currencies are never added; sums are bigint, because those over
 * many awards may pass what a double holds.
 */
import { and, eq, lt, type SQL, sql } from "drizzle-orm"
import type { Db } from "../db/client.js"
import { bootstrapPortal } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { awards, disbursements } from "../db/tables/money.js"
import { limits } from "../limits.js"
import type { Column } from "./csv.js"
import { decimalText } from "./currency.js"
import { owner } from "./ledger-range.js"

const d = disbursements

export const totalsBy = ["award", "currency", "portal"] as const
export type TotalsBy = (typeof totalsBy)[number]

export interface TotalsFilters {
  /** Whose lines; null: everyone's. */
  readonly ownerId: string | null
  /** Normalised. */
  readonly awardKey: string | null
  /** Half-open on `recorded_at`. */
  readonly from: string | null
  readonly to: string | null
  readonly by: TotalsBy
}

/** Sums of one currency, in minor units; `decimal` members are the same in its decimals, null where these are not known. */
interface Sums {
  readonly gross_cents: bigint
  readonly gross: string | null
  /** Positive. */
  readonly returned_cents: bigint
  readonly returned: string | null
  readonly net_cents: bigint
  readonly net: string | null
  readonly disbursements: number
  readonly returns: number
  readonly reversals: number
}

export interface TotalsItem {
  /** By award only: the id as it was first sent. */
  readonly award_id?: string
  /** By portal only. */
  readonly portal?: string
  readonly currency: string
  readonly period: Sums
  readonly cumulative: Sums
}

/** An item, and its award's key, in whose order items by award are. */
export interface TotalsRow {
  readonly awardKey: string
  readonly item: TotalsItem
}

interface Counted extends Record<string, string | null> {
  name: string | null
  currency: string
}

/**
 * The totals of whatever has a line before the period's end; by award in the order of award keys, else all of them, which are few.
 * One statement: its figures are of one instant. It is stopped after `totalsMs`.
 */
export async function readTotals(
  db: Db,
  filters: TotalsFilters,
  after: string | null,
  limit: number,
): Promise<TotalsRow[]> {
  const rows = await db.transaction(
    async (tx) => {
      await tx.execute(sql.raw(`SET LOCAL statement_timeout = ${limits.totalsMs}`))
      return tx.execute<Counted>(filters.by === "award" ? byAward(filters, after, limit) : byGroup(filters, filters.by))
    },
    { accessMode: "read only" },
  )
  return rows.map((row) => ({
    awardKey: row.group_key ?? "",
    item: {
      ...(filters.by === "award" ? { award_id: row.name ?? "" } : {}),
      ...(filters.by === "portal" ? { portal: row.name ?? bootstrapPortal.name } : {}),
      currency: row.currency,
      period: toSums(row, "p"),
      cumulative: toSums(row, "c"),
    },
  }))
}

/** Award by award in the order of their keys, each by its own range of the index, until there are enough. */
function byAward(filters: TotalsFilters, after: string | null, limit: number): SQL {
  return sql`
    SELECT a.award_key AS group_key, a.award_id AS name, t.*
    FROM ${awards} a CROSS JOIN LATERAL (
      SELECT p.currency, ${sumsOf("p", sql`p.in_period`)}, ${sumsOf("c", sql`true`)}
      FROM (${parts(filters, sql`''`, sql`${d.award_key} = a.award_key`)}) p
      GROUP BY p.currency
    ) t
    WHERE ${after === null ? sql`true` : sql`a.award_key > ${after}`}
      AND ${filters.awardKey === null ? sql`true` : sql`a.award_key = ${filters.awardKey}`}
    ORDER BY a.award_key, t.currency LIMIT ${limit}`
}

/** Reads every line that the filters leave, once. */
function byGroup(filters: TotalsFilters, by: "currency" | "portal"): SQL {
  const awardKey = filters.awardKey === null ? sql`true` : sql`${d.award_key} = ${filters.awardKey}`
  return sql`
    SELECT t.*, o.name FROM (
      SELECT p.group_key, p.currency, ${sumsOf("p", sql`p.in_period`)}, ${sumsOf("c", sql`true`)}
      FROM (${parts(filters, by === "portal" ? owner : sql`NULL::uuid`, awardKey)}) p
      GROUP BY p.group_key, p.currency
    ) t LEFT JOIN ${portals} o ON o.id = t.group_key
    ORDER BY o.name, t.currency LIMIT ${limits.totalsGroupsMax}`
}

/** Lines summed by kind, within the period and before it: adding two figures a line costs less than ten with a condition each. */
function parts({ ownerId, from, to }: TotalsFilters, groupKey: SQL, which: SQL): SQL {
  const where = and(
    which,
    ownerId === null ? undefined : eq(owner, ownerId),
    to === null ? undefined : lt(d.recorded_at, to),
  )
  const inPeriod = from === null ? sql`true` : sql`${d.recorded_at} >= ${from}`
  return sql`SELECT ${groupKey} AS group_key, ${d.currency} AS currency, ${d.kind} AS kind, ${inPeriod} AS in_period,
      sum(${d.amount_cents}) AS cents, count(*) AS lines
    FROM ${d} WHERE ${where} GROUP BY 1, 2, 3, 4`
}

/** Sums and counts as text, whatever their size, of the parts where `condition` holds. */
function sumsOf(prefix: "p" | "c", condition: SQL): SQL {
  const out = (name: string) => sql.raw(`AS ${prefix}_${name}`)
  const lines = (kind: string) =>
    sql`coalesce(sum(p.lines) FILTER (WHERE ${condition} AND p.kind = ${kind}), 0)::text ${out(kind)}`
  return sql`coalesce(sum(p.cents) FILTER (WHERE ${condition} AND p.kind = 'disbursement'), 0)::text ${out("gross")},
    coalesce(-sum(p.cents) FILTER (WHERE ${condition} AND p.kind <> 'disbursement'), 0)::text ${out("returned")},
    ${lines("disbursement")}, ${lines("return")}, ${lines("reversal")}`
}

function toSums(row: Counted, prefix: "p" | "c"): Sums {
  const integer = (name: string) => BigInt(row[`${prefix}_${name}`] ?? 0)
  const [gross, returned] = [integer("gross"), integer("returned")]
  return {
    gross_cents: gross,
    gross: decimalText(gross, row.currency),
    returned_cents: returned,
    returned: decimalText(returned, row.currency),
    net_cents: gross - returned,
    net: decimalText(gross - returned, row.currency),
    disbursements: Number(integer("disbursement")),
    returns: Number(integer("return")),
    reversals: Number(integer("reversal")),
  }
}

/** Columns of the CSV: the group, its currency, the sums of the period, then the cumulative ones. */
export function totalsColumns(by: TotalsBy): readonly Column<TotalsItem>[] {
  const group: Record<TotalsBy, Column<TotalsItem>[]> = {
    award: [{ name: "award_id", cell: (item) => item.award_id ?? null }],
    portal: [{ name: "portal", cell: (item) => item.portal ?? null }],
    currency: [],
  }
  return [
    ...group[by],
    { name: "currency", cell: (item) => item.currency },
    ...sumNames.map((name) => sumColumn(name, "period")),
    ...sumNames.map((name) => sumColumn(name, "cumulative")),
  ]
}

const sumNames = [
  "gross_cents",
  "gross",
  "returned_cents",
  "returned",
  "net_cents",
  "net",
  "disbursements",
  "returns",
  "reversals",
] as const satisfies readonly (keyof Sums)[]

function sumColumn(name: keyof Sums, part: "period" | "cumulative"): Column<TotalsItem> {
  return { name: part === "period" ? name : `${part}_${name}`, cell: (item) => item[part][name], plain: true }
}
