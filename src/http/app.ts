/**
 * The app: built from parts, never listening. Here are the bounds of the HTTP server, the order in which a request is checked (token, then
 * media type, then size, then JSON, then schema), and the one list of routes. Whatever goes wrong leaves as problem+json.
 */
import type { Socket } from "node:net"
import Fastify, { type FastifyRequest, LogController } from "fastify"
import type { ZodTypeProvider } from "fastify-type-provider-zod"
import { newId } from "../ids.js"
import { limits } from "../limits.js"
import { roles } from "../portals/portals.js"
import { Tokens } from "../portals/tokens.js"
import { Problem } from "../problems.js"
import { authenticate, isGuarded, registerAuth } from "./auth.js"
import { awardRoutes } from "./awards.js"
import { balanceRoutes } from "./balances.js"
import { batchRoutes } from "./batch.js"
import { registerBodies } from "./bodies.js"
import { conflictRoutes } from "./conflicts.js"
import type { App, AppDeps } from "./deps.js"
import { disbursementRoutes } from "./disbursements.js"
import { duplicateRoutes } from "./duplicates.js"
import { healthRoutes } from "./health.js"
import { registerClaims } from "./idempotency.js"
import { idempotencyKeyRoutes } from "./idempotency-keys.js"
import { registerMethodCheck } from "./methods.js"
import { Metrics, metricsRoute } from "./metrics.js"
import { openapiRoutes, registerOpenapi } from "./openapi.js"
import { operatorActionRoutes } from "./operator-actions.js"
import { portalRoutes } from "./portals.js"
import { problemPages } from "./problem-pages.js"
import { internalProblem, problemOf, replyProblem } from "./problem-replies.js"
import { refuseConnect, writeUnreadable } from "./raw-problems.js"
import { reconciliationRoutes } from "./reconciliations.js"
import { registerRequestLog } from "./request-log.js"
import { returnRoutes } from "./returns.js"
import { securityHeaders } from "./security-headers.js"
import { submissionRoutes } from "./submissions.js"
import { totalsRoutes } from "./totals.js"
import { validatorCompiler } from "./validation.js"

/** With a count, a request's id that no other process has. */
const bootId = newId().replaceAll("-", "").slice(-12)
let requests = 0

/** Builds the app; `ready()` or `listen()` starts it. */
export function buildApp(deps: AppDeps): App {
  const { config, reads, reports = reads } = deps
  const metrics = deps.metrics ?? new Metrics()
  const tokens = new Tokens(reads, config.bootstrapToken)
  const app = createServer(deps, tokens)

  registerRequestLog(app, metrics)
  registerErrors(app)
  registerShell(app)
  registerAuth(app, tokens)
  registerBodies(app)
  registerClaims(app)
  const refuseOtherMethods = registerMethodCheck(app)
  registerOpenapi(app)

  // In a plugin of their own, so that swagger's hooks see them.
  app.register(async (scope) => {
    const routes = scope as App
    healthRoutes(routes, reads)
    metricsRoute(routes, metrics, config.metricsPublic)
    problemPages(routes)
    openapiRoutes(routes)
    portalRoutes(routes, reads, tokens)
    disbursementRoutes(routes, { reads, reports })
    balanceRoutes(routes, { gate: deps.gate, metrics, reads })
    returnRoutes(routes, { gate: deps.gate, metrics, reads })
    totalsRoutes(routes, { reads, reports })
    duplicateRoutes(routes, reads)
    reconciliationRoutes(routes, { reads, reports })
    idempotencyKeyRoutes(routes, deps)
    conflictRoutes(routes, reads)
    awardRoutes(routes, { reads, changes: deps.changes ?? reads })
    operatorActionRoutes(routes, reads)
    submissionRoutes(routes, { gate: deps.gate, metrics })
    batchRoutes(routes, { config, gate: deps.gate, metrics })
  })
  app.register(async (scope) => refuseOtherMethods(scope as App))
  return app
}

