/**
 * Money that comes back, over real HTTP and two servers on one database: returns and reversals under keys of their own, never more than was disbursed,
 * with the totals, the lines and the events agreeing at each step and after any storm.
 */
import fc from "fast-check"
import postgres from "postgres"
import t from "tap"
import { readConfig } from "../../src/config.js"
import { makeLogger } from "../../src/http/request-log.js"
import { serve } from "../../src/serve.js"
import { hasEffects } from "../support/effects.js"
import { getKey, postSubmission, quoted, type Reply, send } from "../support/http.js"
import { rounds } from "../support/rounds.js"
import { startService } from "../support/service.js"

const service = await startService(t, { lanes: 2 })
const second = await serve(readConfig({ PORT: "0", DATABASE_URL: service.databaseUrl }), makeLogger("silent"))
const sql = postgres(service.databaseUrl, { max: 4, onnotice: () => {} })
t.teardown(async () => {
  await sql.end({ timeout: 1 })
  await second.stop()
})
const urls = [service.url, second.url] as const
const urlOf = (i: number): string => urls[i % 2] as string

let made = 0
const newPortal = async () => {
  const name = `portal-${++made}`
  return { name, ...(await service.portal(name)) }
}
const newAward = (): string => `Award-${++made}`
const valid = (change: object = {}) => ({
  award_id: newAward(),
  submission_timestamp: "2025-07-01T09:00:00Z",
  amount_cents: 1000,
  ...change,
})

/** Records a disbursement. @returns its answer */
async function disbursed(token: string, key: string, change: object = {}): Promise<Reply> {
  const reply = await postSubmission(service.url, token, key, valid(change))
  if (reply.status !== 201) throw new Error(reply.text)
  return reply
}

const undo = (
  name: "returns" | "reversal",
  token: string,
  id: string,
  key: string | null,
  json: object,
  url = service.url,
) =>
  send(url, "POST", `/v1/disbursements/${id}/${name}`, {
    token,
    json: { reason: "Paid twice", ...json },
    headers: key === null ? {} : { "idempotency-key": quoted(key) },
  })
const giveBack = (token: string, id: string, key: string, amount: number, url?: string) =>
  undo("returns", token, id, key, { amount_cents: amount }, url)
const reverse = (token: string, id: string, key: string, url?: string) => undo("reversal", token, id, key, {}, url)

const read = async (token: string, id: string): Promise<Reply> =>
  send(service.url, "GET", `/v1/disbursements/${id}`, { token })
const codeOf = (reply: Reply): string | number => reply.body?.code ?? reply.status
const codes = (replies: readonly Reply[]) => replies.map(codeOf).toSorted()
const totalsOf = async (award: string) => {
  const [row] = await sql`SELECT disbursed_cents::float8 AS gross, returned_cents::float8 AS returned
    FROM awards WHERE award_key = ${award.toUpperCase()}`
  return { ...row }
}

t.test("returns add up, at each step, and never pass the disbursement", async (t) => {
  const { id: portal, token } = await newPortal()
  const first = await disbursed(token, "k")
  const { id, award_id: award } = first.body
  const state = async () => {
    const { returned_cents, net_cents } = (await read(token, id)).body
    return { ...(await totalsOf(award)), returned_cents, net_cents }
  }
  t.same(await state(), { gross: 1000, returned: 0, returned_cents: 0, net_cents: 1000 })
  t.equal((await giveBack(token, id, "r1", 200)).status, 201)
  t.same(await state(), { gross: 1000, returned: 200, returned_cents: 200, net_cents: 800 })
  t.equal((await giveBack(token, id, "r2", 300)).status, 201)
  t.same(await state(), { gross: 1000, returned: 500, returned_cents: 500, net_cents: 500 })
  const over = await giveBack(token, id, "r3", 600)
  t.match(over.body, { code: "return-exceeds-disbursement", available_cents: 500, outcome: "not_applied" })
  t.same(await state(), { gross: 1000, returned: 500, returned_cents: 500, net_cents: 500 })
  t.equal((await giveBack(token, id, "r3", 500)).status, 201, "the refused key is free, and the rest may come back")
  t.match((await giveBack(token, id, "r4", 1)).body, { code: "return-exceeds-disbursement", available_cents: 0 })
  t.match((await reverse(token, id, "v")).body, { code: "already-reversed", outcome: "applied", retry: "never" })
  t.same(await state(), { gross: 1000, returned: 1000, returned_cents: 1000, net_cents: 0 })
  await hasEffects(t, sql, portal, 4)
})

