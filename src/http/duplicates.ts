/**
 * `GET /v1/possible-duplicates`: what may have been paid twice under two keys. A report for people; nothing is refused by it.
 */
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { decodeCursor, encodeCursor } from "../db/page.js"
import { type DuplicatesFilters, findDuplicates } from "../ledger/duplicates.js"
import { awardKey, timestampText } from "../ledger/submission.js"
import { limits } from "../limits.js"
import { roles } from "../portals/portals.js"
import type { App } from "./deps.js"
import { exampleLine, ledgerLine } from "./disbursements.js"
import { ownerAsked } from "./ledger-scope.js"
import { answer, problemResponses } from "./openapi.js"
import { filterText, pageOf, pageQuery, periodInOrder } from "./page-query.js"

const possibleDuplicate = z
  .object({
    disbursement: ledgerLine,
    same_amount_as: ledgerLine
      .nullable()
      .describe("The last disbursement before it of the same award and amount, within `days`; null: there is none"),
    same_invoice_as: ledgerLine
      .nullable()
      .describe("The portal's last one before it with the same `invoice_ref` on another award; null: there is none"),
  })
  .meta({ id: "PossibleDuplicate" })

const example = {
  disbursement: {
    ...exampleLine,
    id: "0197c3b0-77aa-7c31-8d52-1e0f9c8b7a65",
    submission_id: "INV-7781-again",
    idempotency_key: "inv-7781-b",
    recorded_at: "2025-07-03T14:20:41.000213Z",
  },
  same_amount_as: exampleLine,
  same_invoice_as: null,
}

const days = z
  .string()
  .regex(/^[0-9]{1,3}$/, "must be a whole number")
  .transform(Number)
  .refine((n) => n >= 1 && n <= limits.duplicatesDaysMax, `must be between 1 and ${limits.duplicatesDaysMax}`)
  .optional()
  .describe(
    `How far back the same amount may lie, 1 to ${limits.duplicatesDaysMax}; ${limits.duplicatesDaysDefault} when absent`,
  )

export function duplicateRoutes(app: App, reads: Pick<Reads, "run">): void {
  app.get(
    "/v1/possible-duplicates",
    {
      config: { roles },
      schema: {
        operationId: "listPossibleDuplicates",
        tags: ["disbursements"],
        summary: "Disbursements that may be the same payment twice",
        description:
          "In the order in which the later one was recorded. What came back whole is left out. A page covers a stretch of the ledger: it may hold few items, or none, and still have a `next_cursor`; the report is whole when that is null.",
        querystring: z
          .strictObject({
            award_id: filterText.optional().describe("Of the later one. Compared like a submission's: NFC, upper case"),
            portal: filterText.optional().describe("By name. For a portal's own token any other name finds nothing"),
            from: timestampText.optional().describe("`recorded_at` of the later one at or after this instant"),
            to: timestampText.optional().describe("`recorded_at` of the later one before this instant"),
            days,
            ...pageQuery,
          })
          .refine(periodInOrder.check, periodInOrder.otherwise),
        response: {
          200: answer(pageOf(possibleDuplicate), "A page.", { example: { items: [example], next_cursor: null } }),
          ...problemResponses("invalid-request", "invalid-cursor"),
        },
      },
    },
    async ({ query, caller }) => {
      const wanted: DuplicatesFilters = {
        ownerId: await ownerAsked(reads, caller, query.portal),
        awardKey: query.award_id === undefined ? null : awardKey(query.award_id),
        from: query.from ?? null,
        to: query.to ?? null,
        days: query.days ?? limits.duplicatesDaysDefault,
      }
      const bound = { list: "possible-duplicates", ...wanted }
      const limit = query.limit ?? limits.pageItemsDefault
      const after = query.cursor === undefined ? null : decodeCursor(query.cursor, bound)
      const { found, lookedAt } = await reads.run((db) => findDuplicates(db, wanted, after, limit + 1))
      const items = found.slice(0, limit)
      const last = items.at(-1)?.disbursement
      const next = found.length > limit && last ? { at: last.recorded_at, id: last.id } : lookedAt
      return { items, next_cursor: next === null ? null : encodeCursor(next, bound) }
    },
  )
}
