/**
 * Requests that meet: on one key, one award, one submission_id, in one process and in two. Whoever wins, there is one effect, the others learn
 * of it truthfully, nobody sees a 5xx that is not a promise to come again, and nothing stays locked.
 */
import postgres from "postgres"
import t from "tap"
import { readConfig } from "../../src/config.js"
import { makeLogger } from "../../src/http/request-log.js"
import { type Running, serve } from "../../src/serve.js"
import { hasEffects } from "../support/effects.js"
import { getKey, postSubmission, type Reply, send } from "../support/http.js"
import { rounds } from "../support/rounds.js"
import { startService } from "../support/service.js"

/** Small pools: what waits must not wait inside. */
const service = await startService(t, { lanes: 2 })
const second: Running = await serve(readConfig({ PORT: "0", DATABASE_URL: service.databaseUrl }), makeLogger("silent"))
const sql = postgres(service.databaseUrl, { max: 4, onnotice: () => {} })
t.teardown(async () => {
  await sql.end({ timeout: 1 })
  await second.stop()
})
const bothUrls = [service.url, second.url] as const

let made = 0
const newPortal = () => service.portal(`portal-${++made}`)
const newAward = (): string => `AWARD-${++made}`
const valid = (award: string = newAward(), amount = 125_000) => ({
  award_id: award,
  submission_timestamp: "2025-07-01T09:00:00Z",
  amount_cents: amount,
})
const statuses = (replies: readonly Reply[]): number[] => replies.map((reply) => reply.status).toSorted()
const codes = (replies: readonly Reply[]): string[] =>
  replies.map((reply) => reply.body.code ?? reply.status).toSorted()

/** Opens the award and holds its row from a session of its own. @returns lets go */
async function holdAward(token: string, award: string): Promise<() => Promise<void>> {
  const opened = await postSubmission(service.url, token, `opens-${award}`, valid(award, 1))
  if (opened.status !== 201) throw new Error(opened.text)
  return hold((holder) => holder`SELECT 1 FROM awards WHERE award_key = ${award} FOR UPDATE`)
}

async function hold(take: (holder: postgres.TransactionSql) => Promise<unknown>): Promise<() => Promise<void>> {
  let letGo!: () => void
  const released = new Promise<void>((resolve) => {
    letGo = resolve
  })
  let done!: Promise<unknown>
  await new Promise<void>((resolve, reject) => {
    done = sql.begin(async (holder) => {
      await take(holder)
      resolve()
      await released
    })
    done.catch(reject)
  })
  return async () => {
    letGo()
    await done
  }
}

/** Servers' sessions that sit in a transaction without working. */
const idleSessions = async (): Promise<number> => {
  const [row] = await sql`SELECT count(*)::int AS n FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'grantgate' AND state LIKE 'idle in transaction%'
      AND state_change < now() - interval '500 ms'`
  return row?.n
}

t.test("of two requests that differ under one key one is recorded and the other refused, for ever", async (t) => {
  const { id, token } = await newPortal()
  const award = newAward()
  const n = rounds(100)
  const bodies = [valid(award, 1), valid(award, 1_000_000)]
  let small = 0
  for (let round = 0; round < n; round++) {
    const key = `k-${round}`
    const both = () =>
      Promise.all(bodies.map((body, i) => postSubmission(bothUrls[round % 2 === 0 ? 0 : i] ?? "", token, key, body)))
    const first = await both()
    t.same(statuses(first), [201, 422])
    const won = first.findIndex((reply) => reply.status === 201)
    t.match(first[1 - won]?.body, { code: "idempotency-key-reused", disbursement_id: first[won]?.body.id })
    const again = await both()
    t.equal(again[won]?.text, first[won]?.text, "the winner is replayed")
    t.equal(again[1 - won]?.status, 422, "the loser stays refused")
    if (won === 0) small += 1
  }
  await hasEffects(t, sql, id, n)
  const [total] = await sql`SELECT disbursed_cents::int AS cents FROM awards WHERE award_key = ${award}`
  t.equal(total?.cents, small + (n - small) * 1_000_000, "no refused amount is in the total")
})

t.test("a retry at the first byte of the answer is a replay, always, on either server", async (t) => {
  const { id, token } = await newPortal()
  const award = newAward()
  const n = rounds(500)
  const wrong: string[] = []
  for (let round = 0; round < n; round++) {
    const again: Promise<Reply>[] = []
    const body = valid(award, 1)
    const first = await postSubmission(service.url, token, `k-${round}`, body, {
      onFirstByte: () => again.push(postSubmission(bothUrls[round % 2] ?? "", token, `k-${round}`, body)),
    })
    const [reply] = await Promise.all(again)
    if (first.status !== 201 || reply?.status !== 200 || reply.text !== first.text)
      wrong.push(`${first.status} ${reply?.status} ${reply?.text}`)
  }
  t.same(wrong, [], `${n} rounds`)
  await hasEffects(t, sql, id, n)
})