t.test("a reversal brings back what is left, once; the original key goes on answering", async (t) => {
  const { id: portal, token } = await newPortal()
  const submission = valid({ submission_id: "S-1" })
  const first = await postSubmission(service.url, token, "k", submission)
  const { id } = first.body
  await giveBack(token, id, "r1", 300)
  const reversal = await reverse(token, id, "v1")
  t.match(reversal.body, { kind: "reversal", amount_cents: -700, disbursement_id: id, submission_id: "S-1" })
  t.match((await reverse(token, id, "v2")).body, { code: "already-reversed" }, "not twice")
  t.match((await giveBack(token, id, "r2", 1)).body, { code: "already-reversed" }, "no return after it")
  const replayedReturn = await giveBack(token, id, "r1", 300)
  t.equal(replayedReturn.status, 200, "what was returned before is still replayed")
  const again = await postSubmission(service.url, token, "k", submission)
  t.same([again.status, again.text], [200, first.text], "and so is the original")
  const numbered = await postSubmission(service.url, token, "k2", submission)
  t.match(numbered.body, { code: "duplicate-submission", disbursement_id: id }, "its number stays taken")
  await hasEffects(t, sql, portal, 3)

  const events =
    await sql`SELECT type, aggregateid, payload FROM outbox WHERE payload->>'portal' = ${`portal-${made - 1}`} ORDER BY seq`
  t.same(
    events.map(({ type }) => type),
    ["disbursement.recorded", "disbursement.returned", "disbursement.reversed"],
    "one event each, in the award's order",
  )
  t.equal(new Set(events.map(({ aggregateid }) => aggregateid)).size, 1)
  t.same(events[2]?.payload.amount_cents, -700)
  const known = Object.entries(reversal.body).filter(([, value]) => value !== null)
  t.same(events[2]?.payload, Object.fromEntries(known), "the event tells the line")
})

t.test("the answer is the line as it is read, and a retry gets its bytes", async (t) => {
  const { name, token } = await newPortal()
  const first = await disbursed(token, "k", {
    submission_timestamp: "2025-07-01T05:00:00.120-04:00",
    assistance_listing_number: "10.500",
    invoice_ref: "INV 1",
    period_from: "2025-04-01",
  })
  const { id, award_id } = first.body
  for (const [key, reply] of [
    ["r", await giveBack(token, id, "r", 1)],
    ["v", await reverse(token, id, "v")],
  ] as const) {
    t.equal(reply.status, 201)
    t.equal(reply.headers.location, `/v1/disbursements/${reply.body.id}`)
    t.equal(reply.headers["idempotency-key-source"], "client")
    const line = await send(service.url, "GET", reply.headers.location ?? "", { token })
    t.equal(line.text, reply.text, `${key}: as read`)
    t.match(line.body, {
      award_id,
      currency: "USD",
      submission_timestamp: "2025-07-01T09:00:00.12Z",
      assistance_listing_number: "10.500",
      invoice_ref: "INV 1",
      period_from: "2025-04-01",
      period_to: null,
      idempotency_key: key,
      disbursement_id: id,
      reason: "Paid twice",
      portal: name,
      recorded_by: name,
    })
    const again = await (key === "r" ? giveBack(token, id, "r", 1, second.url) : reverse(token, id, "v", second.url))
    t.same([again.status, again.text, again.headers.location], [200, reply.text, reply.headers.location])
    t.equal(again.headers["idempotent-replayed"], "true")
    t.match((await getKey(service.url, token, key)).body, {
      state: "completed",
      operation: key === "r" ? "return" : "reversal",
      disbursement_id: reply.body.id,
    })
    const voided = await send(service.url, "DELETE", `/v1/idempotency-keys/${key}`, { token })
    t.match(voided.body, { code: "already-applied", disbursement_id: reply.body.id })
  }
  const { body: list } = await send(service.url, "GET", "/v1/disbursements", { token })
  t.same(
    list.items.map((line: { kind: string; amount_cents: number }) => [line.kind, line.amount_cents]),
    [
      ["disbursement", 1000],
      ["return", -1],
      ["reversal", -999],
    ],
  )
})

