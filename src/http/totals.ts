/**
 * Totals over HTTP: the quarterly report, the month's end. A portal's are of its own lines. Integers are written exactly, whatever their size; beside
 * each stands the amount as decimal text, which every reader has exactly.
 */
import { z } from "zod"
import { errorCode, type Reads } from "../db/client.js"
import { decodeTextCursor, toPage } from "../db/page.js"
import { csvHeader, csvRows } from "../ledger/csv.js"
import {
  readTotals,
  type TotalsFilters,
  type TotalsItem,
  type TotalsRow,
  totalsBy,
  totalsColumns,
} from "../ledger/period-totals.js"
import { awardKey, normaliseTimestamp, timestampText } from "../ledger/submission.js"
import { limits } from "../limits.js"
import { roles } from "../portals/portals.js"
import { Problem } from "../problems.js"
import type { App } from "./deps.js"
import { ownerAsked } from "./ledger-scope.js"
import { exactJson, listType, Places, sendTable, streamed, variesByAccept, varyHeader } from "./ledger-streams.js"
import { problemResponses } from "./openapi.js"
import { filterText, pageQuery, periodInOrder } from "./page-query.js"

type Pool = Pick<Reads, "run">

const integer = z.int().describe("In minor units. Exact, also beyond 2^53 − 1, where some readers round")
const decimal = z.string().nullable().describe("The same in decimals of the currency, exact for every reader")
const count = z.int().min(0)

const sums = z
  .object({
    gross_cents: integer,
    gross: decimal,
    returned_cents: integer,
    returned: decimal,
    net_cents: integer,
    net: decimal,
    disbursements: count.describe("How many"),
    returns: count,
    reversals: count,
  })
  .meta({ id: "Sums" })

const totals = z
  .object({
    by: z.enum(totalsBy),
    from: z.string().nullable().describe("As asked, in UTC; null: from the beginning"),
    to: z.string().nullable().describe("As asked, in UTC; null: to the end"),
    items: z.array(
      z.object({
        award_id: z.string().optional().describe("By award"),
        portal: z.string().optional().describe("By portal"),
        currency: z.string(),
        period: sums.describe("Lines recorded at or after `from` and before `to`"),
        cumulative: sums.describe("All lines recorded before `to`"),
      }),
    ),
    next_cursor: z.string().nullable().describe("For the next page; null at the end"),
  })
  .meta({ id: "Totals" })

const exampleSums = {
  gross_cents: 125000,
  gross: "1250.00",
  returned_cents: 5000,
  returned: "50.00",
  net_cents: 120000,
  net: "1200.00",
  disbursements: 1,
  returns: 1,
  reversals: 0,
}
const exampleItem = { award_id: "A-2026-014", currency: "USD", period: exampleSums, cumulative: exampleSums }
const exampleRow: TotalsItem = { ...exampleItem, period: exact(exampleSums), cumulative: exact(exampleSums) }

function exact<S extends typeof exampleSums>(given: S) {
  const { gross_cents, returned_cents, net_cents, ...rest } = given
  return {
    gross_cents: BigInt(gross_cents),
    returned_cents: BigInt(returned_cents),
    net_cents: BigInt(net_cents),
    ...rest,
  }
}

const summing = new Places(limits.totalsMax)

