/**
 * The relay's own listener: /livez, /readyz and /metrics, and nothing else. Ready is not that the process runs, but that each of its loops has had
 * its turn lately. It carries no /v1, so no token comes in here; figures name destinations, so it listens where HOST says and no further.
 */
import Fastify, { type FastifyInstance, LogController } from "fastify"
import type { Registry } from "prom-client"
import { limits } from "../limits.js"
import { securityHeaders } from "./security-headers.js"

export function buildRelayApp(registry: Registry, isReady: () => boolean): FastifyInstance {
  const app = Fastify({
    logger: false,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: limits.bodyBytesMax,
    requestTimeout: limits.requestMs,
    connectionTimeout: limits.connectionMs,
    forceCloseConnections: true,
  })
  app.addHook("onRequest", (_request, reply, done) => {
    reply.headers(securityHeaders).header("cache-control", "no-store")
    done()
  })
  app.get("/livez", async () => ({ status: "ok" }))
  app.get("/readyz", async (_request, reply) => {
    if (isReady()) return { status: "ok" }
    return reply.code(503).send({ status: "the relay's loops have not had their turn lately" })
  })
  app.get("/metrics", async (_request, reply) => {
    reply.header("content-type", registry.contentType)
    return registry.metrics()
  })
  return app
}
