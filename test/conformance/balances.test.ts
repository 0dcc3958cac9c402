/**
 * Balance events over real HTTP and two servers on one database: exact text from end to end, one effect an event however often and in whatever order
 * it is delivered, one currency an account, and nothing of one portal in another's.
 */
import fc from "fast-check"
import postgres from "postgres"
import t from "tap"
import { readConfig } from "../../src/config.js"
import { sourceEventKey } from "../../src/gate/key.js"
import { makeLogger } from "../../src/http/request-log.js"
import { serve } from "../../src/serve.js"
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
const urlOf = (i: number): string => (i % 2 === 0 ? service.url : second.url)

let made = 0
const newPortal = async (keyRequired = false) => {
  const name = `portal-${++made}`
  return { name, ...(await service.portal(name, "portal", keyRequired)) }
}
const valid = (change: object = {}) => ({
  source: "core-bank",
  source_event_id: `evt-${++made}`,
  account_key: `ACC-${++made}`,
  currency: "USD",
  balance: "1204.50",
  source_event_time: "2025-07-01T17:00:00Z",
  ...change,
})
const tell = (token: string, json: object, headers: Record<string, string> = {}, url = service.url): Promise<Reply> =>
  send(url, "POST", "/v1/balance-events", { token, json, headers })
const balanceOf = (token: string, account: string, query = ""): Promise<Reply> =>
  send(service.url, "GET", `/v1/balances/${encodeURIComponent(account)}${query}`, { token })
const effectsOf = async (portalId: string) => {
  const [row] = await sql`SELECT (SELECT count(*)::int FROM balance_events WHERE portal_id = ${portalId}) AS events,
    (SELECT count(*)::int FROM claims JOIN answers USING (resource_id) WHERE portal_id = ${portalId}) AS claims,
    (SELECT count(*)::int FROM outbox JOIN balance_events b ON event_key = 'balance.recorded:' || b.id WHERE portal_id = ${portalId}) AS outbox`
  return { ...row }
}
const effects = (n: number) => ({ events: n, claims: n, outbox: n })

t.test("a balance comes back exactly as it was told, or is refused; never rounded", async (t) => {
  const { id, token } = await newPortal()
  const exact = [
    ["9999999999999999.99", "9999999999999999.99"],
    ["-9999999999999999.99", "-9999999999999999.99"],
    ["0", "0.00"],
    ["-0", "0.00"],
    ["-0.0", "0.00"],
    ["-0.00", "0.00"],
    ["-0.01", "-0.01"],
    ["10.0", "10.00"],
    ["0.1", "0.10"],
    ["4503599627370497.53", "4503599627370497.53"],
  ] as const
  for (const [balance, answered] of exact) {
    const event = valid({ balance })
    const reply = await tell(token, event)
    t.match({ status: reply.status, body: reply.body }, { status: 201, body: { balance: answered } }, balance)
    t.equal((await balanceOf(token, event.account_key)).body.balance, answered, `${balance} as read`)
    const [row] =
      await sql`SELECT payload->>'balance' AS balance FROM outbox WHERE event_key = ${`balance.recorded:${reply.body.id}`}`
    t.equal(row?.balance, answered, `${balance} as announced`)
  }
  const refused = [
    '"10000000000000000.00"',
    '"1.005"',
    "1.5",
    "1",
    "null",
    '""',
    '"+1"',
    '"01"',
    '".5"',
    '"1."',
    '"1,00"',
    '"1e3"',
    '" 1"',
    '"1\\n"',
    '"NaN"',
    '"١"',
  ]
  for (const balance of refused) {
    const body = JSON.stringify(valid({ balance: "@" })).replace('"@"', balance)
    const reply = await send(service.url, "POST", "/v1/balance-events", {
      token,
      body,
      headers: { "content-type": "application/json" },
    })
    t.match([reply.status, reply.body.errors], [400, [{ pointer: "/balance" }]], balance)
  }
  t.same(await effectsOf(id), effects(exact.length))
})

