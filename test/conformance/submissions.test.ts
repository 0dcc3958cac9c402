/**
 * What a portal may rely on when it submits, over real HTTP: each row of the answers, the order of the checks, keys given and derived, what is
 * stored and replayed, whose key it is. One service for all tests; each test has portals of its own.
 */
import fc from "fast-check"
import postgres from "postgres"
import t, { type Test } from "tap"
import { uuidv7 } from "uuidv7"
import { readConfig } from "../../src/config.js"
import { canonicalRequest, fingerprint } from "../../src/gate/fingerprint.js"
import { deriveKey } from "../../src/gate/key.js"
import { makeLogger } from "../../src/http/request-log.js"
import { canonicalSubmission, normaliseSubmission, parseSubmission } from "../../src/ledger/submission.js"
import { problems } from "../../src/problems.js"
import { serve } from "../../src/serve.js"
import { effectsOf, hasEffects } from "../support/effects.js"
import { abortAfter, getKey, postSubmission, quoted, type Reply, type SendOptions, send } from "../support/http.js"
import { rounds } from "../support/rounds.js"
import { sendRaw, startService } from "../support/service.js"

const service = await startService(t)
const sql = postgres(service.databaseUrl, { max: 2, onnotice: () => {} })
t.teardown(() => sql.end({ timeout: 1 }))

interface Portal {
  readonly id: string
  readonly name: string
  readonly token: string
}

let made = 0
const newPortal = async (keyRequired = false): Promise<Portal> => {
  const name = `portal-${++made}`
  return { name, ...(await service.portal(name, "portal", keyRequired)) }
}
const newAward = (): string => `Award-${++made}`

/** A valid submission on an award of its own. */
const valid = <T extends object>(change: T = {} as T) => ({
  award_id: newAward(),
  submission_timestamp: "2025-07-01T09:00:00Z",
  amount_cents: 125_000,
  ...change,
})

const post = (portal: Portal, key: string | null, json: unknown, options?: SendOptions) =>
  postSubmission(service.url, portal.token, key, json, options)

/** Asserts a whole problem with this code. */
function isProblem(t: Test, reply: Reply, code: keyof typeof problems, about: string = code): void {
  const kind = problems[code]
  t.equal(reply.status, kind.status, `${about}: status`)
  t.equal(reply.headers["content-type"], "application/problem+json", `${about}: media type`)
  t.match(reply.body, { code, status: kind.status, title: kind.title, retry: kind.retry, detail: /\S/ }, about)
  t.equal(reply.body?.type, `${service.url}/problems/${code}`, `${about}: type`)
  t.match(reply.body?.outcome, /^(not_applied|applied|unknown)$/, `${about}: outcome`)
  t.equal(reply.body?.instance, reply.headers["request-id"], `${about}: instance`)
  t.equal(reply.headers["retry-after"], "retryAfter" in kind ? "1" : undefined, `${about}: Retry-After`)
}

/** Asserts that `reply` is the first answer again. */
function isReplay(t: Test, reply: Reply, first: Reply, about = "a replay"): void {
  t.equal(reply.status, 200, `${about}: status`)
  t.ok(reply.bytes.equals(first.bytes), `${about}: byte for byte`)
  for (const name of ["location", "content-type", "idempotency-key", "idempotency-key-source"])
    t.equal(reply.headers[name], first.headers[name], `${about}: ${name}`)
  t.equal(reply.headers["idempotent-replayed"], "true", about)
  t.equal(reply.headers["idempotency-original-status"], "201", about)
}

const fingerprintOf = (body: unknown): string =>
  fingerprint(canonicalRequest("submission", {}, canonicalSubmission(normaliseSubmission(parseSubmission(body)))))

t.test("a first acceptance is 201 with where it is, the key used and all that was recorded", async (t) => {
  const portal = await newPortal()
  const body = valid({ submission_id: "S-1", submission_timestamp: "2025-07-01T05:00:00.5000-04:00" })
  const reply = await post(portal, "a key", body)
  t.equal(reply.status, 201)
  t.match(reply.headers, {
    location: `/v1/disbursements/${reply.body.id}`,
    "content-type": "application/json",
    "idempotency-key": '"a key"',
    "idempotency-key-source": "client",
    "request-id": /./,
    date: /GMT$/,
  })
  const { id, recorded_at, ...rest } = reply.body
  t.match(id, /^[0-9a-f-]{36}$/)
  t.match(recorded_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z$/)
  t.same(rest, {
    award_id: body.award_id,
    amount_cents: 125_000,
    currency: "USD",
    submission_timestamp: "2025-07-01T09:00:00.5Z",
    submission_id: "S-1",
    idempotency_key: "a key",
    status: "recorded",
    warnings: [],
  })
  const line = await send(service.url, "GET", reply.headers.location ?? "", { token: portal.token })
  t.match(line.body, { id, kind: "disbursement", amount_cents: 125_000, idempotency_key: "a key" })
  const plain = await post(portal, "plain", valid())
  t.notOk("submission_id" in plain.body || "award" in plain.body, "what was not sent or has no ceiling is not there")
  await hasEffects(t, sql, portal.id, 2)
})

