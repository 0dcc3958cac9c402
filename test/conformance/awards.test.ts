/**
 * Awards as operators, portals and auditors meet them: their rules set, changed, kept and read; submissions held to them to the cent and to the day,
 * also by two servers at once and while the rules change.
 */
import postgres from "postgres"
import t, { type Test } from "tap"
import { readConfig } from "../../src/config.js"
import { makeLogger } from "../../src/http/request-log.js"
import { type Running, serve } from "../../src/serve.js"
import { hasEffects } from "../support/effects.js"
import { postSubmission, type Reply, send } from "../support/http.js"
import { rounds } from "../support/rounds.js"
import { startService } from "../support/service.js"

t.setTimeout(480_000)

const service = await startService(t, { lanes: 2 })
const second: Running = await serve(readConfig({ PORT: "0", DATABASE_URL: service.databaseUrl }), makeLogger("silent"))
const sql = postgres(service.databaseUrl, { max: 4, onnotice: () => {} })
t.teardown(async () => {
  await sql.end({ timeout: 1 })
  await second.stop()
})
const bothUrls = [service.url, second.url] as const
const max = Number.MAX_SAFE_INTEGER

let made = 0
const newAward = (): string => `AWARD-${++made}`
const newKey = (): string => `key-${++made}`
async function newPortal(role: "portal" | "operator" | "auditor" = "portal") {
  const name = `${role}-${++made}`
  return { name, ...(await service.portal(name, role)) }
}
const operator = await newPortal("operator")
const auditor = await newPortal("auditor")

const pathOf = (award: string): string => `/v1/awards/${encodeURIComponent(award)}`
const put = (award: string, rules: object, url: string = service.url) =>
  send(url, "PUT", pathOf(award), { token: operator.token, json: { currency: "USD", ...rules } })
const patch = (award: string, rules: object, url: string = service.url) =>
  send(url, "PATCH", pathOf(award), { token: operator.token, json: rules })
const get = (award: string, token = operator.token) => send(service.url, "GET", pathOf(award), { token })
const submit = (token: string, award: string, change: object = {}, url: string = service.url, key = newKey()) =>
  postSubmission(url, token, key, {
    award_id: award,
    submission_timestamp: "2025-07-01T09:00:00Z",
    amount_cents: 100,
    ...change,
  })
const codeOf = ({ status, body }: Reply): string | number => body?.code ?? status

const defaults = {
  currency: "USD",
  obligated_cents: null,
  status: "active",
  period_start: null,
  period_end: null,
  time_zone: "UTC",
  liquidation_days: 0,
  retention_years: 3,
  final_report_submitted_on: null,
  portals: null,
}

/** Every item of a list, a few at a time. */
async function readAll(path: string, token: string, limit = 3) {
  const items = []
  for (let cursor: string | null = null; ; ) {
    const { status, body, text }: Reply = await send(
      service.url,
      "GET",
      `${path}?limit=${limit}${cursor === null ? "" : `&cursor=${cursor}`}`,
      { token },
    )
    if (status !== 200) throw new Error(text)
    items.push(...body.items)
    cursor = body.next_cursor
    if (cursor === null) return items
  }
}

t.test(
  "a PUT replaces all rules, a PATCH those sent, null is the default, and what is the same changes nothing",
  async (t) => {
    const award = newAward()
    const first = await put(award, {})
    t.equal(first.status, 201, "registered")
    t.match(first.body, { award_id: award, ...defaults, rules_version: 1 })
    t.match(first.body, { disbursed_cents: 0, returned_cents: 0, net_cents: 0, available_cents: null })
    t.match(first.body.opened_at, /^\d{4}-.*\.\d{6}Z$/)
    t.same((await put(award, {})).body, first.body, "the same again: the same version")

    const { name } = await newPortal()
    const rules = {
      currency: "EUR",
      obligated_cents: max,
      status: "suspended",
      period_start: "2024-02-29",
      period_end: "2027-09-30",
      time_zone: "Pacific/Kiritimati",
      liquidation_days: 120,
      retention_years: 7,
      final_report_submitted_on: "2028-01-15",
      portals: [name],
    }
    const whole = await put(award, rules)
    t.equal(whole.status, 200)
    t.match(whole.body, { ...rules, rules_version: 2, available_cents: max })
    t.match((await get(award)).body, rules)

    const one = await patch(award, { liquidation_days: 90 })
    t.equal(one.status, 200)
    t.match(one.body, { ...rules, liquidation_days: 90, rules_version: 3 }, "the others stay")
    t.equal((await patch(award, {})).body.rules_version, 3, "nothing sent, nothing changed")
    t.equal((await patch(award, { liquidation_days: 90, reason: "again" })).body.rules_version, 3)
    const nulls = Object.fromEntries(
      Object.keys(defaults)
        .filter((member) => member !== "currency")
        .map((member) => [member, null]),
    )
    t.match((await patch(award, nulls)).body, { ...defaults, currency: "EUR", rules_version: 4 }, "null is the default")
    await put(award, rules)
    t.match((await put(award, {})).body, { ...defaults, rules_version: 6 }, "absent is null")
  },
)