t.test("an event is one event however often it is told, in whatever spelling, under whatever header", async (t) => {
  const { id, token } = await newPortal(true)
  const event = valid({ balance: "10" })
  const first = await tell(token, event)
  const key = sourceEventKey(event.source, event.source_event_id)
  t.equal(first.status, 201, "a portal that must send keys need not send one here")
  t.match(first.body, { ...event, balance: "10.00", idempotency_key: key, status: "recorded" })
  t.equal(first.headers["idempotency-key"], quoted(key))
  t.equal(first.headers["idempotency-key-source"], "derived")
  t.equal(first.headers.location, `/v1/balances/${event.account_key}`)
  const { source, ...rest } = event
  const retries = [
    tell(token, { ...event, balance: "10.0" }, {}, second.url),
    tell(token, { ...rest, source }, { "idempotency-key": '"some-key"' }),
    tell(token, { ...event, source_event_time: "2025-07-01T13:00:00.000-04:00" }, { "idempotency-key": '"not, valid' }),
  ]
  for (const reply of await Promise.all(retries)) {
    t.same([reply.status, reply.text], [200, first.text], "the first answer, byte for byte")
    t.equal(reply.headers["idempotency-key-source"], "derived")
    t.equal(reply.headers["idempotent-replayed"], "true")
  }
  t.equal((await getKey(service.url, token, "some-key")).status, 404, "the header's key was not used")
  t.match((await getKey(service.url, token, key)).body, {
    state: "completed",
    operation: "balance-event",
    disbursement_id: null,
  })
  const voided = await send(service.url, "DELETE", `/v1/idempotency-keys/${key}`, { token })
  t.match(voided.body, { code: "already-applied", disbursement_id: undefined })
  t.same(await effectsOf(id), effects(1))
})

t.test("an event told otherwise is refused and shown, and the first is kept", async (t) => {
  const { id, name, token } = await newPortal()
  const event = valid()
  t.equal((await tell(token, event)).status, 201)
  for (const [change, differs] of [
    [{ balance: "1204.51" }, ["/balance"]],
    [{ source_event_time: "2025-07-01T17:00:01Z" }, ["/source_event_time"]],
    [{ account_key: "other", currency: "EUR" }, ["/account_key", "/currency"]],
    [{ currency: "KWD" }, ["/currency"]],
  ] as const) {
    const reply = await tell(token, { ...event, ...change })
    t.match(reply.body, { code: "idempotency-key-reused", differs, outcome: "not_applied", disbursement_id: undefined })
  }
  const key = sourceEventKey(event.source, event.source_event_id)
  const submission = { award_id: "A-1", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 1 }
  t.match((await postSubmission(service.url, token, key, submission)).body, {
    code: "idempotency-key-reused",
    differs: [""],
    disbursement_id: undefined,
  })
  t.equal((await balanceOf(token, event.account_key)).body.balance, "1204.50")
  t.equal((await balanceOf(token, "other")).status, 404)
  t.same(await effectsOf(id), effects(1))
  const { body } = await service.call("GET", `/v1/conflicts?portal=${name}`)
  t.equal(body.items.length, 5)
  t.match(body.items[0], {
    idempotency_key: key,
    operation: "balance-event",
    original_operation: "balance-event",
    differs: ["/balance"],
    disbursement_id: null,
  })
})