t.test(
  "a replay is the first answer byte for byte, with its own date and id, ten times and after a restart",
  async (t) => {
    const portal = await newPortal()
    const body = valid({ details: { z: 1, a: "ä€😀", "": [] }, recipient_uei: "ABCDEFGHJK12" })
    const first = await post(portal, "k", body)
    t.equal(first.status, 201)
    t.equal(first.body.warnings.length, 1, "its warnings are part of it")
    const ids = new Set([first.headers["request-id"]])
    for (let i = 0; i < 9; i++) {
      const reply = await post(portal, "k", body)
      isReplay(t, reply, first, `replay ${i + 1}`)
      ids.add(reply.headers["request-id"])
      const names = Object.keys(reply.headers).filter((name) => /cookie|rate-?limit/.test(name))
      t.same(names, [], "no cookies, no rate limit")
      t.match(reply.headers.date, /GMT$/)
    }
    t.equal(ids.size, 10, "each has a request id of its own")

    const env = { PORT: "0", DATABASE_URL: service.databaseUrl }
    const again = await serve(readConfig(env), makeLogger("silent"))
    isReplay(t, await postSubmission(again.url, portal.token, "k", body), first, "after a restart")
    await again.stop()
    await hasEffects(t, sql, portal.id, 1)
  },
)

t.test(
  "a key that names another request is refused, told where it differs, recorded; the original stands",
  async (t) => {
    const portal = await newPortal()
    const body = valid({
      award_id: `award-${++made}`,
      submission_id: "S-1",
      invoice_ref: "INV-SECRET",
      details: { a: { b: "was-secret", c: [1, 2] }, "x/y~z": 1 },
    })
    const first = await post(portal, "k", body)
    t.equal(first.status, 201)
    const { invoice_ref: _gone, ...other } = body
    const changed = {
      ...other,
      award_id: body.award_id.toUpperCase(),
      submission_timestamp: "2025-07-01T11:00:00+02:00",
      amount_cents: 125_001,
      currency: "EUR",
      fain: "F-1",
      details: { a: { b: "is", c: [1, 3] }, "x/y~z": 2 },
    }
    const refused = await post(portal, "k", changed)
    isProblem(t, refused, "idempotency-key-reused")
    t.same(refused.body.differs.toSorted(), [
      "/amount_cents",
      "/currency",
      "/details/a/b",
      "/details/a/c/1",
      "/details/x~1y~0z",
      "/fain",
      "/invoice_ref",
    ])
    t.equal(refused.body.disbursement_id, first.body.id)
    t.equal(refused.headers["idempotency-key"], '"k"')
    t.notMatch(refused.text, /SECRET|was-secret|125000/, "no stored value")
    for (let i = 0; i < 3; i++)
      isReplay(t, await post(portal, "k", body), first, "the original, as often as it is asked for")
    isProblem(t, await post(portal, "k", changed), "idempotency-key-reused", "for ever")
    isProblem(t, await post(portal, "k", { ...body, submission_id: "S-2" }), "idempotency-key-reused", "the key first")
    await hasEffects(t, sql, portal.id, 1)

    const { body: listed } = await service.call("GET", `/v1/conflicts?portal=${portal.name}`)
    t.equal(listed.items.length, 3, "each one")
    t.match(listed.items[0], {
      portal: portal.name,
      idempotency_key: "k",
      operation: "submission",
      original_operation: "submission",
      disbursement_id: first.body.id,
      request_id: refused.headers["request-id"],
      fingerprint: fingerprintOf(changed),
      original_fingerprint: fingerprintOf(body),
    })
    t.same(listed.items[0].differs.toSorted(), refused.body.differs.toSorted())
    t.notMatch(JSON.stringify(listed), /SECRET|was-secret/)
  },
)

t.test("a submission_id is recorded once per portal, for ever, whatever the key", async (t) => {
  const [east, west] = [await newPortal(), await newPortal()]
  const body = valid({ submission_id: "S 1/ü%" })
  const first = await post(east, "a", body)
  t.equal(first.status, 201)
  for (const change of [{}, { amount_cents: 7 }, { award_id: newAward() }]) {
    const refused = await post(east, `b-${Object.keys(change)}`, { ...body, ...change })
    isProblem(t, refused, "duplicate-submission")
    t.equal(refused.body.disbursement_id, first.body.id)
  }
  t.equal((await post(east, "b-", { ...body, submission_id: "another" })).status, 201, "the refused key is free")
  t.equal((await post(west, "a", body)).status, 201, "another portal's number is another")
  isReplay(t, await post(east, "a", body), first)
  await hasEffects(t, sql, east.id, 2)
  await hasEffects(t, sql, west.id, 1)
})