t.test("a rule that is not valid is refused with a pointer to it, and nothing is changed", async (t) => {
  const award = newAward()
  await put(award, { obligated_cents: 5 })
  const wrong: [object, string][] = [
    [{ currency: undefined }, "/currency"],
    [{ currency: null }, "/currency"],
    [{ currency: "usd" }, "/currency"],
    [{ obligated_cents: -1 }, "/obligated_cents"],
    [{ obligated_cents: "100" }, "/obligated_cents"],
    [{ obligated_cents: 1.5 }, "/obligated_cents"],
    [{ status: "open" }, "/status"],
    [{ period_start: "2025-02-29" }, "/period_start"],
    [{ period_start: "0000-01-01" }, "/period_start"],
    [{ period_end: "2025-1-1" }, "/period_end"],
    [{ period_end: "2025-01-01T00:00:00Z" }, "/period_end"],
    [{ period_start: "2025-02-02", period_end: "2025-02-01" }, "/period_end"],
    [{ time_zone: "Mars/Olympus" }, "/time_zone"],
    [{ time_zone: "+05:00" }, "/time_zone"],
    [{ time_zone: "" }, "/time_zone"],
    [{ liquidation_days: -1 }, "/liquidation_days"],
    [{ liquidation_days: 1e6 }, "/liquidation_days"],
    [{ retention_years: 2 }, "/retention_years"],
    [{ final_report_submitted_on: "soon" }, "/final_report_submitted_on"],
    [{ portals: "east" }, "/portals"],
    [{ portals: [operator.name, operator.name] }, "/portals"],
    [{ portals: [operator.name, "nobody at all"] }, "/portals/1"],
    [{ reason: "" }, "/reason"],
    [{ ceiling: 5 }, "/ceiling"],
    [{ rules_version: 5 }, "/rules_version"],
  ]
  for (const [rules, pointer] of wrong) {
    const reply = await put(award, rules)
    t.match(reply, { status: 400, body: { code: "invalid-request" } }, JSON.stringify(rules))
    t.same(
      reply.body.errors?.map((fault: { pointer: string }) => fault.pointer),
      [pointer],
    )
  }
  t.equal(codeOf(await put(award, { currency: "ZZZ" })), "currency-unknown")
  t.match((await patch(award, { currency: null })).body.errors, [{ pointer: "/currency" }])
  await put(award, { period_start: "2025-01-01", period_end: "2025-12-31" })
  t.match(
    (await patch(award, { period_end: "2024-12-31" })).body.errors,
    [{ pointer: "/period_end" }],
    "against what stays",
  )
  t.match((await patch(award, { period_start: "2026-01-01" })).body.errors, [{ pointer: "/period_start" }])
  t.match((await get(award)).body, { rules_version: 2, period_start: "2025-01-01" })
  t.equal(codeOf(await patch(newAward(), { status: "closed" })), "award-not-found", "a PATCH makes no award")
  const { token } = await newPortal()
  for (const one of [token, auditor.token])
    for (const method of ["PUT", "PATCH"])
      t.equal(
        codeOf(await send(service.url, method, pathOf(award), { token: one, json: { currency: "USD" } })),
        "forbidden",
      )
})

