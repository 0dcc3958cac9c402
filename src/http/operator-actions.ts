/**
 * What operators did, for those who ask later: read only, oldest first.
 */
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { decodeCursor, toPage } from "../db/page.js"
import { readActions } from "../evidence/operator-actions.js"
import { awardKey } from "../ledger/submission.js"
import { limits } from "../limits.js"
import type { App } from "./deps.js"
import { answer, problemResponses } from "./openapi.js"
import { filterText, pageOf, pageQuery } from "./page-query.js"

const state = z.looseObject({}).nullable()

const action = z
  .object({
    id: z.string(),
    action: z.string().describe("Such as `award.rules`, `portal.create`, `token.add`, `token.revoke`"),
    subject: z.string().describe("An award's id as awards are compared (NFC, upper case), or a portal's id"),
    portal: z.string().nullable().describe("The operator's name; null: the command line"),
    before: state,
    after: state,
    reason: z.string().nullable(),
    request_id: z.string().nullable(),
    occurred_at: z.string(),
  })
  .meta({ id: "OperatorAction" })

const exampleAction = {
  id: "0197c3a4-1f7a-7d20-9b3c-8e6f5a4d3c2b",
  action: "token.revoke",
  subject: "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90",
  portal: "grants-office",
  before: { token_id: "0197c3a2-5c40-7a19-b2d3-4e5f60718293" },
  after: null,
  reason: null,
  request_id: "94960669e991-9",
  occurred_at: "2025-07-01T09:12:44.020115Z",
}

export function operatorActionRoutes(app: App, reads: Pick<Reads, "run">): void {
  app.get(
    "/v1/operator-actions",
    {
      config: { roles: ["operator", "auditor"] },
      schema: {
        operationId: "listOperatorActions",
        tags: ["evidence"],
        summary: "What operators did, oldest first",
        querystring: z.strictObject({
          subject: filterText.optional().describe("What it was done to: an award's id, or a portal's"),
          ...pageQuery,
        }),
        response: {
          200: answer(pageOf(action), "A page.", { example: { items: [exampleAction], next_cursor: null } }),
          ...problemResponses("invalid-request", "invalid-cursor"),
        },
      },
    },
    async ({ query }) => {
      const subject = query.subject ?? null
      const filters = { list: "operator-actions", subject }
      const limit = query.limit ?? limits.pageItemsDefault
      const after = query.cursor === undefined ? null : decodeCursor(query.cursor, filters)
      // Ids of portals are lower case, keys of awards upper case.
      const subjects = subject === null ? null : [subject, awardKey(subject)]
      const rows = await reads.run((db) => readActions(db, subjects, after, limit + 1))
      return toPage(rows, limit, filters, (row) => ({ at: row.occurred_at, id: row.id }))
    },
  )
}