export function totalsRoutes(app: App, { reads, reports }: { reads: Pool; reports: Pool }): void {
  app.get(
    "/v1/totals",
    {
      config: { roles },
      schema: {
        operationId: "getTotals",
        tags: ["disbursements"],
        summary: "Gross, returned and net, within a period and up to its end",
        description: `Sums of ledger lines, for each currency apart: \`period\` between \`from\` and \`to\`, \`cumulative\` from the beginning to \`to\`. They are exact as of any instant in the past; a period is complete a few seconds after its end. Whatever has a line before \`to\` has its item, also without one in the period.

By award they come in pages, in the order of award ids in upper case; by currency and by portal all at once. With \`Accept: text/csv\` or \`application/x-ndjson\` all of them are streamed; ask for a period that has ended, so that what is read first and last is of one instant.`,
        querystring: z
          .strictObject({
            by: z
              .enum(totalsBy)
              .optional()
              .describe("What has a total of its own in each currency; `currency` when absent"),
            award_id: filterText.optional().describe("Of this award only. Compared like a submission's"),
            portal: filterText.optional().describe("Of this portal's lines only, by name"),
            from: timestampText.optional().describe("Begin of the period: `recorded_at` at or after this instant"),
            to: timestampText.optional().describe("End of the period: `recorded_at` before this instant"),
            ...pageQuery,
          })
          .refine(periodInOrder.check, periodInOrder.otherwise),
        response: {
          200: {
            description: "The totals.",
            headers: varyHeader,
            content: {
              "application/json": {
                schema: totals,
                example: { by: "award", from: null, to: null, items: [exampleItem], next_cursor: null },
              },
              ...streamed(
                csvHeader(totalsColumns("award")) + csvRows(totalsColumns("award"), [exampleRow]),
                `${JSON.stringify(exampleItem)}\n`,
              ),
            },
          },
          ...problemResponses("invalid-request", "invalid-cursor", "overloaded"),
        },
      },
    },
    async (request, reply) => {
      const { query, caller } = request
      const by = query.by ?? "currency"
      const wanted: TotalsFilters = {
        ownerId: await ownerAsked(reads, caller, query.portal),
        awardKey: query.award_id === undefined ? null : awardKey(query.award_id),
        from: query.from === undefined ? null : normaliseTimestamp(query.from),
        to: query.to === undefined ? null : normaliseTimestamp(query.to),
        by,
      }
      const filters = { list: "totals", ...wanted }
      const after = query.cursor === undefined ? null : decodeTextCursor(query.cursor, filters)
      const type = listType(request)
      if (type !== "application/json") {
        const batches = readAllTotals(reports, wanted, after, query.limit ?? null)
        return sendTable(request, reply, type, {
          name: `totals-by-${by}`,
          columns: totalsColumns(by),
          batches,
          json: exactJson,
        })
      }
      const limit = by === "award" ? (query.limit ?? limits.pageItemsDefault) : limits.totalsGroupsMax
      const rows = await readSome(reports, wanted, after, limit + 1)
      const page = toPage(rows, limit, filters, ({ awardKey }) => awardKey)
      const body = { by, from: wanted.from, to: wanted.to, items: page.items.map(({ item }) => item) }
      reply.headers({ ...variesByAccept, "content-type": "application/json; charset=utf-8" })
      return exactJson({ ...body, next_cursor: page.next_cursor })
    },
  )
}

async function readSome(
  reports: Pool,
  wanted: TotalsFilters,
  after: string | null,
  limit: number,
): Promise<TotalsRow[]> {
  const leave = summing.take()
  try {
    return await reports.run((db) => readTotals(db, wanted, after, limit), limits.totalsMs + limits.connectMs)
  } catch (error) {
    if (errorCode(error) !== "57014") throw error
    throw new Problem(
      "unavailable",
      `The totals took longer than ${limits.totalsMs / 1000} s. Ask for one award, for one portal, or by award.`,
    )
  } finally {
    leave()
  }
}

async function* readAllTotals(
  reports: Pool,
  wanted: TotalsFilters,
  after: string | null,
  limit: number | null,
): AsyncGenerator<TotalsItem[]> {
  let place = after
  for (let left = limit ?? Number.POSITIVE_INFINITY; left > 0; ) {
    const size = Math.min(left, wanted.by === "award" ? limits.totalsBatchAwards : limits.totalsGroupsMax)
    const rows = await readSome(reports, wanted, place, size)
    yield rows.map(({ item }) => item)
    const last = rows.at(-1)
    if (last === undefined || rows.length < size || wanted.by !== "award") return
    place = last.awardKey
    left -= rows.length
  }
}