t.test("an award is one, however its id is written, and any legal id works in a path", async (t) => {
  const { id, token } = await newPortal()
  for (const award of [
    "a/b",
    "100%",
    "100%25",
    "#1",
    `"q"`,
    "it's",
    "R&D",
    "two  words",
    "café-é",
    "ǆ",
    "..x",
    "x?y=1",
    "a+b",
    "a;b",
    "ΐ",
    "𝒜1",
  ]) {
    const reply = await put(award, { obligated_cents: 1_000 })
    t.equal(reply.status, 201, award)
    t.equal(reply.body.award_id, award, "kept as sent")
    t.equal((await submit(token, award)).status, 201)
    t.match((await get(award)).body, { award_id: award, disbursed_cents: 100, available_cents: 900 })
    t.match((await get(award.toUpperCase().normalize("NFD"))).body, { award_id: award }, "however it is written")
    t.equal(
      (await send(service.url, "GET", `${pathOf(award)}/history`, { token: operator.token })).body.items.length,
      1,
    )
  }
  t.match((await get(" x")).body, { code: "invalid-request", errors: [{ pointer: "/award_id" }] })
  t.match((await get("x".repeat(101))).body, { code: "invalid-request" })
  await hasEffects(t, sql, id, 16)

  const key = newKey()
  t.equal(
    (
      await postSubmission(service.url, token, null, {
        award_id: "A-2026-014",
        submission_timestamp: "2026-07-01T09:00:00Z",
        amount_cents: 1,
      })
    ).status,
    201,
  )
  t.equal(
    (
      await postSubmission(service.url, token, null, {
        award_id: "a-2026-014",
        submission_timestamp: "2026-07-01T09:00:00Z",
        amount_cents: 1,
      })
    ).status,
    200,
    "by derived key one disbursement",
  )
  t.equal((await submit(token, "a-2026-014", {}, service.url, key)).status, 201)
  t.match((await get("A-2026-014")).body, { award_id: "A-2026-014", disbursed_cents: 101 }, "one award")
})

t.test("of two submissions of 60 against 100 one is recorded, the other told what was left", async (t) => {
  const { id, token } = await newPortal()
  const n = rounds(50)
  for (let round = 0; round < n; round++) {
    const award = newAward()
    await put(award, { obligated_cents: 100 })
    const replies = await Promise.all(bothUrls.map((url) => submit(token, award, { amount_cents: 60 }, url)))
    const [won, lost] = replies.toSorted((a, b) => a.status - b.status)
    t.match(won, { status: 201, body: { award: { disbursed_cents: 60, available_cents: 40 } } })
    t.match(lost, { status: 409, body: { code: "award-funds-exceeded", available_cents: 40 } })
    t.match((await get(award)).body, { disbursed_cents: 60, net_cents: 60, available_cents: 40 })
  }
  await hasEffects(t, sql, id, n)
})

t.test("an answer says what a ceiling leaves, and nothing where there is none", async (t) => {
  const { token } = await newPortal()
  const award = newAward()
  const open = await submit(token, award)
  t.notOk("award" in open.body)
  await put(award, { obligated_cents: 1_000 })
  const key = newKey()
  const capped = await submit(token, award, { amount_cents: 150 }, service.url, key)
  t.same(capped.body.award, { disbursed_cents: 250, available_cents: 750 })
  t.same(Object.keys(capped.body).slice(-3), ["recorded_at", "award", "warnings"])
  await put(award, { obligated_cents: 250, status: "closed" })
  const again = await submit(token, award, { amount_cents: 150 }, service.url, key)
  t.equal(again.status, 200, "a replay asks no rule")
  t.equal(again.text, capped.text, "and says what was left then")
  t.match((await submit(token, award)).body, { code: "award-not-active" })
  await put(award, { obligated_cents: 250 })
  t.match((await submit(token, award)).body, { code: "award-funds-exceeded", available_cents: 0 })
})

