/**
 * `POST /v1/submissions/batch`: any number of submissions as NDJSON, streamed both ways. Here is what a request without an end needs of the HTTP
 * server: its body is handed on as it comes, the limits of time that others have are off, and when it ends early the client can read why.
 */
import type { Readable } from "node:stream"
import type { FastifyRequest } from "fastify"
import type { Config } from "../config.js"
import { BulkRoom } from "../gate/bulk-room.js"
import { limits } from "../limits.js"
import { batchDocs } from "./batch-docs.js"
import { BatchRun } from "./batch-run.js"
import type { App, GatedDeps } from "./deps.js"
import { letTakeItsTime } from "./raw-problems.js"

const ndjson = "application/x-ndjson"

/** Registers the route. */
export function batchRoutes(app: App, deps: GatedDeps & { readonly config: Config }): void {
  const room = new BulkRoom(deps.config.lanes, deps.config.groupMembersMax)
  const running = new Set<BatchRun>()
  app.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser(ndjson, (_request: unknown, body: Readable, done: (e: null, body: Readable) => void) =>
      done(null, body),
    )
    scope.addHook("preClose", (done) => {
      for (const run of running) run.stop()
      done()
    })
    ;(scope as App).post(
      "/v1/submissions/batch",
      {
        config: { roles: ["portal"] },
        schema: batchDocs,
        // The schema is for the document: lines are looked at one by one, as they come.
        validatorCompiler: () => (value) => ({ value }),
      },
      (request, reply) => {
        const { caller, id: requestId, log } = request
        const context = { caller, requestId, log, metrics: deps.metrics, publicUrl: app.publicUrl() }
        const run = new BatchRun(context, deps.gate, room)
        running.add(run)
        const inTime = letTakeItsTime(request.raw.socket)
        reply.raw.on("timeout", () => run.stall())
        reply.raw.once("finish", () => linger(request))
        reply.raw.once("close", () => {
          inTime()
          running.delete(run)
        })
        run.readFrom(request.body as unknown as Readable)
        if (app.stopping) run.stop()
        return reply.header("content-type", ndjson).send(run)
      },
    )
  })
}

/** The answer has ended before the request: who closes at once may take the answer's last bytes back from the client. */
export function linger({ raw }: FastifyRequest): void {
  if (raw.complete) return
  // Through the request: by then the connection may be gone, and with it the socket.
  const cut = setTimeout(() => raw.destroy(), limits.lingerMs)
  for (const end of ["end", "close"]) raw.once(end, () => clearTimeout(cut))
  raw.resume()
}