t.test("a key stands for one operation on one disbursement; any other use is refused and recorded", async (t) => {
  const { id: portal, name, token } = await newPortal()
  const { id } = (await disbursed(token, "k")).body
  const { id: other } = (await disbursed(token, "k-other")).body
  t.match((await reverse(token, id, "k")).body, { code: "idempotency-key-reused", differs: [""], disbursement_id: id })
  t.match((await giveBack(token, "nowhere", "k", 1)).body, { code: "idempotency-key-reused" }, "before it is not found")
  const { id: line } = (await giveBack(token, id, "r", 5)).body
  const reused = { code: "idempotency-key-reused", disbursement_id: line, outcome: "not_applied", retry: "new-key" }
  t.match((await giveBack(token, id, "r", 6)).body, { ...reused, differs: ["/amount_cents"] })
  t.match((await undo("returns", token, id, "r", { amount_cents: 5, reason: "Other" })).body, {
    ...reused,
    differs: ["/reason"],
  })
  t.match((await giveBack(token, other, "r", 5)).body, { ...reused, differs: [""] }, "on another disbursement")
  t.match((await reverse(token, id, "r")).body, { ...reused, differs: [""] }, "as a reversal")
  t.match(
    (await postSubmission(service.url, token, "r", valid())).body,
    { ...reused, differs: [""] },
    "as a submission",
  )
  await hasEffects(t, sql, portal, 3)
  const { body } = await service.call("GET", `/v1/conflicts?portal=${name}`)
  t.same(
    body.items.map((item: { operation: string; original_operation: string }) => [
      item.operation,
      item.original_operation,
    ]),
    [
      ["reversal", "submission"],
      ["return", "submission"],
      ["return", "return"],
      ["return", "return"],
      ["return", "return"],
      ["reversal", "return"],
      ["submission", "return"],
    ],
  )
})

t.test("what a portal may not undo is not found, and its key stays free", async (t) => {
  const east = await newPortal()
  const west = await newPortal()
  const { id } = (await disbursed(east.token, "k")).body
  const { id: line } = (await giveBack(east.token, id, "r", 1)).body
  for (const [about, token, target] of [
    ["another portal's", west.token, id],
    ["none", east.token, "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90"],
    ["no id at all", east.token, "x".repeat(300)],
    ["a return", east.token, line],
  ] as const) {
    t.match((await giveBack(token, target, "free", 1)).body, { code: "not-found", status: 404 }, about)
    t.match((await reverse(token, target, "free")).body, { code: "not-found" }, about)
  }
  t.match((await giveBack((await service.portal("audit-money", "auditor")).token, id, "free", 1)).body, {
    code: "forbidden",
  })
  t.equal((await giveBack(east.token, id.toUpperCase(), "free", 1)).status, 201)
  t.equal((await giveBack(east.token, id, "free", 1)).status, 200, "an id in other letters is the same request")
  await hasEffects(t, sql, west.id, 0)
  await hasEffects(t, sql, east.id, 3)
})

t.test("what an operator records for a portal is the portal's line under the operator's key", async (t) => {
  const east = await newPortal()
  const west = await newPortal()
  const operator = await service.portal("desk", "operator")
  const { id, award_id: award } = (await disbursed(east.token, "k")).body
  t.equal((await giveBack(east.token, id, "same", 100)).status, 201)
  const reply = await giveBack(operator.token, id, "same", 200)
  t.match(reply.body, { portal: east.name, recorded_by: "desk", amount_cents: -200, idempotency_key: "same" })
  t.equal(reply.status, 201, "the operator's keys are its own")
  t.equal((await read(east.token, reply.body.id)).text, reply.text, "the portal reads it")
  t.equal((await read(west.token, reply.body.id)).status, 404)
  t.match((await giveBack(east.token, reply.body.id, "again", 1)).body, { code: "not-found" })
  t.equal((await reverse(east.token, id, "v")).body.amount_cents, -700, "the portal reverses what is left")
  const kinds = async (token: string, query: string) => {
    const { body } = await send(service.url, "GET", `/v1/disbursements${query}`, { token })
    return body.items.map((item: { kind: string; recorded_by?: string }) => item.recorded_by ?? item.kind)
  }
  const lines = ["disbursement", east.name, "desk", east.name]
  t.same(await kinds(east.token, ""), lines)
  t.same(await kinds(operator.token, `?portal=${east.name}`), lines)
  t.same(await kinds(operator.token, "?portal=desk"), [])
  t.same(await kinds(west.token, ""), [])
  t.same(await totalsOf(award), { gross: 1000, returned: 1000 })
  const { body: key } = await send(service.url, "GET", "/v1/idempotency-keys/same?portal=desk", {
    token: operator.token,
  })
  t.equal(key.disbursement_id, reply.body.id)
})