t.test("status, period, currency and portals are the award's; a refused key may be used again", async (t) => {
  const { name, token } = await newPortal()
  const award = newAward()
  const cases: [object, object, string][] = [
    [{ status: "suspended" }, {}, "award-not-active"],
    [{ status: "closed" }, {}, "award-not-active"],
    [
      { period_end: "2025-06-30", time_zone: "America/New_York" },
      { submission_timestamp: "2025-07-01T04:00:00Z" },
      "award-period-closed",
    ],
    [
      { period_start: "2025-07-02", time_zone: "Pacific/Kiritimati" },
      { submission_timestamp: "2025-07-01T09:59:59Z" },
      "award-period-closed",
    ],
    [{ currency: "EUR" }, {}, "currency-mismatch"],
    [{ portals: [operator.name] }, {}, "award-not-permitted"],
    [{ portals: [] }, {}, "award-not-permitted"],
  ]
  const key = newKey()
  for (const [rules, change, code] of cases) {
    await put(award, rules)
    const reply = await submit(token, award, change, service.url, key)
    t.match(reply, {
      status: code === "award-not-permitted" ? 403 : 409,
      body: { code, outcome: "not_applied", retry: "after-fixing" },
    })
  }
  const fitting: [object, object][] = [
    [
      { period_end: "2025-06-30", time_zone: "America/New_York" },
      { submission_timestamp: "2025-07-01T03:59:59.999999Z" },
    ],
    [{ period_start: "2025-07-02", time_zone: "Pacific/Kiritimati" }, { submission_timestamp: "2025-07-01T10:00:00Z" }],
    [{ period_end: "2025-06-30", liquidation_days: 1 }, { submission_timestamp: "2025-07-01T23:59:59Z" }],
    [{ portals: [operator.name, name] }, {}],
  ]
  for (const [rules, change] of fitting) {
    await put(award, rules)
    t.equal((await submit(token, award, change)).status, 201, JSON.stringify(rules))
  }
  await patch(award, { portals: null })
  t.equal((await submit(token, award, {}, service.url, key)).status, 201, "the key that was refused")
  t.equal(codeOf(await put(award, { currency: "EUR" })), "currency-mismatch", "with lines there the currency stays")
})

t.test("where awards must be registered, one that was only opened is not found", async (t) => {
  const { token } = await newPortal()
  const strict = await serve(
    readConfig({ PORT: "0", DATABASE_URL: service.databaseUrl, GRANTGATE_AWARDS: "registered" }),
    makeLogger("silent"),
  )
  t.teardown(() => strict.stop())
  const award = newAward()
  t.equal(codeOf(await submit(token, award, {}, strict.url)), "award-not-found")
  t.equal(codeOf(await get(award)), "award-not-found", "and a refusal opens none")
  await submit(token, award)
  t.match((await get(award)).body, { rules_version: 0, disbursed_cents: 100 })
  t.equal(codeOf(await submit(token, award, {}, strict.url)), "award-not-found")
  t.match(
    await put(award, {}),
    { status: 200, body: { rules_version: 1, disbursed_cents: 100 } },
    "registered as it is",
  )
  t.equal((await submit(token, award, {}, strict.url)).status, 201)
})

t.test("a portal sees the awards that name it and those it has drawn on; others see all", async (t) => {
  const east = await newPortal()
  const west = await newPortal()
  const [named, drawn, both, open, foreign] = Array.from({ length: 5 }, newAward) as [
    string,
    string,
    string,
    string,
    string,
  ]
  await put(named, { portals: [east.name] })
  await put(both, { portals: [west.name, east.name] })
  await put(open, {})
  await put(foreign, { portals: [west.name] })
  for (const award of [drawn, both, drawn]) await submit(east.token, award)
  await submit(west.token, drawn)
  const idsOf = async (token: string) => (await readAll("/v1/awards", token, 1)).map((item) => item.award_id)
  t.same(await idsOf(east.token), [named, drawn, both].sort(), "each once, in order")
  t.same(await idsOf(west.token), [drawn, both, foreign].sort())
  t.same(await idsOf((await newPortal()).token), [])
  for (const { token } of [operator, auditor]) {
    const all = (await readAll("/v1/awards", token, 7)).map((item) => item.award_id)
    t.equal(new Set(all).size, all.length)
    t.ok([named, drawn, both, open, foreign].every((award) => all.includes(award)))
  }
  for (const award of [named, drawn, both]) t.equal((await get(award, east.token)).status, 200)
  for (const award of [open, foreign, newAward()])
    t.match((await get(award, east.token)).body, { code: "award-not-found" })
  await put(named, {})
  t.equal(codeOf(await get(named, east.token)), "award-not-found", "no longer named")
  const page = await send(service.url, "GET", "/v1/awards?limit=1", { token: east.token })
  for (const [token, cursor] of [
    [west.token, page.body.next_cursor],
    [east.token, "nope"],
    [east.token, Buffer.from("[2]").toString("base64url")],
  ])
    t.equal(codeOf(await send(service.url, "GET", `/v1/awards?limit=1&cursor=${cursor}`, { token })), "invalid-cursor")
})

