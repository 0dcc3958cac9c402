/**
 * One line for each request, at its end: route template, status, time, portal, and for a submission its audit. Never a URL, a header or a
 * body: those hold keys, award ids and amounts. A request whose client went away has its line too: what it recorded is recorded.
 */
import type { FastifyReply, FastifyRequest } from "fastify"
import pino, { type Logger } from "pino"
import { errorCode } from "../db/client.js"
import type { App } from "./deps.js"
import type { Metrics } from "./metrics.js"

/** Probes and scrapes would drown the rest. */
const quietRoutes = new Set(["/livez", "/readyz", "/metrics"])

/**
 * The process's logger: JSON lines on stdout.
 * @param destination for tests
 */
export function makeLogger(level: string, destination?: pino.DestinationStream): Logger {
  const options: pino.LoggerOptions = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    serializers: { err: describeError, req: () => undefined, res: () => undefined },
  }
  return destination ? pino(options, destination) : pino(options)
}

/** An error as it may be logged: what and where, without its message, which may hold a statement's parameters or a payload's text. */
export function describeError(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { type: typeof error }
  const frames = error.stack?.split("\n").filter((line) => /^\s+at /.test(line)) ?? []
  const cause = error.cause instanceof Error ? { cause: describeError(error.cause) } : {}
  return { type: error.name, code: errorCode(error), at: frames.slice(0, 12).map((line) => line.trim()), ...cause }
}

export function registerRequestLog(app: App, metrics: Metrics): void {
  app.decorateRequest("audit", null)
  app.decorateRequest("refusal", null)
  // A logger for each request costs more than its one line, which names the request itself.
  app.setChildLoggerFactory((logger) => logger)
  // `close` comes after an answer that was sent, and also where nobody waits for it any more.
  app.addHook("onSend", (request, reply, payload, done) => {
    const end = () => writeLine(request, reply, metrics, !reply.raw.writableFinished)
    if (request.raw.socket.destroyed) end()
    else reply.raw.once("close", end)
    done(null, payload)
  })
}

function writeLine(request: FastifyRequest, reply: FastifyReply, metrics: Metrics, aborted: boolean): void {
  const route = request.is404 ? "unknown" : (request.routeOptions.url ?? "unknown")
  const ms = Math.round(reply.elapsedTime * 10) / 10
  metrics.request(request.method, route, reply.statusCode, ms)
  const { event, ...audit } = request.audit ?? { event: "request" }
  // What is undefined is left out of the line.
  const line = {
    request_id: request.id,
    method: request.method,
    route,
    status: reply.statusCode,
    ms,
    code: request.refusal ?? undefined,
    portal: request.caller?.portal,
    aborted: aborted || undefined,
    ...audit,
  }
  if (quietRoutes.has(route)) request.log.debug(line, event)
  else request.log.info(line, event)
}