t.test("each check comes before the next: a request with two faults hears of the first", async (t) => {
  const portal = await newPortal()
  const operator = await service.portal(`office-${++made}`, "operator")
  const inEuro = newAward()
  t.equal((await post(portal, "used", { ...valid({ award_id: inEuro }), currency: "EUR" })).status, 201)

  interface Draft {
    token: string | null
    type: string
    padding: number
    key: string
    members: Record<string, unknown>
    twice: boolean
  }
  const faults: [keyof typeof problems, (draft: Draft) => void][] = [
    ["unauthenticated", (draft) => (draft.token = null)],
    ["forbidden", (draft) => (draft.token = operator.token)],
    ["media-type-unsupported", (draft) => (draft.type = "text/plain")],
    ["body-too-large", (draft) => (draft.padding = 66_000)],
    ["malformed-json", (draft) => (draft.twice = true)],
    ["invalid-request", (draft) => (draft.members.surprise = 1)],
    ["idempotency-key-invalid", (draft) => (draft.key = '"unterminated')],
    ["idempotency-key-reused", (draft) => (draft.key = '"used"')],
    ["submission-timestamp-in-future", (draft) => (draft.members.submission_timestamp = "2099-01-01T00:00:00Z")],
    ["currency-unknown", (draft) => (draft.members.currency = "ZZZ")],
    ["currency-mismatch", (draft) => (draft.members.award_id = inEuro)],
  ]
  for (const [i, [code, first]] of faults.entries()) {
    for (const [, second] of [["", () => {}] as const, ...faults.slice(i + 1)]) {
      const draft: Draft = {
        token: portal.token,
        type: "application/json",
        padding: 0,
        key: `"${uuidv7()}"`,
        members: valid(),
        twice: false,
      }
      second(draft)
      first(draft)
      const text = JSON.stringify(draft.members)
      const reply = await send(service.url, "POST", "/v1/submissions", {
        token: draft.token,
        body: `${" ".repeat(draft.padding)}${draft.twice ? text.replace("{", '{"award_id":"A",') : text}`,
        headers: { "content-type": draft.type, "idempotency-key": draft.key },
      })
      if (reply.body?.code !== code) t.fail(`${code} goes before ${JSON.stringify(draft)}`, { found: reply.body })
    }
    t.pass(`${code} goes before all that come later`)
  }
  await hasEffects(t, sql, portal.id, 1, "whatever was refused left nothing")
})

t.test("an old recorded request is replayed though today's clock or lists would refuse it", async (t) => {
  const portal = await newPortal()
  for (const [change, code] of [
    [{ submission_timestamp: "2098-01-01T00:00:00Z" }, "submission-timestamp-in-future"],
    [{ currency: "ZZZ" }, "currency-unknown"],
  ] as const) {
    const body = valid(change)
    isProblem(t, await post(portal, code, body), code)
    const { currency: _any, ...was } = { currency: "", ...body, submission_timestamp: "2025-07-01T09:00:00Z" }
    const first = await post(portal, code, was)
    t.equal(first.status, 201, "the key of a refused request is free")
    // As if it had been recorded under another clock or another list.
    await sql`UPDATE claims SET fingerprint = ${fingerprintOf(body)} WHERE portal_id = ${portal.id} AND idempotency_key = ${code}`
    isReplay(t, await post(portal, code, body), first, code)
    isProblem(
      t,
      await post(portal, code, { ...body, amount_cents: 1 }),
      "idempotency-key-reused",
      `${code}: conflict first`,
    )
  }
  const soon = new Date(Date.now() + 4 * 60_000).toISOString()
  t.equal((await post(portal, "soon", valid({ submission_timestamp: soon }))).status, 201, "five minutes are allowed")
  const late = new Date(Date.now() + 6 * 60_000).toISOString()
  isProblem(t, await post(portal, "late", valid({ submission_timestamp: late })), "submission-timestamp-in-future")
  await hasEffects(t, sql, portal.id, 3)
})

t.test("a refusal of any kind leaves the key free: the corrected request is recorded under it", async (t) => {
  const portal = await newPortal()
  const body = valid()
  const text = JSON.stringify(body)
  const json = { "content-type": "application/json" }
  const key = (k: string) => ({ ...json, "idempotency-key": quoted(k) })
  const refusals: [number, SendOptions][] = [
    [401, { token: null, body: text }],
    [400, { body: "{" }],
    [400, { body: JSON.stringify({ ...body, amount_cents: 0 }) }],
    [400, { body: JSON.stringify({ ...body, submission_timestamp: "2098-01-01T00:00:00Z" }) }],
    [413, { body: text + " ".repeat(66_000) }],
    [415, { body: text, headers: { "content-type": "application/xml" } }],
  ]
  for (const [i, [status, options]] of refusals.entries()) {
    const headers = { ...key(`k-${i}`), ...options.headers }
    const refused = await send(service.url, "POST", "/v1/submissions", { token: portal.token, ...options, headers })
    t.equal(refused.status, status)
    t.equal((await post(portal, `k-${i}`, body)).status, 201, `after ${status}`)
  }
  const nowhere = await send(service.url, "POST", "/v1/nowhere", {
    token: portal.token,
    body: text,
    headers: key("k-404"),
  })
  t.equal(nowhere.status, 404)
  t.equal((await post(portal, "k-404", body)).status, 201, "after 404")

  const head = `POST /v1/submissions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${portal.token}\r\nContent-Type: application/json\r\nIdempotency-Key: k-cut\r\n`
  await abortAfter(service.url, `${head}Content-Length: ${text.length}\r\n\r\n${text.slice(0, 20)}`)
  t.equal((await post(portal, "k-cut", body)).status, 201, "after an aborted upload")
  await hasEffects(t, sql, portal.id, refusals.length + 2)
})