t.test("keys, awards and numbers asked for in opposite orders never deadlock a caller", async (t) => {
  const { id, token } = await newPortal()
  const awards = Array.from({ length: 4 }, newAward)
  const n = rounds(200)
  const wrong: number[] = []
  for (let round = 0; round < n; round++) {
    const asks = awards.map((award, i) => ({
      key: `k-${round}-${i}`,
      body: { ...valid(award, 1), submission_id: `S-${round}-${i}` },
    }))
    const replies = await Promise.all([
      ...asks.map(({ key, body }) => postSubmission(service.url, token, key, body)),
      ...asks.toReversed().map(({ key, body }) => postSubmission(second.url, token, key, body)),
    ])
    wrong.push(...statuses(replies).filter((status) => status !== 200 && status !== 201))
    if (replies.filter((reply) => reply.status === 201).length !== asks.length) wrong.push(round)
  }
  t.same(wrong, [], `${n} rounds`)
  await hasEffects(t, sql, id, n * awards.length)
})

t.test(
  "twenty keys on an award that is held for a second all finish, and no session idles in a transaction",
  async (t) => {
    const { id, token } = await newPortal()
    const award = newAward()
    const letGo = await holdAward(token, award)
    const submitAll = (names: string, to: (i: number) => string) =>
      Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          postSubmission(bothUrls[i % 2] ?? "", token, `${names}-${i}`, valid(to(i), i + 1)),
        ),
      )
    const waiting = submitAll("k", () => award)
    const strangers = submitAll("free", newAward)
    // The second is the subject: the award is held for that long, and no longer.
    await sql`SELECT pg_sleep(1)`
    const idle = await idleSessions()
    await letGo()
    t.equal(idle, 0, "nothing idles in a transaction while it is held")
    t.same(statuses(await strangers), Array(20).fill(201), "strangers")
    t.same(statuses(await waiting), Array(20).fill(201), "those who waited")
    t.equal(await idleSessions(), 0)
    await hasEffects(t, sql, id, 41)
  },
)

t.test("what is held for longer than two seconds is refused in words, and its key stays free", async (t) => {
  const { id, token } = await newPortal()
  const award = newAward()
  const opened = { ...valid(award, 1) }
  const free = await Promise.all([
    holdAward(token, award),
    hold((holder) => holder`SELECT pg_advisory_xact_lock(hashtextextended(${`k:${id}:held`}, 0))`),
    hold((holder) => holder`SELECT pg_advisory_xact_lock(hashtextextended(${`s:${id}:S-1`}, 0))`),
  ])
  const began = performance.now()
  const ask = (key: string, body: object) => Promise.all(bothUrls.map((url) => postSubmission(url, token, key, body)))
  // One process: with two, the other's try with the same key may be what the last look finds in the way.
  const askOne = async (key: string, body: object) => [await postSubmission(service.url, token, key, body)]
  const [busy, inProgress, numbered, replayed, state] = await Promise.all([
    askOne("slow", valid(award, 2)),
    ask("held", valid()),
    askOne("number", { ...valid(), submission_id: "S-1" }),
    ask(`opens-${award}`, opened),
    getKey(service.url, token, "held"),
  ])
  const ms = performance.now() - began
  t.ok(ms > 1_900 && ms < 4_500, `after two seconds (${Math.round(ms)} ms)`)
  for (const reply of busy)
    t.match(reply.body, { code: "award-busy", status: 503, outcome: "not_applied", retry: "same-key" })
  for (const reply of inProgress)
    t.match(reply.body, { code: "request-in-progress", status: 409, outcome: "unknown", retry: "same-key" })
  for (const reply of numbered) t.match(reply.body, { code: "award-busy", status: 503 })
  for (const reply of [...busy, ...inProgress, ...numbered]) t.equal(reply.headers["retry-after"], "1")
  t.same(statuses(replayed), [200, 200], "replays do not wait")
  t.match(state.body, { key: "held", state: "in_progress", operation: null, disbursement_id: null })

  await Promise.all(free.map((letGo) => letGo()))
  for (const [key, body] of [
    ["slow", valid(award, 2)],
    ["held", valid()],
    ["number", { ...valid(), submission_id: "S-1" }],
  ] as const)
    t.equal((await postSubmission(service.url, token, key, body)).status, 201, `${key} is free`)
  await hasEffects(t, sql, id, 4)
})

