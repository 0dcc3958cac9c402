/**
 * What the HTTP side is built from, and what each request carries. Everything is handed in: the app opens no connection and reads no environment,
 * so that a test or the OpenAPI command can build it from parts.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http"
import type { FastifyBaseLogger, FastifyInstance } from "fastify"
import type { ZodTypeProvider } from "fastify-type-provider-zod"
import type { Config } from "../config.js"
import type { Reads } from "../db/client.js"
import type { Gate } from "../gate/gate.js"
import type { AllFacts, Rows } from "../ledger/book.js"
import type { Caller, Role } from "../portals/portals.js"
import type { ProblemCode } from "../problems.js"
import type { Metrics } from "./metrics.js"

/** What an operation that records something needs. */
export interface GatedDeps {
  readonly gate: Gate<AllFacts, Rows>
  readonly metrics: Metrics
}

export interface AppDeps {
  readonly config: Config
  readonly reads: Reads
  /** The pool for reads that take long. Absent: `reads`. */
  readonly reports?: Reads
  /** Operators' changes: they may wait for an award, and must keep no read waiting. Absent: `reads`. */
  readonly changes?: Reads
  readonly gate: Gate<AllFacts, Rows>
  /** Absent: nothing is logged. */
  readonly logger?: FastifyBaseLogger
  /** Absent: made for this app. */
  readonly metrics?: Metrics
}

export type App = FastifyInstance<Server, IncomingMessage, ServerResponse, FastifyBaseLogger, ZodTypeProvider>

/** What the log line of a processed submission says, beside the request's own figures. Never a payload's value but the award id. */
export interface Audit {
  readonly event: string
  /** First 12 characters. */
  readonly key: string
  readonly award_id?: string
  readonly [member: string]: string | number | boolean | undefined
}

declare module "fastify" {
  interface FastifyInstance {
    /** Base of absolute URLs, without a trailing slash. */
    publicUrl(): string
    /** True once the process has been asked to stop: new requests are refused, those inside are finished. */
    stopping: boolean
  }
  interface FastifyRequest {
    /** Set on every route that declares roles, before anything else of the request is looked at. */
    caller: Caller
    /** Set by the handler of a submission; merged into the request's log line. */
    audit: Audit | null
    /** Code of the problem that it was answered with. */
    refusal: ProblemCode | null
  }
  interface FastifyContextConfig {
    /** Who may call the route. Every route under /v1 declares it; a route without is open to all. */
    roles?: readonly Role[]
  }
}