t.test("a 5xx is never replayed: after the fault the same request is recorded, once", async (t) => {
  const other = await startService(t)
  const { id, token } = await other.portal("east")
  const faults = postgres(other.databaseUrl, { max: 1, onnotice: () => {} })
  await faults.unsafe(`
    CREATE SEQUENCE tries;
    CREATE FUNCTION fail_first() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF nextval('tries') = 1 THEN RAISE EXCEPTION 'amount 125000 is a secret' USING ERRCODE = 'data_exception'; END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER fail_first AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION fail_first()`)
  const body = valid()
  const failed = await postSubmission(other.url, token, "k", body)
  t.match(failed.body, { code: "internal", status: 500, retry: "same-key" })
  t.notMatch(failed.text, /secret|125000|SQL|trigger|\.ts|\.js/i, "nothing of what happened inside")
  await hasEffects(t, faults, id, 0, "after the failure")
  const first = await postSubmission(other.url, token, "k", body)
  t.equal(first.status, 201)
  t.equal((await postSubmission(other.url, token, "k", body)).text, first.text)
  await hasEffects(t, faults, id, 1)
  await faults.end()
})

t.test("a replay comes before every rule of the award, though it has changed since", async (t) => {
  const portal = await newPortal()
  const body = valid()
  const first = await post(portal, "k", body)
  t.equal(first.status, 201)
  const key = body.award_id.toUpperCase()
  await sql`UPDATE awards SET currency = 'EUR' WHERE award_key = ${key}`
  isProblem(t, await post(portal, "new", body), "currency-mismatch")
  isReplay(t, await post(portal, "k", body), first, "of an award that keeps another currency")
  await sql`UPDATE awards SET currency = 'USD', disbursed_cents = 9007199254740991 WHERE award_key = ${key}`
  isProblem(t, await post(portal, "new", body), "award-funds-exceeded")
  isReplay(t, await post(portal, "k", body), first, "of an award that is spent")
  t.same(await effectsOf(sql, portal.id), { claims: 1, answers: 1, disbursements: 1, events: 1 })
})

t.test("an award keeps the currency of its first submission, and amounts of two are never added up", async (t) => {
  const portal = await newPortal()
  const body = valid({ currency: "EUR" })
  t.equal((await post(portal, "eur", body)).status, 201)
  const refused = await post(portal, "usd", { ...body, currency: "USD" })
  isProblem(t, refused, "currency-mismatch")
  t.equal(refused.headers["idempotency-key"], '"usd"')
  isProblem(t, await post(portal, "none", { ...body, currency: undefined }), "currency-mismatch", "USD when absent")
  t.equal((await post(portal, "usd", body)).status, 201, "the key was free")
  await hasEffects(t, sql, portal.id, 2)
})

t.test("where awards must be registered, an unknown one is 404 and nothing is opened", async (t) => {
  const other = await startService(t, { awards: "registered" })
  const { id, token } = await other.portal("east")
  const looks = postgres(other.databaseUrl, { max: 1 })
  const refused = await postSubmission(other.url, token, "k", valid())
  t.match(refused.body, { code: "award-not-found", status: 404, outcome: "not_applied", retry: "after-fixing" })
  t.equal((await looks`SELECT 1 FROM awards`).length, 0)
  t.same(await effectsOf(looks, id), { claims: 0, answers: 0, disbursements: 0, events: 0 })
  await looks.end()
})