t.test("a return is read as strictly as a submission", async (t) => {
  const { id: portal, token } = await newPortal()
  const { id } = (await disbursed(token, "k")).body
  const bad = async (name: "returns" | "reversal", body: string, pointer: string | null) => {
    const reply = await send(service.url, "POST", `/v1/disbursements/${id}/${name}`, {
      token,
      body,
      headers: { "content-type": "application/json", "idempotency-key": '"bad"' },
    })
    t.equal(reply.status, 400, body)
    if (pointer !== null) t.match(reply.body.errors, [{ pointer }], body)
  }
  for (const amount of ["0", "-1", "-0", "1.0", "1e2", '"1"', "null", "true", "[1]", "9007199254740992"])
    await bad(
      "returns",
      `{"amount_cents":${amount},"reason":"x"}`,
      amount === "9007199254740992" ? null : "/amount_cents",
    )
  await bad("returns", '{"reason":"x"}', "/amount_cents")
  await bad("returns", '{"amount_cents":1}', "/reason")
  for (const reason of ['""', '" x"', '"a\\nb"', `"${"x".repeat(501)}"`, "1", "null"]) {
    await bad("returns", `{"amount_cents":1,"reason":${reason}}`, "/reason")
    await bad("reversal", `{"reason":${reason}}`, "/reason")
  }
  await bad("reversal", '{"reason":"x","amount_cents":1}', "/amount_cents")
  await bad("reversal", '{"reason":"x","reason":"y"}', null)
  t.match((await undo("returns", token, id, null, { amount_cents: 1 })).body, { code: "idempotency-key-required" })
  t.match((await undo("reversal", token, id, null, {})).body, { code: "idempotency-key-required" })
  const long = "é".repeat(500)
  t.equal(
    (await undo("reversal", token, id, "bad", { reason: long })).body.reason,
    long,
    "the key is free, and 500 will do",
  )
  await hasEffects(t, sql, portal, 2)
})

t.test("money comes back to an award that is closed or has other rules by now", async (t) => {
  const { token } = await newPortal()
  const { id, award_id: award } = (await disbursed(token, "k")).body
  await sql`UPDATE awards SET status = 'closed', rules_version = rules_version + 1, period_start = '2001-01-01', period_end = '2001-12-31'
    WHERE award_key = ${award.toUpperCase()}`
  t.equal((await giveBack(token, id, "r", 400)).status, 201)
  t.equal((await reverse(token, id, "v")).status, 201)
  t.same(await totalsOf(award), { gross: 1000, returned: 1000 })
})

t.test("the largest amount comes back exactly, and an award filled to the brim bears it", async (t) => {
  const { token } = await newPortal()
  const most = Number.MAX_SAFE_INTEGER
  const { id, award_id: award } = (await disbursed(token, "k", { amount_cents: most - 1 })).body
  const replies = await Promise.all([
    giveBack(token, id, "r", most - 2),
    postSubmission(service.url, token, "k2", valid({ award_id: award, amount_cents: 1 })),
  ])
  t.same(codes(replies), [201, 201])
  t.equal((await reverse(token, id, "v")).body.amount_cents, -1)
  t.same(await totalsOf(award), { gross: most, returned: most - 1 })
})

t.test("fifty equal reversals over two servers reverse once", async (t) => {
  const { id: portal, token } = await newPortal()
  const { id } = (await disbursed(token, "k")).body
  const replies = await Promise.all(Array.from({ length: 50 }, (_, i) => reverse(token, id, "v", urlOf(i))))
  t.same(codes(replies), [...Array(49).fill(200), 201])
  t.equal(new Set(replies.map((reply) => reply.text)).size, 1, "equal bytes")
  await hasEffects(t, sql, portal, 2)
})

