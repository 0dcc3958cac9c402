/**
 * What is counted, and /metrics. A registry for each app, so that two in one process do not share figures. Labels are route templates, methods,
 * statuses, operations and outcomes: never keys, ids or names of portals, which would grow without bound and tell who sends what.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client"
import type { App } from "./deps.js"

/** How a submission ended, as counted. */
export type SubmissionOutcome =
  | "recorded"
  | "replayed"
  | "conflict"
  | "in_progress"
  | "invalid"
  | "refused"
  | "unavailable"

export class Metrics {
  readonly registry = new Registry()
  readonly #requests = new Histogram({
    name: "grantgate_http_request_duration_seconds",
    help: "Time from a request's arrival to the end of its answer",
    labelNames: ["method", "route", "status"],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers: [this.registry],
  })
  readonly #outcomes = new Counter({
    name: "grantgate_submissions_total",
    help: "Requests to the gate by operation and outcome: recorded (accepted), replayed (exact duplicate ignored), conflict (key reused for another request), invalid (failed validation), refused (by a rule), in_progress, unavailable",
    labelNames: ["operation", "outcome"],
    registers: [this.registry],
  })
  readonly #retries = new Counter({
    name: "grantgate_database_retries_total",
    help: "Groups run again after a deadlock, serialization failure, lost connection or outdated facts",
    labelNames: ["reason"],
    registers: [this.registry],
  })
  readonly #groups = new Histogram({
    name: "grantgate_group_members",
    help: "Requests that shared one transaction",
    buckets: [1, 2, 4, 8, 16, 32, 64, 128],
    registers: [this.registry],
  })

  constructor() {
    collectDefaultMetrics({ register: this.registry })
    // Seen as zero from the first scrape on, so that a rate is right from the first event on.
    for (const operation of ["submission", "return", "reversal", "balance-event"]) {
      for (const outcome of ["recorded", "replayed", "conflict", "invalid"] satisfies SubmissionOutcome[])
        this.#outcomes.inc({ operation, outcome }, 0)
    }
  }

  /** One request's end. `route` is the template; what matched none is `unknown`. */
  request(method: string, route: string, status: number, ms: number): void {
    this.#requests.observe({ method, route, status }, ms / 1000)
  }

  outcome(operation: string, outcome: SubmissionOutcome): void {
    this.#outcomes.inc({ operation, outcome })
  }

  databaseRetry(reason: string): void {
    this.#retries.inc({ reason })
  }

  group(members: number): void {
    this.#groups.observe(members)
  }

  /** A figure read when it is scraped. */
  gauge(name: string, help: string, read: () => number | Promise<number>): void {
    new Gauge({
      name: `grantgate_${name}`,
      help,
      registers: [this.registry],
      async collect() {
        this.set(await read())
      },
    })
  }
}

/** GET /metrics, for operators and auditors unless it is public. */
export function metricsRoute(app: App, metrics: Metrics, isPublic: boolean): void {
  app.get(
    "/metrics",
    { schema: { hide: true }, ...(isPublic ? {} : { config: { roles: ["operator", "auditor"] } }) },
    async (_request, reply) => {
      reply.header("content-type", metrics.registry.contentType).header("cache-control", "no-store")
      return metrics.registry.metrics()
    },
  )
}