t.test("without a header the key is derived, as published, and equal contents are one submission", async (t) => {
  const portal = await newPortal()
  const vector = deriveKey("A-2026-014", "2026-07-01T09:00:00Z", "{...}")
  t.equal(vector, "d3ed6c4d8acb11aa58dcdb03e400559b1e415626580e4a00466ae631bea74acd")
  const sent = { award_id: "A-2026-014", submission_timestamp: "2026-07-01T09:00:00Z", amount_cents: 125_000 }
  const published = await post(portal, null, sent)
  t.match(published.headers, {
    "idempotency-key": '"def8447597ab1077142720afdd12b6ab3e8558d9ac676c6a6219502aba7a6827"',
    "idempotency-key-source": "derived",
  })

  const body = valid({ award_id: `Grant-ä-${++made}`, details: { b: 1, a: [1, { d: 2, c: 3 }] } })
  const first = await post(portal, null, body)
  t.equal(first.status, 201)
  t.equal(first.body.idempotency_key, first.headers["idempotency-key"]?.slice(1, -1))
  const text = JSON.stringify(body)
  const spellings: [string, string][] = [
    ["members in another order", JSON.stringify(Object.fromEntries(Object.entries(body).reverse()))],
    ["white space", JSON.stringify(body, null, 2)],
    ["nested members in another order", text.replace('{"d":2,"c":3}', '{"c":3,"d":2}')],
    ["the currency written out", JSON.stringify({ ...body, currency: "USD" })],
    ["another offset", JSON.stringify({ ...body, submission_timestamp: "2025-07-01T05:00:00-04:00" })],
    ["a fraction of nothing", JSON.stringify({ ...body, submission_timestamp: "2025-07-01T09:00:00.000000Z" })],
    ["the award in capitals", JSON.stringify({ ...body, award_id: body.award_id.toUpperCase() })],
    ["the award decomposed", JSON.stringify({ ...body, award_id: body.award_id.normalize("NFD") })],
    ["escapes", text.replace("Grant", "\\u0047rant")],
  ]
  for (const [about, spelling] of spellings) {
    const reply = await send(service.url, "POST", "/v1/submissions", {
      token: portal.token,
      body: spelling,
      headers: { "content-type": "application/json" },
    })
    isReplay(t, reply, first, about)
  }
  t.equal((await post(portal, null, { ...body, amount_cents: 125_001 })).status, 201, "another amount is another")
  t.equal((await post(portal, first.body.idempotency_key, body)).status, 200, "the key itself, sent, is the same key")
  const total = await sql`SELECT disbursed_cents::int AS cents FROM awards WHERE award_id = ${body.award_id}`
  t.same([...total], [{ cents: 250_001 }], "one award, whatever its spelling")
})

t.test("under one key the spellings of one request are one request", async (t) => {
  const portal = await newPortal()
  const body = valid()
  const first = await post(portal, "k", body)
  const again: [string, object][] = [
    ["reordered", Object.fromEntries(Object.entries(body).reverse())],
    ["currency written out", { ...body, currency: "USD" }],
    ["-04:00", { ...body, submission_timestamp: "2025-07-01T05:00:00-04:00" }],
    ["+05:45", { ...body, submission_timestamp: "2025-07-01T14:45:00+05:45" }],
    ["-00:00", { ...body, submission_timestamp: "2025-07-01T09:00:00-00:00" }],
    ["lower case", { ...body, award_id: body.award_id.toLowerCase() }],
  ]
  for (const [about, json] of again) isReplay(t, await post(portal, "k", json), first, about)
  await hasEffects(t, sql, portal.id, 1)
})

t.test("with keys of their own, equal contents are both recorded", async (t) => {
  const portal = await newPortal()
  const body = valid()
  const [one, two] = [await post(portal, "k1", body), await post(portal, "k2", body)]
  t.same([one.status, two.status], [201, 201])
  t.not(one.body.id, two.body.id)
  await hasEffects(t, sql, portal.id, 2)
})

t.test("where the key is required, a submission without one is refused and nothing is derived", async (t) => {
  const portal = await newPortal(true)
  const refused = await post(portal, null, valid())
  isProblem(t, refused, "idempotency-key-required")
  isProblem(t, await post(portal, null, { ...valid(), surprise: 1 }), "invalid-request", "the schema goes first")
  t.equal((await post(portal, "k", valid())).status, 201)
  await hasEffects(t, sql, portal.id, 1)
})

t.test("two portals may use one key, and neither learns of the other's", async (t) => {
  const [east, west] = [await newPortal(), await newPortal()]
  const body = valid()
  const first = await post(east, "k", body)
  t.equal((await getKey(service.url, west.token, "k")).body.code, "idempotency-key-unknown")
  isProblem(t, await send(service.url, "GET", first.headers.location ?? "", { token: west.token }), "not-found")
  const second = await post(west, "k", { ...body, amount_cents: 1 })
  t.equal(second.status, 201, "new to the other")
  t.notMatch(second.text, first.body.id)
  t.equal(second.headers["idempotent-replayed"], undefined)
  isReplay(t, await post(east, "k", body), first, "unharmed")
  t.equal((await getKey(service.url, east.token, "k")).body.disbursement_id, first.body.id)
  t.equal((await getKey(service.url, west.token, "k")).body.disbursement_id, second.body.id)
  const voided = await send(service.url, "DELETE", "/v1/idempotency-keys/mine", { token: west.token })
  t.equal(voided.body.state, "voided")
  t.equal((await post(east, "mine", body)).status, 201, "nor is it blocked")
  await hasEffects(t, sql, east.id, 2)
  await hasEffects(t, sql, west.id, 1)
})

t.test("a stranger without a token poisons nothing", async (t) => {
  const portal = await newPortal()
  const body = valid()
  for (const token of [null, "wrong", `gg_${"a".repeat(43)}`]) {
    const options = { token, headers: { "idempotency-key": '"k"' }, json: body }
    isProblem(t, await send(service.url, "POST", "/v1/submissions", options), "unauthenticated")
  }
  t.same(await effectsOf(sql, portal.id), { claims: 0, answers: 0, disbursements: 0, events: 0 })
  t.equal((await post(portal, "k", body)).status, 201)
  const late = { token: null, headers: { "idempotency-key": '"k"' }, json: body }
  isProblem(t, await send(service.url, "POST", "/v1/submissions", late), "unauthenticated", "a replay needs one, too")
})