t.test("reversals under keys of their own end in one 201; everyone else hears that it is reversed", async (t) => {
  const { id: portal, token } = await newPortal()
  const n = rounds(25)
  for (let round = 0; round < n; round++) {
    const { id } = (await disbursed(token, `k-${round}`)).body
    const replies = await Promise.all(
      Array.from({ length: 8 }, (_, i) => reverse(token, id, `v-${round}-${i}`, urlOf(i))),
    )
    t.same(codes(replies), [201, ...Array(7).fill("already-reversed")])
  }
  await hasEffects(t, sql, portal, n * 2)
})

t.test("twenty returns at once that together pass the disbursement never do", async (t) => {
  const { id: portal, token } = await newPortal()
  const n = rounds(25)
  for (let round = 0; round < n; round++) {
    const { id } = (await disbursed(token, `k-${round}`)).body
    const replies = await Promise.all(
      Array.from({ length: 20 }, (_, i) => giveBack(token, id, `r-${round}-${i}`, 90, urlOf(i))),
    )
    t.same(codes(replies), [...Array(11).fill(201), ...Array(9).fill("return-exceeds-disbursement")])
    for (const reply of replies) if (reply.status === 409) t.equal(reply.body.available_cents, 10)
    t.equal((await read(token, id)).body.net_cents, 10)
  }
  await hasEffects(t, sql, portal, n * 12)
})

t.test("a return and a reversal that meet bring back the whole, in one of two ways", async (t) => {
  const { id: portal, token } = await newPortal()
  const n = rounds(100)
  let lines = n
  for (let round = 0; round < n; round++) {
    const { id } = (await disbursed(token, `k-${round}`)).body
    const [part, whole] = await Promise.all([
      giveBack(token, id, `r-${round}`, 400, urlOf(round)),
      reverse(token, id, `v-${round}`, urlOf(round + 1)),
    ])
    t.equal(whole.status, 201)
    t.equal(whole.body.amount_cents, part.status === 201 ? -600 : -1000)
    t.equal(codeOf(part), part.status === 201 ? 201 : "already-reversed")
    lines += part.status === 201 ? 2 : 1
  }
  await hasEffects(t, sql, portal, lines)
})

t.test("a disbursement that another holds is refused in words after two seconds, and the key stays free", async (t) => {
  const { id: portal, token } = await newPortal()
  const { id } = (await disbursed(token, "k")).body
  await sql.begin(async (holder) => {
    await holder`SELECT pg_advisory_xact_lock(hashtextextended(${`d:${id}`}, 0))`
    const busy = await giveBack(token, id, "r", 1)
    t.match(busy.body, { code: "award-busy", detail: /disbursement/, outcome: "not_applied", retry: "same-key" })
    t.equal((await postSubmission(service.url, token, "k2", valid())).status, 201, "others go on")
  })
  t.equal((await giveBack(token, id, "r", 1)).status, 201)
  await hasEffects(t, sql, portal, 3)
})

/** One request of a storm; `on` names an earlier submission, `key` may be taken by others. */
interface Move {
  readonly kind: "submit" | "return" | "reverse"
  readonly key: number
  readonly award: number
  readonly on: number
  readonly amount: number
  readonly server: number
  readonly currency: "USD" | "EUR"
}
const moves = fc.array(
  fc.record<Move>({
    kind: fc.constantFrom("submit", "return", "return", "reverse"),
    key: fc.nat(30),
    award: fc.nat(1),
    on: fc.nat(3),
    amount: fc.integer({ min: 1, max: 120 }),
    server: fc.nat(1),
    currency: fc.constantFrom("USD", "USD", "USD", "EUR"),
  }),
  { minLength: 5, maxLength: 40 },
)

t.test(
  "whatever comes at once, totals are the ledger's sums, each line has its one event, and every answer is true",
  { timeout: 120_000 },
  async (t) => {
    await fc.assert(
      fc.asyncProperty(moves, async (storm) => {
        const portal = await newPortal()
        const awards = [newAward(), newAward()]
        const firsts = await Promise.all(
          [0, 1, 2, 3].map((i) =>
            disbursed(portal.token, `first-${i}`, {
              award_id: awards[i % 2],
              amount_cents: 100 + i,
              submission_id: `S-${i}`,
            }),
          ),
        )
        const replies = await Promise.all(
          storm.map(({ kind, key, award, on, amount, server, currency }) => {
            const id = firsts[on]?.body.id
            if (kind === "return") return giveBack(portal.token, id, `k-${key}`, amount, urlOf(server))
            if (kind === "reverse") return reverse(portal.token, id, `k-${key}`, urlOf(server))
            const body = valid({ award_id: awards[award], amount_cents: amount, currency })
            return postSubmission(urlOf(server), portal.token, `k-${key}`, body)
          }),
        )
        await isTrue(portal.id, firsts, storm, replies)
      }),
      { numRuns: rounds(100), interruptAfterTimeLimit: 60_000 },
    )
    t.pass("every storm")
  },
)