function createServer({ config, logger }: AppDeps, tokens: Tokens): App {
  const app: App = Fastify({
    ...(logger ? { loggerInstance: logger } : { logger: false }),
    logController: new LogController({ disableRequestLogging: true }),
    // Never a client's: an id that others choose could be anyone's, or a line of the log.
    genReqId: () => `${bootId}-${(++requests).toString(36)}`,
    requestIdHeader: false,
    trustProxy: false,
    bodyLimit: limits.bodyBytesMax,
    requestTimeout: limits.requestMs,
    connectionTimeout: limits.connectionMs,
    keepAliveTimeout: limits.keepAliveMs,
    routerOptions: { maxParamLength: limits.pathParamCharsMax },
    http: {
      maxHeaderSize: limits.headerBytesMax,
      headersTimeout: limits.headersMs,
      // How often the two limits above are looked at: node's own 30 s would triple them.
      connectionsCheckingInterval: 1_000,
      // Checked below: node's own answer is not a problem.
      requireHostHeader: false,
    },
    // While it stops, requests that are still let in are answered by the hook below.
    return503OnClosing: false,
    clientErrorHandler: (error, socket) => writeUnreadable(error, socket, app.publicUrl()),
    frameworkErrors: (error, request, reply) => {
      // Before the path is judged, as everywhere under /v1.
      const permitted = async () => isGuarded(request.url) && (await authenticate(tokens, request, roles))
      permitted().then(
        () => replyProblem(request, reply, problemOf(error)),
        (refusal) => replyProblem(request, reply, problemOf(refusal)),
      )
    },
  }).withTypeProvider<ZodTypeProvider>() as App

  // Bounded by their size above. Node's own count would drop what comes after it without a word: a key, or a token.
  app.server.maxHeadersCount = 0
  app.decorate("stopping", false)
  const listeningUrl = keepListeningUrl(app, config)
  app.decorate("publicUrl", () => config.publicUrl ?? listeningUrl())
  // RFC 9110 section 10.1.1: an expectation that is not understood may be ignored; node's own 417 is not a problem.
  app.server.on("checkExpectation", (request, response) => app.server.emit("request", request, response))
  app.server.on("connect", (_request, socket) => refuseConnect(socket as Socket, app.publicUrl()))
  app.setValidatorCompiler(validatorCompiler)
  // Response schemas are for the document: encoding through them costs more than the handler on lists.
  app.setSerializerCompiler(() => JSON.stringify)
  return app
}

/** Where it listens; kept when it no longer does, for the last answers. */
function keepListeningUrl(app: App, { host, port }: AppDeps["config"]): () => string {
  const name = host === "0.0.0.0" || host === "::" ? "localhost" : host.includes(":") ? `[${host}]` : host
  let url = `http://${name}:${port}`
  app.server.on("listening", () => {
    const address = app.server.address()
    if (address !== null && typeof address === "object") url = `http://${name}:${address.port}`
  })
  return () => url
}

/** Everything that is thrown, and every unknown path, leaves as a problem. */
function registerErrors(app: App): void {
  app.setErrorHandler((error, request, reply) => {
    const problem = problemOf(error)
    if (problem.kind.status >= 500) logFailure(request, error, problem)
    return replyProblem(request, reply, problem)
  })
  // The onRequest hook has refused it by then; this only satisfies the router.
  app.setNotFoundHandler((request, reply) =>
    replyProblem(request, reply, new Problem("not-found", "There is no such path.")),
  )
}

function logFailure({ id, log }: FastifyRequest, err: unknown, problem: Problem): void {
  if (err instanceof Problem) return
  if (problem.code === internalProblem().code) log.error({ request_id: id, err }, "request failed")
  else log.warn({ request_id: id, err }, "database unavailable")
}

/** Headers of every answer, and what is refused before anything is looked at. */
function registerShell(app: App): void {
  // Hooks on every request's way are plain functions: a promise each would cost more than what they do.
  app.addHook("onRequest", (request, reply, done) => {
    reply.headers(securityHeaders).header("request-id", request.id)
    if (isGuarded(request.url)) reply.header("cache-control", "no-store")
    if (app.stopping) {
      reply.header("connection", "close")
      const { url } = request.routeOptions
      if (url !== "/livez" && url !== "/readyz") {
        done(new Problem("unavailable", "The service is stopping. Nothing was recorded."))
        return
      }
    }
    done(requireOneHost(request.raw.httpVersion, request.raw.rawHeaders))
  })
  app.addHook("onSend", (_request, reply, payload, done) => {
    if (app.stopping) reply.header("connection", "close")
    done(null, payload)
  })
}

/** RFC 9112 section 3.2: an HTTP/1.1 request has exactly one Host header. */
function requireOneHost(httpVersion: string, rawHeaders: readonly string[]): Problem | undefined {
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.length === 4 && rawHeaders[i]?.toLowerCase() === "host") hosts += 1
  if (hosts === 1 || (hosts === 0 && httpVersion === "1.0")) return undefined
  const detail = "must be sent exactly once"
  return new Problem("invalid-request", "The request does not have exactly one Host header.", {
    errors: [{ pointer: "/Host", code: "host-header", detail }],
  })
}