t.test("a key belongs to the portal: rotating its token changes no replay", async (t) => {
  const portal = await newPortal()
  const body = valid()
  const first = await post(portal, "k", body)
  const { body: added } = await service.call("POST", `/v1/portals/${portal.id}/tokens`)
  const { body: list } = await service.call("GET", "/v1/portals")
  const old = list.items
    .find((one: { id: string }) => one.id === portal.id)
    .tokens.find((one: { id: string }) => one.id !== added.id)
  t.equal((await service.call("DELETE", `/v1/portals/${portal.id}/tokens/${old.id}`)).status, 204)
  t.equal((await post(portal, "k", body)).status, 401)
  isReplay(t, await post({ ...portal, token: added.token }, "k", body), first, "with the new token")
  await hasEffects(t, sql, portal.id, 1)
})

t.test(
  "keys have 1 to 255 printable characters in one header line; all else is refused and records nothing",
  async (t) => {
    const portal = await newPortal()
    const body = valid()
    const withHeader = (value: string | string[]) =>
      send(service.url, "POST", "/v1/submissions", {
        token: portal.token,
        json: body,
        headers: { "idempotency-key": value },
      })
    const refused: [string, string | string[]][] = [
      ["256 characters", "k".repeat(256)],
      ["256 quoted", `"${"k".repeat(256)}"`],
      ["3000 characters", "k".repeat(3000)],
      ["two lines", ["one", "two"]],
      ["two equal lines", ["one", "one"]],
      ["empty", ""],
      ["an empty string", '""'],
      ["blank", '"   "'],
      ["a list", "one, two"],
      ["a list of strings", '"one", "two"'],
      ["parameters", '"one";a=1'],
      ["unterminated", '"one'],
      ["not ASCII", "clé"],
      ["not ASCII, quoted", '"clé"'],
      ["a bare key with a space", "one two"],
      ["a bare key that begins with a hyphen", "-one"],
    ]
    for (const [about, value] of refused) {
      const reply = await withHeader(value)
      isProblem(t, reply, "idempotency-key-invalid", about)
      t.match(reply.body.detail, /Idempotency-Key header.*(255|send one)/s, `${about}: names the header and the limit`)
    }
    t.same(await effectsOf(sql, portal.id), { claims: 0, answers: 0, disbursements: 0, events: 0 })

    const first = await withHeader('"K"')
    t.equal(first.status, 201)
    isReplay(t, await withHeader("K"), first, "quoted and bare are one key")
    t.equal((await withHeader("k")).status, 201, "case is kept")
    const longest = `k${Array.from({ length: 254 }, (_, i) => String.fromCharCode(33 + (i % 94))).join("")}`
    const long = await withHeader(quoted(longest))
    t.equal(long.status, 201, "255 characters")
    t.equal(long.headers["idempotency-key"], quoted(longest))
    t.equal(long.body.idempotency_key, longest)
    await hasEffects(t, sql, portal.id, 3)
  },
)

t.test(
  "an amount that is not a plain integer within bounds is refused, and never becomes another amount",
  async (t) => {
    const portal = await newPortal()
    const text = JSON.stringify(valid())
    const sendText = (body: string) =>
      send(service.url, "POST", "/v1/submissions", {
        token: portal.token,
        body,
        headers: { "content-type": "application/json", "idempotency-key": '"k"' },
      })
    const amounts = [
      "9007199254740993",
      "9007199254740992",
      "1e2",
      "100.0",
      "100.5",
      '"100"',
      "[100]",
      "true",
      "null",
      "0",
      "-0",
      "-1",
      "1e400",
      "{}",
    ]
    for (const amount of amounts) {
      const reply = await sendText(text.replace("125000", amount))
      t.equal(reply.status, 400, amount)
      t.match(reply.body.code, /^(malformed-json|invalid-request)$/, amount)
      if (reply.body.code === "invalid-request") t.match(reply.body.errors, [{ pointer: "/amount_cents" }], amount)
    }
    const bodies: [string, string][] = [
      ["a member twice", `{"amount_cents":1,${text.slice(1)}`],
      ["twice, deep", text.replace("}", ',"details":{"a":[{"b":1,"b":1}]}}')],
      ["NUL", text.replace("Award", "A\\u0000")],
      ["a lone surrogate", text.replace("}", ',"details":{"a":"\\ud800"}}')],
      ["a lone surrogate in a name", text.replace("}", ',"details":{"\\udc00":1}}')],
      ["a BOM", `\ufeff${text}`],
      ["too deep", text.replace("}", `,"details":{"a":${"[".repeat(32)}${"]".repeat(32)}}}`)],
      ["a big integer, deep", text.replace("}", ',"details":{"a":[9007199254740993]}}')],
      ["an overflow, deep", text.replace("}", ',"details":{"a":1e999}}')],
      ["__proto__", text.replace("}", ',"__proto__":{"amount_cents":1}}')],
      ["__proto__, deep", text.replace("}", ',"details":{"__proto__":{"a":1}}}')],
      ["constructor", text.replace("}", ',"constructor":{"prototype":{"a":1}}}')],
      ["an unknown member", text.replace("}", ',"amount":1}')],
      ["an array", `[${text}]`],
      ["nothing", ""],
    ]
    for (const [about, body] of bodies) t.equal((await sendText(body)).status, 400, about)
    const latin1 = Buffer.from(text.replace("Award", "Äward"), "latin1")
    const bytes = { token: portal.token, body: latin1, headers: { "content-type": "application/json" } }
    t.equal((await send(service.url, "POST", "/v1/submissions", bytes)).body.code, "malformed-json", "not UTF-8")
    t.same(await effectsOf(sql, portal.id), { claims: 0, answers: 0, disbursements: 0, events: 0 })

    const largest = await sendText(text.replace("125000", "9007199254740991"))
    t.equal(largest.status, 201, "the key of all those is free, and the largest amount is exact")
    t.match(largest.text, '"amount_cents":9007199254740991')
    t.equal((await post(portal, "data", valid({ details: { constructor: 1, toString: 2 } }))).status, 201, "plain data")
    await hasEffects(t, sql, portal.id, 2)
  },
)