t.test("every change is kept, with who, when, why, before and after, and cannot be changed", async (t) => {
  const award = newAward()
  const other = await newPortal("operator")
  await put(award, { obligated_cents: 100, reason: "Notice of award" })
  await send(service.url, "PATCH", pathOf(award), { token: other.token, json: { obligated_cents: 200 } })
  await put(award, { obligated_cents: 200 })
  await patch(award, { status: "closed", reason: "Final report accepted" })
  const versions = await readAll(`${pathOf(award)}/history`, auditor.token, 1)
  t.match(versions, [
    {
      rules_version: 1,
      changed_by: operator.name,
      reason: "Notice of award",
      before: null,
      after: { ...defaults, obligated_cents: 100 },
    },
    {
      rules_version: 2,
      changed_by: other.name,
      reason: null,
      before: { obligated_cents: 100 },
      after: { obligated_cents: 200 },
    },
    {
      rules_version: 3,
      changed_by: operator.name,
      reason: "Final report accepted",
      before: { status: "active" },
      after: { status: "closed" },
    },
  ])
  t.same(Object.keys(versions[0].after).sort(), Object.keys(defaults).sort(), "the members of the rules")
  t.same(
    versions.map((version) => version.changed_at),
    versions.map((version) => version.changed_at).sort(),
  )

  const actions = await send(service.url, "GET", `/v1/operator-actions?subject=${award.toLowerCase()}`, {
    token: auditor.token,
  })
  t.match(actions.body.items, [
    {
      action: "award.rules",
      subject: award,
      portal: operator.name,
      before: null,
      after: versions[0].after,
      request_id: /./,
    },
    { action: "award.rules", subject: award, portal: other.name },
    {
      action: "award.rules",
      subject: award,
      portal: operator.name,
      before: versions[1].after,
      after: versions[2].after,
    },
  ])
  for (const table of ["award_rules", "operator_actions"]) {
    await t.rejects(sql`DELETE FROM ${sql(table)}`, { code: "23001" }, `${table} is append-only`)
  }
  const { token } = await newPortal()
  for (const path of [`${pathOf(award)}/history`, "/v1/operator-actions"])
    t.equal(codeOf(await send(service.url, "GET", path, { token })), "forbidden")
  t.equal(
    codeOf(await send(service.url, "GET", `${pathOf(newAward())}/history`, { token: auditor.token })),
    "award-not-found",
  )
  const opened = newAward()
  await submit(token, opened)
  t.same((await send(service.url, "GET", `${pathOf(opened)}/history`, { token: auditor.token })).body.items, [])
})

t.test("what operators do to portals is kept too, and no token with it", async (t) => {
  const { id, token } = await newPortal()
  const added = await send(service.url, "POST", `/v1/portals/${id}/tokens`, { token: operator.token })
  const revoke = () =>
    send(service.url, "DELETE", `/v1/portals/${id}/tokens/${added.body.id}`, { token: operator.token })
  await revoke()
  await revoke()
  const { body, text } = await send(service.url, "GET", `/v1/operator-actions?subject=${id}`, { token: auditor.token })
  t.match(body.items, [
    { action: "portal.create", portal: "bootstrap", before: null, after: { role: "portal", key_required: false } },
    { action: "token.add", portal: operator.name, after: { token_id: added.body.id } },
    { action: "token.revoke", portal: operator.name, before: { token_id: added.body.id } },
  ])
  t.equal(body.items.length, 3, "a repeat is none")
  t.notOk(text.includes(token) || text.includes(added.body.token))
})