/** Throws unless the books agree with each other and with what was answered. */
async function isTrue(portalId: string, firsts: readonly Reply[], storm: readonly Move[], replies: readonly Reply[]) {
  const lines = await sql<
    LineRow[]
  >`SELECT id, kind, idempotency_key AS key, award_key, disbursement_id, amount_cents::int AS cents,
      currency, (SELECT array_agg(type) FROM outbox WHERE event_key LIKE '%:' || d.id) AS events,
      (SELECT min(seq)::int FROM outbox WHERE event_key LIKE '%:' || d.id) AS seq,
      (SELECT count(*)::int FROM claims JOIN answers USING (resource_id) WHERE resource_id = d.id) AS claims
    FROM disbursements d WHERE portal_id = ${portalId} ORDER BY seq`
  const types = {
    disbursement: "disbursement.recorded",
    return: "disbursement.returned",
    reversal: "disbursement.reversed",
  }
  for (const line of lines) {
    same(line.events, [types[line.kind]], "one event of its kind")
    same(line.claims, 1, "one claim with its answer")
  }

  const wrong =
    await sql`SELECT a.award_key FROM awards a JOIN disbursements d USING (award_key) WHERE d.portal_id = ${portalId}
    GROUP BY a.award_key HAVING a.returned_cents > a.disbursed_cents OR min(d.currency) <> a.currency OR max(d.currency) <> a.currency
      OR a.disbursed_cents <> coalesce(sum(d.amount_cents) FILTER (WHERE d.kind = 'disbursement'), 0)
      OR a.returned_cents <> -coalesce(sum(d.amount_cents) FILTER (WHERE d.kind <> 'disbursement'), 0)`
  same([...wrong], [], "totals are sums, of one currency")

  const left = new Map<string, number>()
  const reversed = new Set<string>()
  for (const line of lines) {
    if (line.disbursement_id === null) left.set(line.id, line.cents)
    else {
      const rest = (left.get(line.disbursement_id) ?? Number.NaN) + line.cents
      same(rest >= 0 && !reversed.has(line.disbursement_id), true, "never more than was left, nothing after a reversal")
      if (line.kind === "reversal") {
        same(rest, 0, "a reversal leaves nothing")
        reversed.add(line.disbursement_id)
      }
      left.set(line.disbursement_id, rest)
    }
  }

  const byKey = new Map(lines.map((line) => [line.key, line]))
  const recorded = new Set<string>()
  replies.forEach((reply, i) => {
    const move = storm[i] as Move
    const line = byKey.get(`k-${move.key}`)
    const target: string = firsts[move.on]?.body.id
    const code = codeOf(reply)
    if (code === 201) {
      same(recorded.has(`k-${move.key}`), false, "one 201 a key")
      recorded.add(`k-${move.key}`)
    }
    if (code === 201 || code === 200) same(reply.body.id, line?.id, "it is recorded")
    else if (code === "idempotency-key-reused") same(reply.body.disbursement_id, line?.id, "the original stands")
    else if (code === "already-reversed") same(left.get(target), 0, "all of it has come back")
    else if (code === "return-exceeds-disbursement")
      same(
        reply.body.available_cents < move.amount && reply.body.available_cents >= (left.get(target) ?? 0),
        true,
        "too much",
      )
    else same([code, move.currency], ["currency-mismatch", "EUR"], "no other refusal")
  })
  same(lines.length, recorded.size + firsts.length, "and nothing else is")
}

interface LineRow {
  readonly id: string
  readonly kind: "disbursement" | "return" | "reversal"
  readonly key: string
  readonly disbursement_id: string | null
  readonly cents: number
  readonly events: string[]
  readonly claims: number
}

function same(found: unknown, wanted: unknown, about: string): void {
  if (JSON.stringify(found) !== JSON.stringify(wanted))
    throw new Error(`${about}: ${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`)
}