t.test("keys and award ids of any legal characters work everywhere, in headers and in paths", async (t) => {
  const portal = await newPortal()
  const awards = ["A/1 %#\"'&", "Ж-1?x=1&y;z", "..", "%2F", "a\\b", "<A> {1} | ^`~"].map((text, i) => `${text}${i}`)
  const keys = ['a/b%c d"e', "k".repeat(255), "..", ".", "%2e%2e", "\\", "?a=1#b", " x ", "~!@$^*()_+{}|:<>,;'[]`"]
  const ids = new Map<string, string>()
  for (const [i, key] of keys.entries()) {
    const body = valid({ award_id: awards[i % awards.length] })
    const unknown = await getKey(service.url, portal.token, key)
    isProblem(t, unknown, "idempotency-key-unknown", key)
    const first = await post(portal, key, body)
    t.equal(first.status, 201, key)
    t.equal(first.headers["idempotency-key"], quoted(key))
    t.equal(first.body.award_id, body.award_id)
    isReplay(t, await post(portal, key, body), first, key)
    t.match((await getKey(service.url, portal.token, key)).body, {
      key,
      state: "completed",
      operation: "submission",
      disbursement_id: first.body.id,
      first_seen_at: /Z$/,
    })
    const path = `/v1/idempotency-keys/${encodeURIComponent(key)}`
    const used = await send(service.url, "DELETE", path, { token: portal.token })
    isProblem(t, used, "already-applied", key)
    t.equal(used.body.disbursement_id, first.body.id)
    ids.set(first.body.id, body.award_id ?? "")
  }
  for (const award of awards) {
    const path = `/v1/disbursements?award_id=${encodeURIComponent(award.toLowerCase())}`
    const { body } = await send(service.url, "GET", path, { token: portal.token })
    const wanted = [...ids].filter(([, drawn]) => drawn === award).map(([id]) => id)
    t.same(body.items.map((item: { id: string }) => item.id).toSorted(), wanted.toSorted(), award)
  }
  await hasEffects(t, sql, portal.id, keys.length)
})

t.test("a voided key never takes effect: a late original is refused, and the void can be repeated", async (t) => {
  const portal = await newPortal()
  const path = `/v1/idempotency-keys/${encodeURIComponent('late/"1"')}`
  const remove = () => send(service.url, "DELETE", path, { token: portal.token })
  t.same((await remove()).body, { key: 'late/"1"', state: "voided" })
  t.same((await remove()).body, { key: 'late/"1"', state: "voided" })
  isProblem(t, await post(portal, 'late/"1"', valid()), "idempotency-key-voided")
  t.match((await getKey(service.url, portal.token, 'late/"1"')).body, { state: "voided", disbursement_id: null })
  t.same(await effectsOf(sql, portal.id), { claims: 0, answers: 0, disbursements: 0, events: 0 })
})

t.test("a key 400 days old is a replay still, also for a server that has never seen it", async (t) => {
  const portal = await newPortal()
  const body = valid()
  const first = await post(portal, "k", body)
  await sql.begin(async (old) => {
    // Triggers do not fire for a replica: the only way to make append-only rows older.
    await old`SET LOCAL session_replication_role = replica`
    await old`UPDATE claims SET claimed_at = claimed_at - interval '400 days' WHERE portal_id = ${portal.id}`
    await old`UPDATE disbursements SET recorded_at = recorded_at - interval '400 days' WHERE portal_id = ${portal.id}`
    await old`UPDATE outbox SET created_at = created_at - interval '400 days' WHERE payload->>'portal' = ${portal.name}`
  })
  isReplay(t, await post(portal, "k", body), first)
  const again = await serve(readConfig({ PORT: "0", DATABASE_URL: service.databaseUrl }), makeLogger("silent"))
  isReplay(t, await postSubmission(again.url, portal.token, "k", body), first, "elsewhere")
  isProblem(t, await post(portal, "k", { ...body, amount_cents: 1 }), "idempotency-key-reused")
  await again.stop()
  await hasEffects(t, sql, portal.id, 1)
})