t.test(
  "the latest by its own time is the balance; of a tie the last that arrived; late events move nothing",
  async (t) => {
    const { id, token } = await newPortal()
    const account_key = "OPS/01 & more %2F ?#é"
    const at = (time: string, balance: string) =>
      tell(token, valid({ account_key, balance, source_event_time: `2025-07-0${time}Z` }))
    const current = async () => (await balanceOf(token, account_key)).body
    t.equal((await at("2T00:00:00", "2")).headers.location, `/v1/balances/${encodeURIComponent(account_key)}`)
    t.match(await current(), { account_key, balance: "2.00", source_event_time: "2025-07-02T00:00:00Z" })
    await at("1T00:00:00", "1")
    t.equal((await current()).balance, "2.00", "late")
    await at("2T00:00:00", "22")
    t.equal((await current()).balance, "22.00", "tied")
    await at("2T00:00:00.000001", "3")
    t.match(
      await current(),
      { balance: "3.00", source_event_time: "2025-07-02T00:00:00.000001Z" },
      "to the microsecond",
    )
    await at("2T00:00:00", "4")
    t.equal((await current()).balance, "3.00")
    t.same(Object.keys(await current()), [
      "account_key",
      "currency",
      "balance",
      "source",
      "source_event_id",
      "source_event_time",
    ])
    t.same(await effectsOf(id), effects(5), "each is kept")
    const rows = await sql`SELECT payload->>'balance' AS balance, aggregatetype, aggregateid FROM outbox
    WHERE aggregateid = ${`${id}/${account_key}`} ORDER BY seq`
    t.same(
      rows.map(({ balance }) => balance),
      ["2.00", "1.00", "22.00", "3.00", "4.00"],
      "announced in the order of their arrival",
    )
    t.equal(rows[0]?.aggregatetype, "account")
  },
)

t.test("an account keeps its first currency; what could never be told is refused after the look-up", async (t) => {
  const { id, token } = await newPortal()
  const event = valid({ currency: "JPY", balance: "500" })
  t.equal((await tell(token, event)).status, 201)
  const other = valid({ account_key: event.account_key })
  t.match((await tell(token, other)).body, { code: "currency-mismatch", outcome: "not_applied", retry: "after-fixing" })
  t.equal((await tell(token, { ...other, currency: "JPY" })).status, 201, "the event is free to be corrected")
  for (const currency of ["KWD", "CLF"]) {
    const reply = await tell(token, valid({ currency }))
    t.match(reply.body, { code: "invalid-request", errors: [{ pointer: "/currency" }] }, currency)
  }
  t.match((await tell(token, valid({ currency: "ZZZ" }))).body, { code: "currency-unknown" })
  const ahead = await tell(token, valid({ source_event_time: "2099-01-01T00:00:00Z" }))
  t.match(ahead.body, { code: "submission-timestamp-in-future", detail: /source_event_time/ })
  for (const [change, pointer] of [
    [{ currency: "usd" }, "/currency"],
    [{ source: "" }, "/source"],
    [{ source_event_id: " x" }, "/source_event_id"],
    [{ account_key: "x".repeat(129) }, "/account_key"],
    [{ source_event_time: "2025-07-01" }, "/source_event_time"],
    [{ extra: 1 }, "/extra"],
  ] as const) {
    const reply = await tell(token, valid(change))
    t.match(reply.body, { code: "invalid-request", errors: [{ pointer }] }, pointer)
  }
  const long = "é".repeat(128)
  t.equal((await tell(token, valid({ account_key: long, source: long, source_event_id: long }))).status, 201)
  t.equal((await balanceOf(token, long)).body.account_key, long, "the longest names work in a URL")
  t.same(await effectsOf(id), effects(3))
})

t.test("accounts and events are the portal's own", async (t) => {
  const [east, west] = [await newPortal(), await newPortal()]
  const event = valid()
  t.equal((await tell(east.token, event)).status, 201)
  t.equal((await balanceOf(west.token, event.account_key)).status, 404)
  const other = await tell(west.token, { ...event, currency: "EUR", balance: "7" })
  t.equal(other.status, 201, "the same names in another portal are others")
  t.equal((await balanceOf(east.token, event.account_key)).body.balance, "1204.50")
  const auditor = await service.portal("audit-balances", "auditor")
  t.equal((await balanceOf(auditor.token, event.account_key, `?portal=${west.name}`)).body.balance, "7.00")
  t.match((await balanceOf(auditor.token, event.account_key)).body, {
    code: "invalid-request",
    errors: [{ pointer: "/portal" }],
  })
  t.match((await balanceOf(auditor.token, event.account_key, "?portal=nobody")).body, { code: "not-found" })
  t.match((await balanceOf(west.token, event.account_key, `?portal=${east.name}`)).body, { code: "not-found" })
  t.match((await balanceOf(west.token, "\0")).body, { code: "invalid-request" })
  t.match((await tell(auditor.token, event)).body, { code: "forbidden" })
  t.match((await service.call("POST", "/v1/balance-events", { json: event })).body, { code: "forbidden" })
})

