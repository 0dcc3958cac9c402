/**
 * One run of autocannon, as a program: every connection is given requests of its own, made before the clock starts. Prints one JSON object.
 * autocannon hands the same list to all connections otherwise, and each key would come once a connection.
 */
import { randomUUID } from "node:crypto"
import { createRequire } from "node:module"
import type { Load, Measured } from "./load.js"

/** What is used of autocannon, which brings no types. */
interface Client {
  setRequests(requests: readonly object[]): void
}
interface Result {
  readonly "2xx": number
  readonly non2xx: number
  readonly errors: number
  readonly timeouts: number
  readonly duration: number
  readonly latency: { readonly p50: number; readonly p99: number; readonly max: number }
}
type Autocannon = (options: object) => Promise<Result>

const autocannon = createRequire(import.meta.url)("autocannon") as Autocannon
const load = JSON.parse(process.argv[2] ?? "") as Load
/** More than a connection can send in the time; should a server ever be so fast, requests come again and the rows tell. */
const perSecondMax = 12_000
const each = load.cycle > 0 ? load.cycle : Math.ceil((perSecondMax * load.seconds) / load.connections)

const lists = Array.from({ length: load.connections }, () => Array.from({ length: each }, makeRequest))
let cpuBefore = process.cpuUsage()
const result = await autocannon({
  url: load.url,
  method: "POST",
  connections: load.connections,
  duration: load.seconds,
  timeout: 10,
  headers: { "content-type": "application/json", authorization: `Bearer ${load.token}` },
  setupClient: (client: Client) => {
    client.setRequests(lists.pop() ?? [])
    if (lists.length === 0) cpuBefore = process.cpuUsage()
  },
})
const cpu = process.cpuUsage(cpuBefore)
const measured: Measured = {
  answers: result["2xx"] + result.non2xx,
  seconds: result.duration,
  refused: result.non2xx,
  broken: result.errors + result.timeouts,
  p50Ms: result.latency.p50,
  p99Ms: result.latency.p99,
  maxMs: result.latency.max,
  generatorCpuSeconds: (cpu.user + cpu.system) / 1e6,
}
process.stdout.write(JSON.stringify(measured))

function makeRequest(_: unknown, at: number): object {
  const award = 1 + Math.floor(Math.random() * load.awards)
  const body = {
    award_id: `A-2025-${String(award).padStart(4, "0")}`,
    submission_timestamp: "2025-07-01T09:00:00Z",
    amount_cents: 1 + Math.floor(Math.random() * 1_000_000),
    currency: "USD",
    invoice_ref: `INV-${String(at).padStart(6, "0")}`,
  }
  return {
    method: "POST",
    path: new URL(load.url).pathname,
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${load.token}`,
      "idempotency-key": randomUUID(),
    },
    body: JSON.stringify(body),
  }
}