t.test(
  "whatever arrives, the answer is a success or a problem below 500, and only a 201 recorded something",
  async (t) => {
    const portal = await newPortal()
    const text = JSON.stringify(valid({ submission_id: "S-1", details: { a: [1, "ä"] } }))
    const printable = fc.string({
      unit: fc.integer({ min: 0x21, max: 0x7e }).map((c) => String.fromCharCode(c)),
      maxLength: 40,
    })
    const latin1 = fc.string({
      unit: fc.integer({ min: 0x20, max: 0xff }).map((c) => String.fromCharCode(c)),
      maxLength: 60,
    })
    const body = fc.oneof(
      fc.constant(Buffer.from(text)),
      fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
      fc.json().map((json) => Buffer.from(json)),
      fc
        .record({
          at: fc.nat(text.length),
          cut: fc.nat(5),
          put: fc.oneof(latin1, fc.constantFrom("\0", "{", '"', "1e9", "\\ud800")),
        })
        .map(({ at, cut, put }) => Buffer.from(text.slice(0, at) + put + text.slice(at + cut))),
      fc
        .dictionary(
          fc.constantFrom(...Object.keys(JSON.parse(text)), "currency", "fain", "period_to", "x"),
          fc.anything(),
        )
        .map((members) =>
          Buffer.from(
            JSON.stringify({ ...JSON.parse(text), ...members }, (_name, value) =>
              typeof value === "bigint" ? Number(value) : value,
            ) ?? "",
          ),
        ),
    )
    const request = fc.record({
      method: fc.constantFrom("POST", "POST", "POST", "GET", "DELETE", "PUT", "PATCH"),
      path: fc.oneof(
        { weight: 4, arbitrary: fc.constant("/v1/submissions") },
        printable.map((raw) => `/v1/submissions${raw}`),
        printable.map((raw) => `/v1/idempotency-keys/${raw}`),
        printable.map((raw) => `/v1/disbursements?${raw}`),
        printable.map((raw) => `/v1/disbursements/${raw}`),
        printable.map((raw) => `/${raw}`),
      ),
      type: fc.oneof({ weight: 4, arbitrary: fc.constant("application/json") }, fc.constant(""), latin1),
      key: fc.oneof({ weight: 2, arbitrary: fc.constant(null) }, fc.constantFrom('"k"', "k", '""'), latin1),
      body,
    })
    let recorded = 0
    const property = fc.asyncProperty(request, async ({ method, path, type, key, body }) => {
      const lines = [
        `${method} ${path} HTTP/1.1`,
        "Host: a",
        `Authorization: Bearer ${portal.token}`,
        `Content-Type: ${type}`,
        ...(key === null ? [] : [`Idempotency-Key: ${key}`]),
        `Content-Length: ${body.length}`,
        "Connection: close",
      ]
      const answer = await sendRaw(
        service.url,
        Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), body]),
      )
      const status = Number(/^HTTP\/1.1 (\d{3}) /.exec(answer)?.[1])
      if (status === 201) recorded += 1
      if (!(status >= 200 && status < 500)) throw new Error(answer)
      if (status >= 400 && !/^content-type: application\/problem\+json\r$/im.test(answer)) throw new Error(answer)
    })
    await fc.assert(property, { numRuns: rounds(2_500) })
    t.ok(recorded > 0, "some were valid")
    await hasEffects(t, sql, portal.id, recorded)
    const lines = service.log.filter((line) => line.level === "error" || line.level === "fatal")
    t.same(lines, [], "and nothing failed inside")
  },
)

t.test("all that these tests recorded adds up", async (t) => {
  const loose = await sql`
    SELECT 1 FROM claims c FULL JOIN disbursements d ON d.id = c.resource_id FULL JOIN answers a ON a.resource_id = coalesce(c.resource_id, d.id)
      FULL JOIN outbox o ON o.event_key = 'disbursement.recorded:' || d.id
    WHERE c.state IS DISTINCT FROM 'voided' AND (c.resource_id IS NULL OR d.id IS NULL OR a.resource_id IS NULL OR o.id IS NULL)`
  t.equal(loose.length, 0, "no claim, answer, line or event without the others")
  const kinds = await sql`SELECT DISTINCT jsonb_typeof(payload) AS kind FROM outbox`
  t.same([...kinds], [{ kind: "object" }])
  const idle = await sql`
    SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'grantgate' AND state LIKE 'idle in transaction%'`
  t.equal(idle.length, 0, "nothing is left in a transaction")
})
