/**
 * `POST /v1/reconciliations`: a portal's own list against the ledger. The list is read as it comes and compared when all of it could be read; nothing
 * is kept of it, so the request may be sent as often as one likes.
 */
import type { Readable } from "node:stream"
import type { Reads } from "../db/client.js"
import { type ListingType, listingTypes, readListing } from "../ledger/listing.js"
import { type Exception, type Reconciliation, type ReconciliationAsked, reconcile } from "../ledger/reconciliation.js"
import { exceptionColumns, inBatches, sidesColumns, summaryOf, withDecimals } from "../ledger/reconciliation-report.js"
import { normaliseTimestamp } from "../ledger/submission.js"
import { limits } from "../limits.js"
import { roles } from "../portals/portals.js"
import { linger } from "./batch.js"
import type { App } from "./deps.js"
import { exactJson, listType, Places, sendTable, variesByAccept } from "./ledger-streams.js"
import { portalOf } from "./portal-of.js"
import { letTakeItsTime } from "./raw-problems.js"
import { reconciliationDocs } from "./reconciliation-docs.js"
import { validatorCompiler } from "./validation.js"

type Pool = Pick<Reads, "run">
const comparing = new Places(limits.reconciliationsMax)

export function reconciliationRoutes(app: App, { reads, reports }: { reads: Pool; reports: Pool }): void {
  app.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser(
      [...listingTypes],
      (_request: unknown, body: Readable, done: (e: null, body: Readable) => void) => done(null, body),
    )
    ;(scope as App).post(
      "/v1/reconciliations",
      {
        config: { roles },
        schema: reconciliationDocs,
        // The body's schema is for the document.
        validatorCompiler: (route) =>
          route.httpPart === "body" ? (value: unknown) => ({ value }) : validatorCompiler(route as never),
      },
      async (request, reply) => {
        const { query, caller } = request
        const inTime = letTakeItsTime(request.raw.socket)
        reply.raw.once("finish", () => linger(request))
        reply.raw.once("close", inTime)
        const ownerId = await portalOf(reads, caller, query.portal)
        const asked: ReconciliationAsked = {
          ownerId,
          awardKey: null,
          from: query.from === undefined ? null : normaliseTimestamp(query.from),
          to: query.to === undefined ? null : normaliseTimestamp(query.to),
          compare: query.compare ?? "lines",
        }
        const found = await compare(reports, asked, request.headers["content-type"], request.body)
        const type = listType(request)
        if (type === "application/json") {
          reply.headers({ ...variesByAccept, "content-type": "application/json; charset=utf-8" })
          return exactJson(summaryOf(asked, query.portal ?? caller.portal, found))
        }
        if (query.part === "awards") {
          const batches = inBatches(found.awards.map(withDecimals))
          return sendTable(request, reply, type, { name: "awards", columns: sidesColumns, batches, json: exactJson })
        }
        const batches = inBatches<Exception>(found.exceptions)
        return sendTable(request, reply, type, { name: "exceptions", columns: exceptionColumns, batches })
      },
    )
  })
}

async function compare(
  reports: Pool,
  asked: ReconciliationAsked,
  contentType: string | undefined,
  body: unknown,
): Promise<Reconciliation> {
  const leave = comparing.take()
  try {
    const type = contentType?.split(";")[0]?.trim().toLowerCase()
    const listed = await readListing(type as ListingType, body as Readable)
    return await reconcile(reports, asked, listed)
  } finally {
    leave()
  }
}
