/**
 * Kills servers while clients submit: at random times, and by their own hand at random points of a request's way. Clients do what a careful client
 * does: they keep each key before they send it, and send the same request again until they hear how it ended. Then the books are compared.
 */
import { randomInt, randomUUID } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import postgres from "postgres"
import { postSubmission, send } from "../support/http.js"
import { bootstrapToken, type Server, startServer } from "../support/server.js"

const points = ["before-claim", "after-claim", "after-write", "after-commit", "before-reply"] as const
const awards = 5
/** A server that has not met its end by then is killed from outside. */
const lifeMs = 1_500
/** From the last kill until every client has heard of every key. */
const finishMs = 30_000

interface Kept {
  readonly key: string
  readonly award: string
  readonly amount: number
  /** From the answer; null until there is one. */
  id: string | null
}

export interface Outcome {
  /** What clients kept: every key they ever sent. */
  readonly kept: readonly Kept[]
  /** Requests whose connection died, or that were told to come again. */
  readonly retries: number
  /** Answers that a careful client should never get. */
  readonly wrong: readonly string[]
  /** What does not add up; empty when all does. */
  readonly faults: readonly string[]
}

/**
 * @param teardown ends the servers, whatever happens
 * @param databaseUrl a migrated database, empty
 */
export async function killUnderLoad(
  teardown: (work: () => Promise<unknown>) => unknown,
  databaseUrl: string,
  options: { kills: number; clients: number; onKill?: (how: string) => void },
): Promise<Outcome> {
  let server = await startServer(teardown, databaseUrl)
  const made = await send(server.url, "POST", "/v1/portals", {
    token: bootstrapToken,
    json: { name: "east", role: "portal" },
  })
  const token: string = made.body.token

  const kept: Kept[] = []
  const wrong: string[] = []
  let retries = 0
  let over = false
  let giveUpAt = Number.POSITIVE_INFINITY
  const run = async () => {
    while (!over) {
      const one: Kept = { key: randomUUID(), award: `A-${randomInt(awards)}`, amount: randomInt(1, 1_000), id: null }
      kept.push(one)
      while (one.id === null && Date.now() < giveUpAt) {
        const body = { award_id: one.award, submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: one.amount }
        const reply = await postSubmission(server.url, token, one.key, body, { ms: 10_000 }).catch(() => null)
        if (reply?.status === 201 || reply?.status === 200) one.id = reply.body.id
        else {
          retries += 1
          const mayComeAgain = reply === null || (reply.body?.retry === "same-key" && reply.status !== 500)
          if (!mayComeAgain) wrong.push(`${reply.status} ${reply.text}`)
          await delay(10)
        }
      }
    }
  }
  const clients = Array.from({ length: options.clients }, run)

  for (let kill = 0; kill < options.kills; kill++) {
    const next = await nextServer(teardown, databaseUrl, kill)
    await server.kill()
    server = next.server
    const died = await Promise.race([server.ended.then(() => true), delay(next.lifeMs, false)])
    options.onKill?.(died ? next.how : "at a random time")
  }
  const last = await startServer(teardown, databaseUrl)
  await server.kill()
  server = last
  over = true
  giveUpAt = Date.now() + finishMs
  await Promise.all(clients)
  const faults = await compareBooks(databaseUrl, kept)
  await server.kill("SIGTERM")
  return { kept, retries, wrong, faults }
}

/** By turns the real executable, to be killed at a random time, and one that kills itself at a random pass of some point. */
async function nextServer(
  teardown: (work: () => Promise<unknown>) => unknown,
  databaseUrl: string,
  turn: number,
): Promise<{ server: Server; how: string; lifeMs: number }> {
  if (turn % 2 === 1)
    return { server: await startServer(teardown, databaseUrl), how: "by itself", lifeMs: randomInt(20, lifeMs) }
  const point = points[randomInt(points.length)] ?? points[0]
  const env = { KILL_AT: point, KILL_AFTER: String(randomInt(60)), GRANTGATE_MIGRATE: "false" }
  return { server: await startServer(teardown, databaseUrl, env, ["test/crash/server.ts"]), how: point, lifeMs }
}

/** What clients heard against what is recorded. */
async function compareBooks(databaseUrl: string, kept: readonly Kept[]): Promise<string[]> {
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  try {
    const lines = await sql<{ id: string; key: string; award: string; amount: number }[]>`
      SELECT id, idempotency_key AS key, award_id AS award, amount_cents::int AS amount FROM disbursements`
    const faults: string[] = []
    const byKey = new Map(lines.map((line) => [line.key, line]))
    if (byKey.size !== lines.length) faults.push("a key has two lines")
    if (lines.length !== kept.length) faults.push(`${kept.length} keys were sent, ${lines.length} are recorded`)
    for (const { key, id, award, amount } of kept) {
      const line = byKey.get(key)
      if (id === null) faults.push(`${key} was never answered`)
      else if (line?.id !== id) faults.push(`${key} was acknowledged as ${id} and is recorded as ${line?.id}`)
      else if (line.award !== award || line.amount !== amount) faults.push(`${key} is recorded with other contents`)
    }
    const [counts] = await sql<{ claims: number; answers: number; events: number; named: number }[]>`
      SELECT (SELECT count(*)::int FROM claims) AS claims, (SELECT count(*)::int FROM answers) AS answers,
        (SELECT count(*)::int FROM outbox) AS events,
        (SELECT count(DISTINCT event_key)::int FROM outbox JOIN disbursements d ON event_key = 'disbursement.recorded:' || d.id) AS named`
    for (const [what, n] of Object.entries(counts ?? {}))
      if (n !== lines.length) faults.push(`${n} ${what} for ${lines.length} lines`)
    const totals = await sql<
      { award: string; cents: number }[]
    >`SELECT award_id AS award, disbursed_cents::int AS cents FROM awards`
    for (const { award, cents } of totals) {
      const sum = kept.reduce((all, one) => (one.award === award ? all + one.amount : all), 0)
      if (sum !== cents) faults.push(`${award} totals ${cents} and its lines ${sum}`)
    }
    return faults
  } finally {
    await sql.end({ timeout: 1 })
  }
}
