/** Reading over HTTP: pages of the ledger, single lines, what became of a key, conflicts; and portals with their tokens. */
import postgres from "postgres"
import t from "tap"
import { uuidv7 } from "uuidv7"
import { Reads } from "../../src/db/client.js"
import { decodeCursor, encodeCursor } from "../../src/db/page.js"
import { recordConflict } from "../../src/evidence/conflicts.js"
import { type Service, startService } from "../support/service.js"

const submission = { award_id: "A-2026-014", submission_timestamp: "2025-07-01T09:00:00.250+02:00", amount_cents: 100 }

async function submit(service: Service, token: string, key: string, change: object = {}): Promise<string> {
  const { status, body } = await service.call("POST", "/v1/submissions", {
    token,
    json: { ...submission, ...change },
    headers: { "idempotency-key": `"${key}"` },
  })
  if (status !== 201) throw new Error(`not recorded: ${status} ${JSON.stringify(body)}`)
  return body.id
}

/** Every item of a list, page by page. */
async function readAll(service: Service, path: string, token: string, onPage?: () => Promise<unknown>) {
  const items = []
  for (let cursor: string | null = null; ; ) {
    const { status, body }: { status: number; body: { items: { id: string }[]; next_cursor: string | null } } =
      await service.call("GET", `${path}${cursor === null ? "" : `&cursor=${cursor}`}`, { token })
    if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`)
    items.push(...body.items)
    await onPage?.()
    cursor = body.next_cursor
    if (cursor === null) return items
  }
}

t.test("pages hold every line once, in order, whatever is recorded meanwhile", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const made: string[] = []
  // Many at once, so that lines share their instant of recording.
  await Promise.all(Array.from({ length: 23 }, async (_, i) => made.push(await submit(service, token, `page-${i}`))))
  let later = 0
  const items = await readAll(service, "/v1/disbursements?limit=5", token, () =>
    submit(service, token, `later-${later++}`),
  )
  const seen = items.map((item) => item.id)
  t.equal(new Set(seen).size, seen.length, "no line twice")
  t.ok(
    made.every((id) => seen.includes(id)),
    "each that was there before the first page",
  )
  const sql = postgres(service.databaseUrl, { max: 1 })
  const rows = await sql<{ id: string }[]>`SELECT id FROM disbursements ORDER BY recorded_at, id`
  t.same(
    seen,
    rows.slice(0, seen.length).map((row) => row.id),
    "in the order of recording, then id",
  )
  await sql.end()
  const whole = await service.call("GET", "/v1/disbursements?limit=200", { token })
  t.equal(whole.body.next_cursor, null, "null at the end")
})

t.test("a cursor is taken as it was given, with its filters, or refused", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  for (let i = 0; i < 3; i++) await submit(service, token, `c-${i}`)
  const { body } = await service.call("GET", "/v1/disbursements?limit=1&award_id=a-2026-014", { token })
  const cursor: string = body.next_cursor
  const again = (query: string, given = cursor) =>
    service.call("GET", `/v1/disbursements?limit=1&${query}cursor=${encodeURIComponent(given)}`, { token })
  t.equal((await again("award_id=A-2026-014&")).status, 200, "the same award, written otherwise")
  const place = { at: "2025-07-01T09:00:00.000000Z", id: uuidv7() }
  const refused: [string, string, string][] = [
    ["other filters", "award_id=B&", cursor],
    ["no filters", "", cursor],
    ["cut short", "award_id=A-2026-014&", cursor.slice(0, -1)],
    ["padded", "award_id=A-2026-014&", `${cursor}==`],
    ["not ours", "award_id=A-2026-014&", Buffer.from("{}").toString("base64url")],
    ["text", "award_id=A-2026-014&", "abc"],
    ["empty", "award_id=A-2026-014&", ""],
    ["SQL", "award_id=A-2026-014&", encodeCursor({ ...place, id: "' OR 1=1" }, {})],
    ["no instant", "award_id=A-2026-014&", encodeCursor({ ...place, at: "2025-99-01T09:00:00.000000Z" }, {})],
  ]
  for (const [about, query, given] of refused) {
    const answer = await again(query, given)
    t.equal(answer.status, 400, about)
    t.equal(answer.body.code, "invalid-cursor", about)
  }
  t.same(decodeCursor(encodeCursor(place, { a: 1 }), { a: 1 }), place)
})

t.test("a line reads whole, and only for those whom it concerns", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const other = await service.portal("west")
  const auditor = await service.portal("audit", "auditor")
  const extra = {
    submission_id: "S/1 %",
    assistance_listing_number: "10.500",
    fain: "SLFRP0127",
    invoice_ref: "INV-1",
    period_from: "2025-04-01",
    period_to: "2025-06-30",
  }
  const id = await submit(service, token, "line-1", extra)
  const { body } = await service.call("GET", `/v1/disbursements/${id}`, { token })
  const { recorded_at, ...line } = body
  t.match(recorded_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)
  t.same(line, {
    id,
    kind: "disbursement",
    award_id: "A-2026-014",
    amount_cents: 100,
    currency: "USD",
    submission_timestamp: "2025-07-01T07:00:00.25Z",
    idempotency_key: "line-1",
    portal: "east",
    recipient_uei: null,
    ...extra,
    returned_cents: 0,
    net_cents: 100,
  })
  t.same(
    (await service.call("GET", `/v1/disbursements/${id}`, { token: auditor.token })).body,
    body,
    "an auditor sees it",
  )
  for (const path of [`/v1/disbursements/${id}`, `/v1/disbursements/${uuidv7()}`, "/v1/disbursements/nope"]) {
    const answer = await service.call("GET", path, { token: other.token })
    t.equal(answer.body.code, "not-found", "another portal cannot tell it from one that is not there")
  }

  // Returns and reversals are linked negative lines.
  const sql = postgres(service.databaseUrl, { max: 1 })
  const undo = uuidv7()
  await sql`INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, disbursement_id, reason, recorded_at)
    SELECT ${undo}, 'return', portal_id, 'undo-1', award_key, award_id, -30, currency, submission_timestamp, id, 'too much', now() FROM disbursements WHERE id = ${id}`
  await sql.end()
  t.match((await service.call("GET", `/v1/disbursements/${id}`, { token })).body, { returned_cents: 30, net_cents: 70 })
  const returned = (await service.call("GET", `/v1/disbursements/${undo}`, { token })).body
  t.match(returned, { kind: "return", amount_cents: -30, disbursement_id: id, reason: "too much" })
  t.notOk("net_cents" in returned, "what is left is told of disbursements only")
})

t.test("filters narrow a list, and never widen what a portal may see", async (t) => {
  const service = await startService(t)
  const east = await service.portal("east")
  const west = await service.portal("west")
  const first = await submit(service, east.token, "same-key", { award_id: "Ä/1 %#", submission_id: "S-1" })
  const second = await submit(service, west.token, "same-key", { submission_id: "S-1" })
  const ids = async (query: string, token?: string) => {
    const { body } = await service.call("GET", `/v1/disbursements?${query}`, token === undefined ? {} : { token })
    return body.items.map((item: { id: string }) => item.id)
  }
  t.same(await ids(""), [first, second], "an operator sees all")
  t.same(await ids("portal=west"), [second])
  t.same(await ids("portal=nobody"), [])
  t.same(await ids(`award_id=${encodeURIComponent("ä/1 %#")}`), [first], "award ids in NFC and upper case")
  t.same(await ids("idempotency_key=same-key", east.token), [first])
  t.same(await ids("submission_id=S-1", west.token), [second])
  t.same(await ids("portal=west", east.token), [], "another's name finds nothing")
  t.same(await ids("portal=east", east.token), [first])
  const { body } = await service.call("GET", `/v1/disbursements/${second}`)
  const at = encodeURIComponent(body.recorded_at)
  t.same(await ids(`from=${at}`), [second], "from is included")
  t.same(await ids(`to=${at}`), [first], "to is not")
})

t.test("what became of a key can be asked, whatever characters it has", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const other = await service.portal("west")
  const operator = await service.portal("office", "operator")
  const path = (key: string) => `/v1/idempotency-keys/${encodeURIComponent(key)}`
  for (const key of ["a/b", "100%", "%2F", 'say "x"', "a b", "back\\slash", "?#&", "k".repeat(255), "/".repeat(255)]) {
    const unknown = await service.call("GET", path(key), { token })
    t.match(unknown.body, { code: "idempotency-key-unknown", outcome: "unknown", retry: "same-key", status: 404 }, key)
    const id = await submit(service, token, key.replace(/["\\]/g, "\\$&"))
    const { status, body } = await service.call("GET", path(key), { token })
    t.equal(status, 200)
    t.match(body, { key, state: "completed", operation: "submission", disbursement_id: id, first_seen_at: /Z$/ })
    t.equal(body.replays, null)
    t.equal((await service.call("GET", path(key), { token: other.token })).status, 404, "not another portal's")
    t.same((await service.call("GET", `${path(key)}?portal=east`, { token: operator.token })).body, body)
  }
  for (const key of ["k".repeat(256), "é", "\u0001"]) {
    t.equal((await service.call("GET", path(key), { token })).body.code, "idempotency-key-invalid")
  }
  t.match((await service.call("GET", path("a/b"), { token: operator.token })).body.errors, [{ pointer: "/portal" }])
  t.equal((await service.call("GET", `${path("a/b")}?portal=nobody`, { token: operator.token })).body.code, "not-found")

  const voided = await service.call("DELETE", path("never/sent"), { token })
  t.same(voided.body, { key: "never/sent", state: "voided" })
  t.same((await service.call("DELETE", path("never/sent"), { token })).body, voided.body, "repeatable")
  t.match((await service.call("GET", path("never/sent"), { token })).body, {
    state: "voided",
    operation: null,
    disbursement_id: null,
  })
  t.match((await service.call("DELETE", path("a/b"), { token })).body, {
    code: "already-applied",
    status: 409,
    disbursement_id: /-/,
  })
  const late = await service.call("POST", "/v1/submissions", {
    token,
    json: submission,
    headers: { "idempotency-key": '"never/sent"' },
  })
  t.equal(late.body.code, "idempotency-key-voided")
})

t.test("each refused reuse of a key is listed", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const id = await submit(service, token, "reused")
  const answer = await service.call("POST", "/v1/submissions", {
    token,
    json: { ...submission, amount_cents: 101 },
    headers: { "idempotency-key": "reused" },
  })
  t.match(answer.body, { code: "idempotency-key-reused", differs: ["/amount_cents"], disbursement_id: id })
  const { body } = await service.call("GET", "/v1/conflicts")
  t.match(body, {
    items: [
      {
        portal: "east",
        idempotency_key: "reused",
        operation: "submission",
        original_operation: "submission",
        fingerprint: /^v1:[0-9a-f]{64}$/,
        original_fingerprint: /^v1:[0-9a-f]{64}$/,
        differs: ["/amount_cents"],
        disbursement_id: id,
        request_id: answer.headers.get("request-id"),
        occurred_at: /Z$/,
      },
    ],
    next_cursor: null,
  })
  t.not(body.items[0].fingerprint, body.items[0].original_fingerprint)

  const reads = new Reads(service.databaseUrl, { max: 1, preparedStatements: true })
  const { occurred_at: _at, portal: _portal, ...row } = body.items[0]
  const [portal] = (await service.call("GET", "/v1/portals")).body.items
  const rows = Array.from({ length: 4 }, () => ({ ...row, id: uuidv7(), portal_id: portal.id }))
  for (const conflict of [...rows, ...rows]) await reads.run((db) => recordConflict(db, conflict))
  await reads.end()
  const all = await readAll(
    service,
    "/v1/conflicts?limit=2&portal=east",
    (await service.portal("audit", "auditor")).token,
  )
  t.same(
    all.map((item) => item.id),
    [row.id, ...rows.map((one) => one.id)],
    "oldest first, each once",
  )
  t.same((await service.call("GET", "/v1/conflicts?portal=west")).body.items, [])
})

t.test("tokens are rotated without a gap, and end when they are revoked", async (t) => {
  const service = await startService(t)
  const { id, token } = await service.portal("east", "portal", true)
  t.same((await service.call("GET", "/v1/me", { token })).body, { portal: "east", role: "portal", key_required: true })
  const recorded = await submit(service, token, "rotated")

  const added = await service.call("POST", `/v1/portals/${id}/tokens`)
  t.equal(added.status, 201)
  t.match(added.body, { id: /-/, token: /^gg_[\w-]{43}$/ })
  t.equal((await service.call("GET", "/v1/me", { token })).status, 200, "the old one goes on working")
  const again = await service.call("POST", "/v1/submissions", {
    token: added.body.token,
    json: submission,
    headers: { "idempotency-key": "rotated" },
  })
  t.equal(again.status, 200, "a retry with the new token is a replay")
  t.equal(again.body.id, recorded)

  const [row] = (await service.call("GET", "/v1/portals")).body.items
  t.match(row, { id, name: "east", role: "portal", key_required: true })
  t.equal(row.tokens.length, 2)
  const old = row.tokens.find((one: { id: string }) => one.id !== added.body.id).id
  const revoke = () => service.call("DELETE", `/v1/portals/${id}/tokens/${old}`)
  t.equal((await revoke()).status, 204)
  t.equal((await service.call("GET", "/v1/me", { token })).status, 401, "at once")
  t.equal((await revoke()).status, 204, "repeatable")
  t.equal((await service.call("GET", "/v1/me", { token: added.body.token })).status, 200)

  const other = await service.portal("west")
  for (const path of [
    `/v1/portals/${other.id}/tokens/${added.body.id}`,
    `/v1/portals/${id}/tokens/nope`,
    `/v1/portals/nope/tokens/${old}`,
  ]) {
    t.equal((await service.call("DELETE", path)).status, 404, "only the portal's own")
  }
  t.equal((await service.call("POST", `/v1/portals/${uuidv7()}/tokens`)).status, 404)
  t.equal(
    (await service.call("POST", `/v1/portals/${id}/tokens`, { json: {} })).status,
    201,
    "an empty body does no harm",
  )

  const sql = postgres(service.databaseUrl, { max: 1 })
  const text = JSON.stringify(await sql`SELECT p.*, t.* FROM portals p JOIN portal_tokens t ON t.portal_id = p.id`)
  t.notMatch(text, token.slice(3), "only hashes are kept")
  await sql.end()
})

t.test("a portal's name is its own", async (t) => {
  const service = await startService(t)
  const create = (name: unknown) => service.call("POST", "/v1/portals", { json: { name, role: "portal" } })
  t.equal((await create("Landkreis Ålesund 1/2 & Söhne")).status, 201)
  t.equal((await create("n".repeat(100))).status, 201)
  for (const name of [
    "Landkreis Ålesund 1/2 & Söhne",
    "bootstrap",
    "Bootstrap",
    "",
    " a",
    "a ",
    "a\nb",
    "n".repeat(101),
    7,
    null,
    "a\u200b",
  ]) {
    const { status, body } = await create(name)
    t.equal(status, 400, JSON.stringify(name))
    t.match(body, { code: "invalid-request", errors: [{ pointer: "/name" }] })
  }
  t.equal((await service.call("GET", "/v1/portals")).body.items.length, 2)
})

t.test("the document describes every route and can be used offline", async (t) => {
  const service = await startService(t)
  const { body } = await service.call("GET", "/openapi.json", { token: null })
  t.equal(body.openapi, "3.1.0")
  t.same(body.servers[0].url, "/")
  t.same(
    Object.keys(body.components.schemas).filter((name) => name.endsWith("Input")),
    [],
    "no schema twice",
  )
  const page = await service.call("GET", "/docs/", { token: null })
  t.equal(page.status, 200)
  const policy = page.headers.get("content-security-policy") ?? ""
  t.notMatch(policy, /upgrade-insecure|https:/)
  for (const [, link = ""] of page.text.matchAll(/(?:href|src)="([^"]+)"/g)) {
    t.notMatch(link, /^(https?:)?\/\//, "nothing from elsewhere")
    t.equal((await fetch(new URL(link, `${service.url}/docs/`))).status, 200, link)
  }
  t.notMatch(page.text, /<script>[^<]+<\/script>/, "no inline script: the policy would refuse it")
})

t.test("a NUL in a filter is a fault of the request with its pointer, never a 500", async (t) => {
  const service = await startService(t)
  for (const [path, name] of [
    ["/v1/disbursements", "award_id"],
    ["/v1/disbursements", "submission_id"],
    ["/v1/disbursements", "idempotency_key"],
    ["/v1/disbursements", "portal"],
    ["/v1/conflicts", "portal"],
    ["/v1/idempotency-keys/k", "portal"],
  ]) {
    const reply = await service.call("GET", `${path}?${name}=a%00b`)
    t.equal(reply.status, 400, `${path}?${name}=`)
    t.match(reply.body, { code: "invalid-request", errors: [{ pointer: `/${name}` }] })
  }
})
