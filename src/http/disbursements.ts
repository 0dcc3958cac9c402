/**
 * Reading the ledger over HTTP. A portal sees its own lines and cannot tell another's from one that is not there.
 */
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { decodeCursor, toPage } from "../db/page.js"
import { csvHeader, csvRows } from "../ledger/csv.js"
import { type LedgerLine, ledgerColumns, readAllLines, readLine, readLines } from "../ledger/disbursement-reads.js"
import type { LedgerFilters } from "../ledger/ledger-range.js"
import { awardKey, timestampText } from "../ledger/submission.js"
import { limits } from "../limits.js"
import { roles } from "../portals/portals.js"
import type { App } from "./deps.js"
import { ownerAsked, scopeOf } from "./ledger-scope.js"
import { listType, sendTable, streamed, variesByAccept, varyHeader } from "./ledger-streams.js"
import { answer, notFound, problemResponses } from "./openapi.js"
import { filterText, pageOf, pageQuery, periodInOrder } from "./page-query.js"
import { isUuid } from "./portals.js"

const cents = z.int().meta({ examples: [125000] })

/** One line of the ledger. */
export const ledgerLine = z
  .object({
    id: z.string().meta({ format: "uuid" }),
    kind: z.enum(["disbursement", "return", "reversal"]),
    award_id: z.string(),
    amount_cents: cents.describe("Signed: returns and reversals are negative"),
    currency: z.string(),
    submission_timestamp: z.string(),
    submission_id: z.string().nullable(),
    idempotency_key: z.string(),
    portal: z.string().describe("Whose line it is: the portal that submitted the disbursement"),
    recorded_at: z.string(),
    assistance_listing_number: z.string().nullable(),
    fain: z.string().nullable(),
    recipient_uei: z.string().nullable(),
    invoice_ref: z.string().nullable(),
    period_from: z.string().nullable(),
    period_to: z.string().nullable(),
    disbursement_id: z.string().optional().describe("The original; on returns and reversals"),
    reason: z.string().optional().describe("On returns and reversals"),
    recorded_by: z.string().optional().describe("Whose key recorded a return or reversal: the portal, or an operator"),
    returned_cents: cents.optional().describe("What came back so far; on disbursements"),
    net_cents: cents.optional().describe("What is left; on disbursements"),
  })
  .meta({ id: "LedgerLine" })

export const exampleLine: LedgerLine = {
  id: "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90",
  kind: "disbursement",
  award_id: "A-2026-014",
  amount_cents: 125000,
  currency: "USD",
  submission_timestamp: "2025-07-01T09:00:00Z",
  submission_id: "INV-7781",
  idempotency_key: "inv-7781-a",
  portal: "county-east",
  recorded_at: "2025-07-01T09:00:02.417305Z",
  assistance_listing_number: "10.500",
  fain: null,
  recipient_uei: null,
  invoice_ref: null,
  period_from: null,
  period_to: null,
  returned_cents: 0,
  net_cents: 125000,
}

const filters = {
  award_id: filterText.optional().describe("Compared like a submission's: NFC, upper case"),
  portal: filterText.optional().describe("By name. For a portal's own token any other name finds nothing"),
  from: timestampText.optional().describe("`recorded_at` at or after this instant"),
  to: timestampText.optional().describe("`recorded_at` before this instant"),
  submission_id: filterText.optional().describe("The portal's own number"),
  idempotency_key: filterText.optional().describe("The key that recorded the line, without quotes"),
}

type Pool = Pick<Reads, "run">

export function disbursementRoutes(app: App, { reads, reports }: { reads: Pool; reports: Pool }): void {
  app.get(
    "/v1/disbursements/:id",
    {
      config: { roles },
      schema: {
        operationId: "getDisbursement",
        tags: ["disbursements"],
        summary: "One ledger line",
        params: z.object({
          id: z.string().meta({ format: "uuid", description: "As in the `Location` of the answer" }),
        }),
        response: { 200: answer(ledgerLine, "The line.", { example: exampleLine }), ...problemResponses("not-found") },
      },
    },
    async ({ params: { id }, caller }) => {
      const line = isUuid(id) ? await reads.run((db) => readLine(db, id, scopeOf(caller))) : null
      if (!line) throw notFound("disbursement")
      return line
    },
  )

  app.get(
    "/v1/disbursements",
    {
      config: { roles },
      schema: {
        operationId: "listDisbursements",
        tags: ["disbursements"],
        summary: "Ledger lines, in the order in which they were recorded",
        description: `Every line that was recorded before the first page was read appears exactly once, whatever is recorded meanwhile.

With \`Accept: text/csv\` or \`application/x-ndjson\` the whole list is streamed instead of a page: every line that was recorded before the request; with \`limit\`, the first so many. In CSV, \`amount\` is the amount in decimals of its currency, and texts that a spreadsheet would take for a formula begin with an apostrophe. A stream that fails is cut off: a file is whole when the transfer ended without an error.`,
        querystring: z.strictObject({ ...filters, ...pageQuery }).refine(periodInOrder.check, periodInOrder.otherwise),
        response: {
          200: {
            description: "A page; or, by `Accept`, the whole list.",
            headers: varyHeader,
            content: {
              "application/json": { schema: pageOf(ledgerLine), example: { items: [exampleLine], next_cursor: null } },
              ...streamed(
                csvHeader(ledgerColumns) + csvRows(ledgerColumns, [exampleLine]),
                `${JSON.stringify(exampleLine)}\n`,
              ),
            },
          },
          ...problemResponses("invalid-request", "invalid-cursor", "overloaded"),
        },
      },
    },
    async (request, reply) => {
      const { query, caller } = request
      const wanted: LedgerFilters = {
        ownerId: await ownerAsked(reads, caller, query.portal),
        awardKey: query.award_id === undefined ? null : awardKey(query.award_id),
        from: query.from ?? null,
        to: query.to ?? null,
        submissionId: query.submission_id ?? null,
        idempotencyKey: query.idempotency_key ?? null,
      }
      const after = query.cursor === undefined ? null : decodeCursor(query.cursor, wanted)
      const type = listType(request)
      if (type !== "application/json") {
        const batches = readAllLines(reports, wanted, after, query.limit ?? null)
        return sendTable(request, reply, type, { name: "disbursements", columns: ledgerColumns, batches })
      }
      const limit = query.limit ?? limits.pageItemsDefault
      const rows = await reads.run((db) => readLines(db, wanted, after, limit + 1))
      reply.headers(variesByAccept)
      return toPage(rows, limit, wanted, (line) => ({ at: line.recorded_at, id: line.id }))
    },
  )
}
