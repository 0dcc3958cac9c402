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
import { filterText, pageOf, pageQuery } from "./page-query.js"

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
    disbursement_id: z.string().nullable().describe("The ledger line of the original; null for a balance event"),
    request_id: z.string().describe("Of the refused request, as in the log"),
    occurred_at: z.string(),
  })
  .meta({ id: "Conflict" })

const exampleConflict = {
  id: "0197c3a4-1f7a-7d20-9b3c-8e6f5a4d3c2b",
  portal: "county-east",
  idempotency_key: "inv-7781-a",
  operation: "submission",
  fingerprint: "v1:def8447597ab1077142720afdd12b6ab3e8558d9ac676c6a6219502aba7a6827",
  original_operation: "submission",
  original_fingerprint: "v1:d3ed6c4d8acb11aa58dcdb03e400559b1e415626580e4a00466ae631bea74acd",
  differs: ["/amount_cents"],
  disbursement_id: "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90",
  request_id: "0197c3a4-1f79-7a52-8d4e-3c2b1a098f7e",
  occurred_at: "2025-07-01T09:12:44.020115Z",
}

export function conflictRoutes(app: App, reads: Pick<Reads, "run">): void {
  app.get(
    "/v1/conflicts",
    {
      config: { roles: ["operator", "auditor"] },
      schema: {
        operationId: "listConflicts",
        tags: ["outcomes"],
        summary: "Refused reuses of keys, oldest first",
        querystring: z.strictObject({ portal: filterText.optional().describe("By name"), ...pageQuery }),
        response: {
          200: answer(pageOf(conflict), "A page.", { example: { items: [exampleConflict], next_cursor: null } }),
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
