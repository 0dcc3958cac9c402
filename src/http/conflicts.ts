/**
 * The refused reuses of keys, for those who investigate them.
 */
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { decodeCursor, toPage } from "../db/page.js"
import { readConflicts } from "../evidence/conflicts.js"
import { limits } from "../limits.js"
import type { App } from "./deps.js"
import { answer, problemResponses } from "./openapi.js"
import { pageOf, pageQuery } from "./page-query.js"

const conflict = z
  .object({
    id: z.string(),
    portal: z.string(),
    idempotency_key: z.string(),
    operation: z.string().describe("What the refused request asked for"),
    fingerprint: z.string(),
    original_operation: z.string(),
    original_fingerprint: z.string(),
    differs: z.array(z.string()).describe("JSON pointers of the members that differ; no values"),
    disbursement_id: z.string().describe("What the original recorded"),
    request_id: z.string().describe("Of the refused request, as in the log"),
    occurred_at: z.string(),
  })
  .meta({ id: "Conflict" })

export function conflictRoutes(app: App, reads: Pick<Reads, "run">): void {
  app.get(
    "/v1/conflicts",
    {
      config: { roles: ["operator", "auditor"] },
      schema: {
        operationId: "listConflicts",
        tags: ["outcomes"],
        summary: "Refused reuses of keys, oldest first",
        querystring: z.strictObject({ portal: z.string().optional().describe("By name"), ...pageQuery }),
        response: {
          200: answer(pageOf(conflict), "A page."),
          ...problemResponses("invalid-request", "invalid-cursor"),
        },
      },
    },
    async ({ query }) => {
      const portal = query.portal ?? null
      const filters = { list: "conflicts", portal }
      const limit = query.limit ?? limits.pageItemsDefault
      const after = query.cursor === undefined ? null : decodeCursor(query.cursor, filters)
      const rows = await reads.run((db) => readConflicts(db, portal, after, limit + 1))
      return toPage(rows, limit, filters, (row) => ({ at: row.occurred_at, id: row.id }))
    },
  )
}
