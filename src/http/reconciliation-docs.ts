/** What the OpenAPI document says of POST /v1/reconciliations, and its query, which is also checked by it. The body is read line by line instead. */
import { z } from "zod"
import { csvHeader, csvRows } from "../ledger/csv.js"
import { comparisons, type Exception, exceptionKinds } from "../ledger/reconciliation.js"
import { exceptionColumns } from "../ledger/reconciliation-report.js"
import { timestampText } from "../ledger/submission.js"
import { streamed, varyHeader } from "./ledger-streams.js"
import { problemResponses } from "./openapi.js"
import { filterText, periodInOrder } from "./page-query.js"

const cents = z.int()

const exception = z
  .object({
    kind: z.enum(exceptionKinds),
    line: z.int().nullable().describe("Of the list, counted from 1 as an editor does; null: it is not there"),
    first_line: z.int().nullable().describe("Of one listed twice: the line that names the same"),
    submission_id: z.string().nullable(),
    idempotency_key: z.string().nullable(),
    award_id: z.string(),
    listed_amount_cents: cents.nullable(),
    listed_currency: z.string().nullable(),
    recorded_award_id: z.string().nullable(),
    recorded_amount_cents: cents.nullable(),
    recorded_currency: z.string().nullable(),
    disbursement_id: z.string().nullable().describe("The ledger line"),
    recorded_at: z.string().nullable(),
    differs: z.array(z.string()).describe("JSON pointers of the members that differ"),
  })
  .meta({ id: "ReconciliationException" })

const bothSides = z
  .object({
    award_id: z.string().optional().describe("By award"),
    currency: z.string(),
    listed_cents: cents,
    listed: z.string().nullable().describe("The same in decimals, exact for every reader"),
    listed_lines: z.int(),
    recorded_cents: cents,
    recorded: z.string().nullable(),
    recorded_lines: z.int(),
  })
  .meta({ id: "BothSides" })

const reconciliation = z
  .object({
    portal: z.string(),
    compare: z.enum(comparisons),
    from: z.string().nullable(),
    to: z.string().nullable(),
    lines: z.int().describe("Of the list"),
    matched: z.int().describe("Lines that agree with the ledger"),
    exceptions: z
      .object(Object.fromEntries(exceptionKinds.map((kind) => [kind, z.int()])))
      .describe("How many of each kind"),
    currencies: z.array(bothSides).describe("Both sides, for each currency"),
    awards: z.array(bothSides).describe("Both sides, for each award; those that differ first"),
    awards_total: z.int(),
    items: z.array(exception).describe("The first 1,000 exceptions: of the list in its order, then `missing_there`"),
    items_total: z.int(),
  })
  .meta({ id: "Reconciliation" })

const exampleException: Exception = {
  kind: "amount_differs",
  line: 2,
  first_line: null,
  submission_id: "INV-7781",
  idempotency_key: null,
  award_id: "A-2026-014",
  listed_amount_cents: 125001,
  listed_currency: "USD",
  recorded_award_id: "A-2026-014",
  recorded_amount_cents: 125000,
  recorded_currency: "USD",
  disbursement_id: "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90",
  recorded_at: "2025-07-01T09:00:02.417305Z",
  differs: ["/amount_cents"],
}

const exampleSides = {
  currency: "USD",
  listed_cents: 125001,
  listed: "1250.01",
  listed_lines: 1,
  recorded_cents: 125000,
  recorded: "1250.00",
  recorded_lines: 1,
}

const listed = z.string().meta({
  description: "The list: UTF-8, at most 200,000 lines.",
  examples: [
    `{"submission_id":"INV-7781","award_id":"A-2026-014","amount_cents":125000,"currency":"USD"}\n`,
    "submission_id,award_id,amount,currency\r\nINV-7781,A-2026-014,1250.00,USD\r\n",
  ],
})

/** Spread it into the route's schema. */
export const reconciliationDocs = {
  operationId: "reconcile",
  tags: ["disbursements"],
  summary: "Compare a portal's own list with the ledger",
  description: `Send the list that the portal keeps itself; the answer says what agrees and shows what does not. It reads only, and keeps nothing of the list.

Each line names what it is about by \`idempotency_key\`, \`submission_id\` or both, and has \`award_id\`, \`amount_cents\` or \`amount\` (decimal text of the currency, such as \`1250.00\`), and \`currency\` (USD when absent). Other columns and members are the portal's own and are not looked at, so that an export of the ledger is such a list, too.

- \`missing_here\`: listed, but not recorded. \`missing_there\`: recorded within the period, but not listed.
- \`reference_differs\`, \`award_differs\`, \`currency_differs\`, \`amount_differs\`: counted once, as the first that applies; \`differs\` names all.
- \`listed_twice\`: another line before it names the same. \`outside_period\`: it agrees, but is recorded before \`from\`, or at or after \`to\`.

Without a period the portal's whole ledger is compared. Ask for one that has ended: lines that are recorded meanwhile may be seen or not.`,
  consumes: ["application/x-ndjson", "text/csv"],
  body: listed,
  querystring: z
    .strictObject({
      portal: filterText
        .optional()
        .describe("Whose list it is, by name; needed unless the token is a portal's, which compares with its own"),
      from: timestampText.optional().describe("Begin of the period: `recorded_at` at or after this instant"),
      to: timestampText.optional().describe("End of the period: `recorded_at` before this instant"),
      compare: z
        .enum(comparisons)
        .optional()
        .describe(
          "`lines` (when absent): each line on its own, with returns and reversals as negative lines under their keys. `net`: a line for each disbursement, with what is left of it at the end of the period",
        ),
      part: z
        .enum(["exceptions", "awards"])
        .optional()
        .describe("What a CSV or NDJSON answer holds: all exceptions (when absent), or both sides of every award"),
    })
    .refine(periodInOrder.check, periodInOrder.otherwise),
  response: {
    200: {
      description: "What agrees, and all that does not.",
      headers: varyHeader,
      content: {
        "application/json": {
          schema: reconciliation,
          example: {
            portal: "county-east",
            compare: "lines",
            from: null,
            to: null,
            lines: 1,
            matched: 0,
            exceptions: Object.fromEntries(exceptionKinds.map((kind) => [kind, kind === "amount_differs" ? 1 : 0])),
            currencies: [exampleSides],
            awards: [{ award_id: "A-2026-014", ...exampleSides }],
            awards_total: 1,
            items: [exampleException],
            items_total: 1,
          },
        },
        ...streamed(
          csvHeader(exceptionColumns) + csvRows(exceptionColumns, [exampleException]),
          `${JSON.stringify(exampleException)}\n`,
        ),
      },
    },
    ...problemResponses("invalid-request", "not-found", "media-type-unsupported", "body-too-large", "overloaded"),
  },
}