/** Accepted answers in the order in which the award took them: each says what it left, and none is left out. */
function isOneAccount(t: Test, ceiling: number, accepted: readonly Reply[], from = 0): void {
  let disbursed = from
  const wrong: unknown[] = []
  for (const { body } of accepted.toSorted((a, b) => a.body.award.disbursed_cents - b.body.award.disbursed_cents)) {
    disbursed += body.amount_cents
    const { disbursed_cents, available_cents } = body.award
    if (disbursed_cents !== disbursed || available_cents !== ceiling - disbursed) wrong.push(body.award, disbursed)
  }
  t.same(wrong, [], "each answer goes on from the one before it")
}

t.test(
  "a storm by two servers on one ceiling: all that fits is taken, every answer is exact, nobody starves",
  async (t) => {
    const { id, token } = await newPortal()
    const n = rounds(10)
    const total = { sent: 0, accepted: 0 }
    for (let round = 0; round < n; round++) {
      const award = newAward()
      // Half of what is sent fits, and it all but fills the ceiling.
      const ceiling = 64 * 100 + 50
      await put(award, { obligated_cents: ceiling })
      const replies = await Promise.all(
        bothUrls.flatMap((url) => Array.from({ length: 64 }, () => submit(token, award, { amount_cents: 100 }, url))),
      )
      const accepted = replies.filter(({ status }) => status === 201)
      t.equal(accepted.length, 64)
      const others = replies.filter(({ status }) => status !== 201)
      t.same([...new Set(others.map(codeOf))], ["award-funds-exceeded"], "the others do not fit, and no other reason")
      t.same(
        [...new Set(others.map(({ body }) => body.available_cents))],
        [50],
        "who did not fit learns what was left then",
      )
      isOneAccount(t, ceiling, accepted)
      t.match((await get(award)).body, { disbursed_cents: 6_400, available_cents: 50 })
      total.sent += replies.length
      total.accepted += accepted.length
    }
    await hasEffects(t, sql, id, total.accepted)
  },
)

t.test(
  "once a change of the rules is answered nobody is accepted under the old ones, whatever storms around it",
  async (t) => {
    const { id, token } = await newPortal()
    const n = rounds(25)
    let accepted = 0
    for (let round = 0; round < n; round++) {
      const award = newAward()
      await put(award, round % 2 === 0 ? { obligated_cents: max } : {})
      let changed = false
      const late: unknown[] = []
      const storm = bothUrls.flatMap((url) =>
        Array.from({ length: 8 }, async () => {
          for (let i = 0; i < 12; i++) {
            const sentAfter = changed
            const reply = await submit(token, award, { amount_cents: 1 }, url)
            if (reply.status === 201) accepted += 1
            if (![201, "award-not-active"].includes(codeOf(reply) as never)) late.push(reply.text)
            if (reply.status === 201 && sentAfter) late.push("accepted under the old rules")
          }
        }),
      )
      const closed = await patch(award, { status: "closed" }, bothUrls[round % 2 === 0 ? 0 : 1])
      changed = true
      t.equal(closed.status, 200)
      await Promise.all(storm)
      t.same(late, [])
      t.equal((await get(award)).body.disbursed_cents, closed.body.disbursed_cents, "nothing came after it")
    }
    await hasEffects(t, sql, id, accepted)
  },
)

t.test("a submission whose award changes between its decision and its writing is decided again", async (t) => {
  const { token } = await newPortal()
  for (const [rules, change, expected] of [
    [{ obligated_cents: 1_000 }, "status = 'closed', rules_version = rules_version + 1", "award-not-active"],
    [{}, "portals = '{}', rules_version = rules_version + 1", "award-not-permitted"],
    [{ obligated_cents: 1_000 }, "disbursed_cents = 950", "award-funds-exceeded"],
    [{}, "obligated_cents = 99, rules_version = rules_version + 1", "award-funds-exceeded"],
  ] as const) {
    const award = newAward()
    await put(award, rules)
    const waiting = await sql.begin(async (holder) => {
      await holder.unsafe(`UPDATE awards SET ${change} WHERE award_key = '${award}'`)
      const reply = submit(token, award)
      // It has read the award as it was, and waits for the row to write onto.
      for (let seen = 0; seen === 0; ) {
        const [row] = await sql`SELECT count(*)::int AS n FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`
        seen = row?.n
      }
      return { reply }
    })
    t.equal(codeOf(await waiting.reply), expected, change)
  }
})