t.test("two currencies that meet on a new account: one opens it, the other is refused, over two servers", async (t) => {
  const { id, token } = await newPortal()
  const n = rounds(50)
  for (let round = 0; round < n; round++) {
    const account_key = `new-${round}`
    const replies = await Promise.all(
      ["USD", "EUR"].map((currency, i) => tell(token, valid({ account_key, currency }), {}, urlOf(round + i))),
    )
    t.same(replies.map((reply) => reply.body.code ?? reply.status).toSorted(), [201, "currency-mismatch"])
  }
  t.same(await effectsOf(id), effects(n))
})

t.test("fifty deliveries of one event at once are one event", async (t) => {
  const { id, token } = await newPortal()
  const event = valid()
  const replies = await Promise.all(Array.from({ length: 50 }, (_, i) => tell(token, event, {}, urlOf(i))))
  t.same(replies.map((reply) => reply.status).toSorted(), [...Array(49).fill(200), 201])
  t.equal(new Set(replies.map((reply) => reply.text)).size, 1)
  t.same(await effectsOf(id), effects(1))
})

t.test("an account that another holds is refused in words after two seconds; others go on", async (t) => {
  const { id, token } = await newPortal()
  const event = valid()
  await sql.begin(async (holder) => {
    await holder`SELECT pg_advisory_xact_lock(hashtextextended(${`b:${id}:${event.account_key}`}, 0))`
    const [busy, free] = await Promise.all([tell(token, event), tell(token, valid())])
    t.match(busy.body, { code: "award-busy", detail: /account/, outcome: "not_applied" })
    t.equal(free.status, 201)
  })
  t.equal((await tell(token, event)).status, 201)
})

interface Told {
  readonly event: number
  readonly day: number
  readonly cents: number
  readonly server: number
}
const deliveries = fc.array(
  fc.record<Told>({
    event: fc.nat(15),
    day: fc.integer({ min: 1, max: 3 }),
    cents: fc.integer({ min: -99999, max: 99999 }),
    server: fc.nat(1),
  }),
  { minLength: 2, maxLength: 40 },
)

t.test(
  "whatever is told at once, each event is kept once and announced once, and the balance is the latest",
  { timeout: 120_000 },
  async (t) => {
    await fc.assert(
      fc.asyncProperty(deliveries, async (told) => {
        const { id, token } = await newPortal()
        const replies = await Promise.all(
          told.map(({ event, day, cents, server }) => {
            const sign = cents < 0 ? "-" : ""
            const text = String(Math.abs(cents)).padStart(3, "0")
            const balance = `${sign}${text.slice(0, -2)}.${text.slice(-2)}`
            const change = {
              source_event_id: `e-${event}`,
              account_key: "A",
              balance,
              source_event_time: `2025-07-0${day}T00:00:00Z`,
            }
            return tell(token, valid(change), {}, urlOf(server))
          }),
        )
        const events = new Set(told.map(({ event }) => event)).size
        const statuses = replies.map((reply) => reply.status)
        const kept = replies.filter((reply) => reply.status === 201)
        if (kept.length !== events || statuses.some((status) => ![200, 201, 422].includes(status)))
          throw new Error(`statuses ${statuses}`)
        if (JSON.stringify(await effectsOf(id)) !== JSON.stringify(effects(events))) throw new Error("effects")
        const [last] =
          await sql`SELECT b.balance, b.source_event_id FROM balance_events b JOIN outbox o ON event_key = 'balance.recorded:' || b.id
          WHERE portal_id = ${id} ORDER BY source_event_time DESC, o.seq DESC LIMIT 1`
        const { body } = await balanceOf(token, "A")
        if (body.balance !== last?.balance || body.source_event_id !== last?.source_event_id) throw new Error("balance")
      }),
      { numRuns: rounds(50), interruptAfterTimeLimit: 60_000 },
    )
    t.pass("every order")
  },
)