t.test("a request that finds its key held waits, and gives the first one's answer", async (t) => {
  const { id, token } = await newPortal()
  const award = newAward()
  const letGo = await holdAward(token, award)
  const body = valid(award, 5)
  const replies = Promise.all(
    Array.from({ length: 6 }, (_, i) => postSubmission(bothUrls[i % 2] ?? "", token, "k", body)),
  )
  const voiding = send(service.url, "DELETE", "/v1/idempotency-keys/k", { token })
  await sql`SELECT pg_sleep(0.3)`
  await letGo()
  const settled = await replies
  t.same(statuses(settled), [200, 200, 200, 200, 200, 201])
  t.equal(new Set(settled.map((reply) => reply.text)).size, 1, "equal bytes")
  t.match((await voiding).body, { code: "already-applied" }, "a void waits like a twin")
  await hasEffects(t, sql, id, 2)
})

t.test(
  "a retry is answered from memory for as long as no connection was lost; then the database is asked",
  async (t) => {
    const { id, token } = await newPortal()
    const body = valid()
    const first = await postSubmission(service.url, token, "k", body)
    t.equal(first.status, 201)
    // As after a failover to a standby that had not heard of it.
    await sql.begin(async (tx) => {
      await tx`SET LOCAL session_replication_role = replica`
      await tx`DELETE FROM answers USING claims WHERE claims.resource_id = answers.resource_id AND portal_id = ${id}`
      await tx`DELETE FROM outbox WHERE payload->>'id' IN (SELECT resource_id::text FROM claims WHERE portal_id = ${id})`
      await tx`DELETE FROM claims WHERE portal_id = ${id}`
      await tx`DELETE FROM disbursements WHERE portal_id = ${id}`
      await tx`UPDATE awards SET disbursed_cents = 0 WHERE award_key = ${body.award_id}`
    })
    const remembered = await postSubmission(service.url, token, "k", body)
    t.same([remembered.status, remembered.text], [200, first.text], "nothing says that the answer is not sure")
    await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'grantgate' AND datname = current_database()`
    let asked = remembered
    const untilMs = performance.now() + 10_000
    while (asked.status !== 201 && performance.now() < untilMs)
      asked = await postSubmission(service.url, token, "k", body)
    t.equal(asked.status, 201, "recorded, since the database does not know it")
    await hasEffects(t, sql, id, 1)
  },
)

t.test("two submissions that together pass what an award can hold end in one 201 and one refusal", async (t) => {
  const { id, token } = await newPortal()
  const left = 100
  const n = rounds(100)
  for (let round = 0; round < n; round++) {
    const award = newAward()
    t.equal(
      (await postSubmission(service.url, token, `opens-${award}`, valid(award, Number.MAX_SAFE_INTEGER - left))).status,
      201,
    )
    const replies = await Promise.all(
      ["a", "b"].map((name, i) => postSubmission(bothUrls[i] ?? "", token, `${name}-${award}`, valid(award, 60))),
    )
    t.same(codes(replies), [201, "award-funds-exceeded"])
    const refused = replies.find((reply) => reply.status === 409)
    t.match(refused?.body, { available_cents: 40, outcome: "not_applied", retry: "after-fixing" })
  }
  await hasEffects(t, sql, id, n * 2)
})

t.test("one number under two keys at once is recorded once, and the refused key stays free", async (t) => {
  const { id, token } = await newPortal()
  const n = rounds(50)
  for (let round = 0; round < n; round++) {
    const body = { ...valid(), submission_id: `S-${round}` }
    const replies = await Promise.all(
      ["a", "b", "c"].map((name, i) => postSubmission(bothUrls[i % 2] ?? "", token, `${name}-${round}`, body)),
    )
    t.same(statuses(replies), [201, 409, 409])
    const won = replies.find((reply) => reply.status === 201)?.body.id
    for (const reply of replies)
      if (reply.status === 409) t.match(reply.body, { code: "duplicate-submission", disbursement_id: won })
  }
  await hasEffects(t, sql, id, n)
})

t.test("a void and its request that meet end in one of two ways, and both sides know which", async (t) => {
  const { id, token } = await newPortal()
  const n = rounds(100)
  let recorded = 0
  for (let round = 0; round < n; round++) {
    const key = `k-${round}`
    const [posted, voided] = await Promise.all([
      postSubmission(service.url, token, key, valid()),
      send(second.url, "DELETE", `/v1/idempotency-keys/${key}`, { token }),
    ])
    if (posted.status === 201) {
      recorded += 1
      t.match(voided.body, { code: "already-applied", disbursement_id: posted.body.id })
    } else {
      t.match(posted.body, { code: "idempotency-key-voided", outcome: "not_applied" })
      t.match(voided.body, { state: "voided" })
    }
  }
  await hasEffects(t, sql, id, recorded)
})
