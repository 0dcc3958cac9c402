/**
 * /livez: the process runs. /readyz: it can do its work, which needs the database, and has not been asked to stop. Open to all, and they say no more.
 */
import { sql } from "drizzle-orm"
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { Problem } from "../problems.js"
import type { App } from "./deps.js"
import { answer, openProblems } from "./openapi.js"

/** A probe's patience: shorter than that of whoever asks. */
const readyMs = 1_000

const status = z.object({ status: z.literal("ok") })

export function healthRoutes(app: App, reads: Pick<Reads, "run">): void {
  app.get(
    "/livez",
    {
      schema: {
        operationId: "getLivez",
        tags: ["service"],
        summary: "Is the process alive?",
        response: { 200: answer(status, "It is.", { example: { status: "ok" } }), ...openProblems() },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "no-store")
      return { status: "ok" }
    },
  )

  app.get(
    "/readyz",
    {
      schema: {
        operationId: "getReadyz",
        tags: ["service"],
        summary: "Can it take requests?",
        description:
          "Asks the database. 503 while it cannot be reached, and from the moment the process was asked to stop.",
        response: { 200: answer(status, "It can.", { example: { status: "ok" } }), ...openProblems("unavailable") },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "no-store")
      if (app.stopping) throw new Problem("unavailable", "The service is stopping.")
      await reads.run((db) => db.execute(sql`SELECT 1`), readyMs)
      return { status: "ok" }
    },
  )
}
