/**
 * How a reconciliation is told: the summary with the first exceptions, and the tables with all of them.
 */
import { limits } from "../limits.js"
import type { Column } from "./csv.js"
import { decimalText } from "./currency.js"
import {
  type BothSides,
  type Exception,
  exceptionKinds,
  type Reconciliation,
  type ReconciliationAsked,
} from "./reconciliation.js"

/** The answer in JSON; integers may be bigint. */
export function summaryOf(asked: ReconciliationAsked, portal: string, found: Reconciliation) {
  const exceptions = Object.fromEntries(exceptionKinds.map((kind) => [kind, 0]))
  for (const { kind } of found.exceptions) exceptions[kind] = (exceptions[kind] ?? 0) + 1
  return {
    portal,
    compare: asked.compare,
    from: asked.from,
    to: asked.to,
    lines: found.lines,
    matched: found.matched,
    exceptions,
    currencies: found.currencies.map(withDecimals),
    awards: found.awards.slice(0, limits.reconciliationItemsMax).map(withDecimals),
    awards_total: found.awards.length,
    items: found.exceptions.slice(0, limits.reconciliationItemsMax),
    items_total: found.exceptions.length,
  }
}

type Sides = ReturnType<typeof withDecimals>

/** Both sides, with decimals beside the integers. */
export function withDecimals({ listed_cents, listed_lines, recorded_cents, recorded_lines, ...of }: BothSides) {
  return {
    ...of,
    listed_cents,
    listed: decimalText(listed_cents, of.currency),
    listed_lines,
    recorded_cents,
    recorded: decimalText(recorded_cents, of.currency),
    recorded_lines,
  }
}

export const sidesColumns: readonly Column<Sides>[] = [
  { name: "award_id", cell: (side) => side.award_id ?? null },
  { name: "currency", cell: (side) => side.currency },
  ...(["listed_cents", "listed", "listed_lines", "recorded_cents", "recorded", "recorded_lines"] as const).map(
    (name) => ({ name, cell: (side: Sides) => side[name], plain: true as const }),
  ),
]

export const exceptionColumns: readonly Column<Exception>[] = [
  ...(
    ["kind", "line", "first_line", "submission_id", "idempotency_key", "award_id", "listed_amount_cents"] as const
  ).map(column),
  amount("listed"),
  ...(["listed_currency", "recorded_award_id", "recorded_amount_cents"] as const).map(column),
  amount("recorded"),
  ...(["recorded_currency", "disbursement_id", "recorded_at"] as const).map(column),
  { name: "differs", cell: ({ differs }) => (differs.length === 0 ? null : differs.join(" ")) },
]

function column(name: Exclude<keyof Exception, "differs">): Column<Exception> {
  return { name, cell: (exception) => exception[name] }
}

function amount(side: "listed" | "recorded"): Column<Exception> {
  return {
    name: `${side}_amount`,
    plain: true,
    cell: (exception) => {
      const cents = exception[`${side}_amount_cents`]
      return cents === null ? null : decimalText(cents, exception[`${side}_currency`] ?? "")
    },
  }
}

/** In pieces, so that writing them lets others have their turn. */
export async function* inBatches<Row>(rows: readonly Row[]): AsyncGenerator<readonly Row[]> {
  for (let from = 0; from === 0 || from < rows.length; from += limits.exportBatchLines) {
    yield rows.slice(from, from + limits.exportBatchLines)
    await new Promise((resolve) => setImmediate(resolve))
  }
}