t.test("a ceiling is never set below the net, and the net never passes it, however the two race", async (t) => {
  const { id, token } = await newPortal()
  const n = rounds(25)
  let accepted = 0
  for (let round = 0; round < n; round++) {
    const award = newAward()
    await put(award, { obligated_cents: 10_000 })
    const replies = await Promise.all(
      Array.from({ length: 32 }, (_, i) =>
        i % 4 === 3
          ? patch(award, { obligated_cents: 50 * i }, bothUrls[round % 2 === 0 ? 0 : 1])
          : submit(token, award, { amount_cents: 50 }, bothUrls[i % 2 === 0 ? 0 : 1]),
      ),
    )
    accepted += replies.filter(({ status }) => status === 201).length
    // Eight changes one behind the other may hold the award for longer than a submission waits.
    const allowed = [200, 201, "ceiling-below-net", "award-funds-exceeded", "award-busy"]
    t.same(
      replies.filter((reply) => !allowed.includes(codeOf(reply))).map(({ text }) => text),
      [],
    )
    for (const [i, reply] of replies.entries())
      if (reply.body.code === "ceiling-below-net") t.ok(reply.body.net_cents > 50 * i, "it says how much is disbursed")
    const { obligated_cents, net_cents, available_cents } = (await get(award)).body
    t.ok(net_cents <= obligated_cents && available_cents === obligated_cents - net_cents)
  }
  await hasEffects(t, sql, id, accepted)
})

t.test("a change waits for an award that is held, two seconds at most, and stalls no reads", async (t) => {
  const award = newAward()
  await put(award, {})
  let letGo!: () => void
  const released = new Promise<void>((resolve) => {
    letGo = resolve
  })
  await new Promise<void>((resolve) => {
    void sql.begin(async (holder) => {
      await holder`SELECT 1 FROM awards WHERE award_key = ${award} FOR UPDATE`
      resolve()
      await released
    })
  })
  const started = performance.now()
  // More than may wait side by side.
  const held = ["closed", "suspended", "closed"].map((status) => patch(award, { status }))
  const meanwhile = await Promise.all(Array.from({ length: 20 }, () => get(award)))
  t.ok(meanwhile.every(({ status }) => status === 200) && performance.now() - started < 1_500, "reads go on")
  for (const reply of await Promise.all(held)) {
    t.match(reply, {
      status: 503,
      body: { code: "award-busy", outcome: "not_applied" },
      headers: { "retry-after": "1" },
    })
  }
  t.ok(performance.now() - started < 4_000)
  letGo()
  t.match(await patch(award, { status: "closed" }), { status: 200, body: { rules_version: 2 } })
})

t.test("many who register one award at once make it once, also while a submission opens it", async (t) => {
  const { token } = await newPortal()
  const n = rounds(25)
  for (let round = 0; round < n; round++) {
    const award = newAward()
    const replies = await Promise.all([
      ...bothUrls.flatMap((url) => [
        put(award, { liquidation_days: 5 }, url),
        put(award, { liquidation_days: 5 }, url),
      ]),
      ...bothUrls.map((url) => submit(token, award, {}, url)),
    ])
    t.same(
      [...new Set(replies.map(({ status }) => status))].filter((status) => status !== 200),
      [201],
    )
    const { body } = await get(award)
    t.match(body, { rules_version: 1, liquidation_days: 5, disbursed_cents: 200 })
    const versions = await send(service.url, "GET", `${pathOf(award)}/history`, { token: auditor.token })
    t.equal(versions.body.items.length, 1)
  }
})

t.test("no request of this file met the database's own guard, or failed otherwise", async (t) => {
  t.same(
    service.log.filter(({ level }) => Number(level) >= 50),
    [],
  )
})
