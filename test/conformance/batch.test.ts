/** Many submissions in one request: each line as if it had come alone, in order, with nothing lost or doubled wherever the stream is cut. */
import { setTimeout as delay } from "node:timers/promises"
import postgres from "postgres"
import t, { type Test } from "tap"
import { readConfig } from "../../src/config.js"
import { buildApp } from "../../src/http/app.js"
import { makeLogger } from "../../src/http/request-log.js"
import { type Running, serve } from "../../src/serve.js"
import { type LineAnswer, ndjsonOf, openBatch, sendBatch } from "../support/batch.js"
import { hasEffects } from "../support/effects.js"
import { startGate } from "../support/gate.js"
import { postSubmission, send } from "../support/http.js"
import { startProxy } from "../support/proxy.js"
import { startService } from "../support/service.js"

t.setTimeout(300_000)
const service = await startService(t)
const sql = postgres(service.databaseUrl, { max: 4, onnotice: () => {} })
t.teardown(() => sql.end({ timeout: 1 }))

let made = 0
const newPortal = (keyRequired = false) => service.portal(`portal-${++made}`, "portal", keyRequired)
const newAward = (): string => `AWARD-${++made}`
const valid = (more: object = {}): Record<string, unknown> => ({
  award_id: "A-2026-014",
  submission_timestamp: "2025-07-01T09:00:00Z",
  amount_cents: 125_000,
  ...more,
})
const numbered = (n: number, award = newAward()) =>
  Array.from({ length: n }, (_, i) => valid({ award_id: award, amount_cents: i + 1, idempotency_key: `k-${i}` }))
const statuses = (answers: readonly LineAnswer[]): number[] => answers.map(({ status }) => status)

t.test("each line is answered in the order of the lines, with its key and what it recorded", async (t) => {
  const { id, token } = await newPortal()
  const lines = numbered(1_000)
  const answers = await sendBatch(service.url, token, ndjsonOf(lines))
  t.same(
    answers.map(({ line, status, idempotency_key }) => ({ line, status, idempotency_key })),
    lines.map(({ idempotency_key }, i) => ({ line: i + 1, status: 201, idempotency_key })),
  )
  await hasEffects(t, sql, id, 1_000)
  const one = await send(service.url, "GET", `/v1/disbursements/${answers[499]?.disbursement_id}`, { token })
  t.match(one.body, { amount_cents: 500, idempotency_key: "k-499" })
  const again = await sendBatch(service.url, token, ndjsonOf(lines))
  t.ok(
    again.every(({ status }) => status === 200),
    "the same file again: all replays",
  )
  t.same(
    again.map((answer) => answer.disbursement_id),
    answers.map((answer) => answer.disbursement_id),
  )
  await hasEffects(t, sql, id, 1_000)
})

t.test(
  "the same key twice: the first line counts; same content is its replay, other content a conflict, even while it runs",
  async (t) => {
    const { id, token } = await newPortal()
    const award = newAward()
    const twin = { award_id: award, idempotency_key: "twin" }
    const answers = await sendBatch(
      service.url,
      token,
      ndjsonOf([
        valid({ ...twin, amount_cents: 1 }),
        valid({ ...twin, amount_cents: 1 }),
        valid({ ...twin, amount_cents: 2 }),
        // The first is refused, so the key is still free for the second.
        valid({ ...twin, idempotency_key: "free", currency: "ZZZ" }),
        valid({ ...twin, idempotency_key: "free", amount_cents: 3 }),
        valid({ award_id: award, idempotency_key: "s-1", submission_id: "S-1", amount_cents: 4 }),
        valid({ award_id: newAward(), idempotency_key: "s-2", submission_id: "S-1", amount_cents: 4 }),
      ]),
    )
    t.same(statuses(answers), [201, 200, 422, 400, 201, 201, 409])
    const [first, replay, conflict, , , recorded, duplicate] = answers
    t.equal(replay?.disbursement_id, first?.disbursement_id)
    t.match(conflict?.problem, {
      code: "idempotency-key-reused",
      differs: ["/amount_cents"],
      disbursement_id: first?.disbursement_id,
      retry: "new-key",
    })
    t.match(duplicate?.problem, { code: "duplicate-submission", disbursement_id: recorded?.disbursement_id })
    t.equal(conflict?.problem.instance.split(":")[1], "3", "the instance names the line")
    const [kept] = await sql`SELECT request_id FROM conflicts WHERE portal_id = ${id}`
    t.equal(kept?.request_id, conflict?.problem.instance, "and so does the conflict's record")
    await hasEffects(t, sql, id, 3)
  },
)

t.test("whether it came alone or in a batch makes no difference to a retry", async (t) => {
  const { id, token } = await newPortal()
  const body = valid({ award_id: newAward() })
  const alone = await postSubmission(service.url, token, "k-1", body)
  const derivedAlone = await postSubmission(service.url, token, null, body)
  const lines = [
    { ...body, idempotency_key: "k-1" },
    body,
    { ...body, idempotency_key: "k-2", submission_timestamp: "2025-07-01T05:00:00-04:00" },
    { ...body, amount_cents: 7 },
    { ...body, idempotency_key: "k-1", amount_cents: 8, invoice_ref: "I-1" },
  ]
  const answers = await sendBatch(service.url, token, ndjsonOf(lines))
  t.same(statuses(answers), [200, 200, 201, 201, 422])
  t.same(
    answers.slice(0, 2).map((answer) => answer.disbursement_id),
    [alone.body.id, derivedAlone.body.id],
  )
  t.equal(answers[1]?.idempotency_key, derivedAlone.body.idempotency_key)
  t.same(answers[4]?.problem.differs, ["/amount_cents", "/invoice_ref"])

  const again = await postSubmission(service.url, token, "k-2", body)
  t.equal(again.status, 200, "a line is replayed to the single request")
  t.match(again.body, { id: answers[2]?.disbursement_id, status: "recorded", warnings: [] })
  t.equal(
    (await postSubmission(service.url, token, null, { ...body, amount_cents: 7 })).status,
    200,
    "derived keys, too",
  )
  const other = await postSubmission(service.url, token, "k-2", { ...body, amount_cents: 9 })
  t.equal(other.status, 422)
  t.same(other.body.differs, ["/amount_cents"], "the key in the stored line is no difference")
  await hasEffects(t, sql, id, 4)
})

t.test("a line that is wrong in any way is told so, and those around it are recorded", async (t) => {
  const { id, token } = await newPortal(true)
  const award = newAward()
  const good = (key: string) => JSON.stringify(valid({ award_id: award, idempotency_key: key }))
  const bad: [Buffer | string, number, string][] = [
    ["{", 400, "malformed-json"],
    [Buffer.from([0x7b, 0xff, 0x7d]), 400, "malformed-json"],
    [`\ufeff${good("bom")}`, 400, "malformed-json"],
    ['{"award_id":"A","award_id":"B"}', 400, "malformed-json"],
    [good("nul").replace(award, "\\u0000"), 400, "malformed-json"],
    [good("twice").replace("}", ',"idempotency_key":"twice"}'), 400, "malformed-json"],
    [`${good("two")}${good("two")}`, 400, "malformed-json"],
    ["[]", 400, "invalid-request"],
    ["null", 400, "invalid-request"],
    ["1e2", 400, "invalid-request"],
    [good("float").replace("125000", "125000.0"), 400, "invalid-request"],
    [JSON.stringify(valid()), 400, "idempotency-key-required"],
    [JSON.stringify(valid({ idempotency_key: null })), 400, "invalid-request"],
    [JSON.stringify(valid({ idempotency_key: "" })), 400, "idempotency-key-invalid"],
    [JSON.stringify(valid({ idempotency_key: "k".repeat(256) })), 400, "idempotency-key-invalid"],
    [JSON.stringify(valid({ idempotency_key: "ключ" })), 400, "idempotency-key-invalid"],
    [JSON.stringify(valid({ idempotency_key: "x", member: 1 })), 400, "invalid-request"],
    [
      JSON.stringify(valid({ idempotency_key: "x", submission_timestamp: "2099-01-01T00:00:00Z" })),
      400,
      "submission-timestamp-in-future",
    ],
    [JSON.stringify(valid({ idempotency_key: "x", details: { a: "x".repeat(64 * 1024) } })), 413, "body-too-large"],
    ["x".repeat(1024 * 1024), 413, "body-too-large"],
    ["award_id,amount_cents", 400, "malformed-json"],
  ]
  const body: Buffer[] = []
  for (const [i, [line]] of bad.entries())
    body.push(Buffer.from(`${good(`k-${i}`)}\r\n`), Buffer.from(line), Buffer.from(i % 2 === 0 ? "\n" : "\r\n"))
  const answers = await sendBatch(service.url, token, Buffer.concat(body))
  t.equal(answers.length, 2 * bad.length)
  for (const [i, [line, status, code]] of bad.entries()) {
    t.match(answers[2 * i], { line: 2 * i + 1, status: 201, idempotency_key: `k-${i}` })
    const about = String(line).slice(0, 40)
    t.match(answers[2 * i + 1], { line: 2 * i + 2, status, problem: { code, status, outcome: "not_applied" } }, about)
    t.match(
      answers[2 * i + 1]?.problem,
      { type: /\/problems\/[a-z-]+$/, title: /./, detail: /./, retry: "after-fixing" },
      about,
    )
  }
  const [whole] = await sendBatch(service.url, token, JSON.stringify({ amount_cents: "1", idempotency_key: 5 }))
  t.same(
    whole?.problem.errors.map((fault: { pointer: string }) => fault.pointer).sort(),
    ["/amount_cents", "/award_id", "/idempotency_key", "/submission_timestamp"],
    "all faults of a line at once",
  )
  await hasEffects(t, sql, id, bad.length)
})

t.test(
  "blank lines are counted and not answered; a last line needs no end; nothing is answered with nothing",
  async (t) => {
    const { id, token } = await newPortal()
    const line = (n: number) => JSON.stringify(valid({ idempotency_key: `k-${n}`, award_id: "BLANK" }))
    const answers = await sendBatch(service.url, token, `\n\r\n  \t\n${line(1)}\n\n\n${line(2)}\r\n \n${line(3)}`)
    t.same(
      answers.map(({ line, status }) => [line, status]),
      [
        [4, 201],
        [7, 201],
        [9, 201],
      ],
    )
    for (const nothing of ["", "\n", " "]) t.same(await sendBatch(service.url, token, nothing), [])
    t.same(await sendBatch(service.url, token, "\n".repeat(200_000)), [])
    await hasEffects(t, sql, id, 3)
    const tiny = openBatch(service.url, token)
    const text = `${line(3)}\n${line(4)}`
    for (const byte of Buffer.from(text)) await tiny.write(Buffer.of(byte))
    tiny.end()
    t.same(statuses(await tiny.rest()), [200, 201], "byte by byte is the same")
  },
)

t.test("a batch needs a portal's token and its own media type", async (t) => {
  const { token } = await newPortal()
  const auditor = await service.portal("auditor", "auditor")
  const cases: [Record<string, string>, string | null, number][] = [
    [{ "content-type": "application/json" }, token, 415],
    [{ "content-type": "text/csv" }, token, 415],
    [{}, token, 415],
    [{ "content-type": "application/x-ndjson", "content-encoding": "gzip" }, token, 415],
    [{ "content-type": "application/x-ndjson; charset=latin1" }, token, 415],
    [{ "content-type": "application/x-ndjson" }, null, 401],
    [{ "content-type": "application/x-ndjson" }, auditor.token, 403],
    [{ "content-type": "application/x-ndjson; charset=utf-8" }, token, 200],
  ]
  for (const [headers, token, status] of cases) {
    const body = JSON.stringify(valid({ award_id: newAward() }))
    const reply = await send(service.url, "POST", "/v1/submissions/batch", { token, headers, body })
    t.equal(reply.status, status, JSON.stringify(headers))
    if (status === 200) t.match(reply.headers, { "content-type": "application/x-ndjson", "cache-control": "no-store" })
    else t.match(reply.body, { outcome: "not_applied" })
  }
  t.equal((await send(service.url, "GET", "/v1/submissions/batch", { token })).status, 405)
})

/** Another server on the same database, or through a proxy to it. */
async function startBeside(t: Test, databaseUrl: string): Promise<Running> {
  const running = await serve(
    readConfig({ PORT: "0", DATABASE_URL: databaseUrl, GRANTGATE_MIGRATE: "false" }),
    makeLogger("silent"),
  )
  t.teardown(() => running.stop())
  return running
}

/** Batch lines counted so far, whatever became of them. */
const linesLogged = (): number => service.log.filter(({ line }) => line !== undefined).length
const membersInside = async (): Promise<number> => {
  const { text } = await service.call("GET", "/metrics")
  return Number(/^grantgate_gate_members (\d+)$/m.exec(text)?.[1])
}
const until = async (what: () => boolean | Promise<boolean>, ms = 20_000): Promise<void> => {
  for (const end = Date.now() + ms; !(await what()); await delay(20))
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
}

t.test("a client that does not read its answers is not read on, and loses nothing", async (t) => {
  const { token } = await newPortal()
  const wrong = `${JSON.stringify(Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`member_${i}`, i])))}\n`
  const n = 20_000
  const batch = openBatch(service.url, token)
  const before = linesLogged()
  const sending = (async () => {
    for (let i = 0; i < n; i += 100) await batch.write(wrong.repeat(100))
    batch.end()
  })()
  let seen = -1
  let left = 15
  // It has stopped when nothing more is read for a while.
  await until(async () => {
    const now = linesLogged()
    left = now === seen && now > before ? left - 1 : 15
    seen = now
    return left === 0
  })
  t.ok(
    linesLogged() - before < n / 2,
    `only ${linesLogged() - before} of ${n} lines were read while nobody took the answers`,
  )
  const answers = await batch.rest()
  await sending
  t.same(
    answers.map(({ line }) => line),
    Array.from({ length: n }, (_, i) => i + 1),
  )
  t.ok(answers.every(({ status }) => status === 400))
})

t.test(
  "a connection cut anywhere keeps what was recorded, leaves nothing behind, and the whole file again records the rest",
  async (t) => {
    const { id, token } = await newPortal()
    const lines = numbered(1_000)
    const text = ndjsonOf(lines)
    for (let round = 0; round < 8; round++) {
      const batch = openBatch(service.url, token)
      const at = Math.floor((text.length * (round + 1)) / 9)
      await batch.write(text.slice(0, at))
      if (round % 2 === 0) {
        // In the middle of the answers; otherwise before the first.
        for (let i = 0; i < 50 * round + 1; i++) t.match(await batch.next(), { line: i + 1, status: /20[01]/ })
      }
      batch.cut()
    }
    await until(async () => (await membersInside()) === 0)
    const answers = await sendBatch(service.url, token, text)
    t.equal(answers.length, 1_000)
    t.ok(answers.every(({ status }) => status === 200 || status === 201))
    await hasEffects(t, sql, id, 1_000)
    t.ok(
      answers.some(({ status }) => status === 200),
      "something was recorded before a cut",
    )
  },
)

t.test("batches that hold the same keys in opposite orders both end, and each key counts once", async (t) => {
  const { id, token } = await newPortal()
  for (let round = 0; round < 10; round++) {
    const lines = numbered(40, newAward()).map((line, i) => ({
      ...line,
      idempotency_key: `r-${round}-${i}`,
      submission_id: `S-${round}-${i}`,
    }))
    const both = await Promise.all([
      sendBatch(service.url, token, ndjsonOf(lines)),
      sendBatch(service.url, token, ndjsonOf(lines.toReversed())),
    ])
    t.same(statuses(both.flat()).filter((status) => status === 201).length, 40)
    t.same(statuses(both.flat()).filter((status) => status === 200).length, 40)
  }
  await hasEffects(t, sql, id, 400)
})

t.test("however many batches run, a single request is let in, and passes most of what they have waiting", async (t) => {
  const { id, token } = await newPortal()
  const single = await newPortal()
  let sent = 0
  let answered = 0
  let going = true
  const running = Array.from({ length: 8 }, async () => {
    const batch = openBatch(service.url, token)
    const wrong: LineAnswer[] = []
    for (let ahead = 0; going || ahead > 0; ahead--) {
      for (; going && ahead < 1_500; ahead += 100) {
        const from = sent
        sent += 100
        const lines = Array.from({ length: 100 }, (_, i) =>
          valid({ award_id: `TURN-${i}`, idempotency_key: `t-${from + i}` }),
        )
        await batch.write(ndjsonOf(lines))
      }
      const answer = await batch.next()
      answered += 1
      if (answer?.status !== 201) wrong.push(answer as LineAnswer)
    }
    batch.end()
    return [...wrong, ...(await batch.rest())]
  })
  await until(() => linesLogged() > 500)
  const passed: number[] = []
  for (let i = 0; i < 20; i++) {
    const before = service.log.length
    const reply = await postSubmission(service.url, single.token, `single-${i}`, valid({ award_id: `TURN-${i}` }))
    t.equal(reply.status, 201)
    const own = service.log.findIndex((line, at) => at >= before && line.route === "/v1/submissions")
    passed.push(service.log.slice(before, own).filter(({ line }) => line !== undefined).length)
  }
  going = false
  t.same((await Promise.all(running)).flat(), [], "and no line was turned away")
  t.equal(answered, sent)
  t.ok(
    passed.every((n) => n <= 1_024),
    `lines recorded before each single request: ${passed}`,
  )
  await hasEffects(t, sql, single.id, 20)
  await hasEffects(t, sql, id, sent)
})

t.test("an award that is held makes its own lines wait, not those of other batches", async (t) => {
  const { token } = await newPortal()
  const held = newAward()
  await postSubmission(service.url, token, "opens", valid({ award_id: held }))
  let letGo = (): void => {}
  const released = new Promise<void>((resolve) => {
    letGo = resolve
  })
  let holding: Promise<unknown> = Promise.resolve()
  await new Promise<void>((resolve) => {
    holding = sql.begin(async (holder) => {
      await holder`SELECT 1 FROM awards WHERE award_key = ${held} FOR UPDATE`
      resolve()
      await released
    })
  })
  const waiting = openBatch(service.url, token)
  waiting.end(ndjsonOf(numbered(20, held)))
  const others = await sendBatch(
    service.url,
    token,
    ndjsonOf(numbered(200).map((line, i) => ({ ...line, idempotency_key: `o-${i}` }))),
  )
  t.ok(others.every(({ status }) => status === 201))
  letGo()
  await holding
  t.ok((await waiting.rest()).every(({ status }) => status === 201))
})

t.test("a lost database ends the stream with a line that says 503, and the file again records the rest", async (t) => {
  const proxy = await startProxy(t, service.databaseUrl)
  const behind = await startBeside(t, proxy.url)
  const { id, token } = await newPortal()
  const lines = numbered(600)
  const batch = openBatch(behind.url, token)
  await batch.write(ndjsonOf(lines.slice(0, 300)))
  for (let i = 0; i < 300; i++) t.match(await batch.next(), { line: i + 1, status: 201 })
  const lost = proxy.fail("swallow")
  await batch.write(ndjsonOf(lines.slice(300, 600)))
  await lost
  const rest = await batch.rest()
  const last = rest.at(-1)
  t.match(last, { status: 503, problem: { code: "unavailable", retry: "same-key" } })
  t.ok(
    rest.slice(0, -1).every(({ status }) => status === 201),
    "and nothing comes after it",
  )
  proxy.heal()
  const again = await sendBatch(behind.url, token, ndjsonOf(lines))
  t.equal(again.length, 600)
  t.ok(again.every(({ status }) => status === 200 || status === 201))
  await hasEffects(t, sql, id, 600)
})

t.test(
  "asked to stop in the middle of a batch, it answers what it took, says where it stopped, and ends in time",
  async (t) => {
    const stopping = await startBeside(t, service.databaseUrl)
    const { id, token } = await newPortal()
    const lines = numbered(301)
    const batch = openBatch(stopping.url, token)
    await batch.write(`\n${ndjsonOf(lines.slice(0, 300))}${JSON.stringify(lines[300]).slice(0, 40)}`)
    t.match(await batch.next(), { line: 2, status: 201 })
    const silent = openBatch(stopping.url, token)
    await silent.write(JSON.stringify(valid({ idempotency_key: "silent", award_id: newAward() })))
    await silent.write("\n")
    t.match(await silent.next(), { line: 1, status: 201 })
    const from = Date.now()
    const stopped = stopping.stop()
    const rest = await batch.rest()
    const last = rest.pop()
    t.match(last, {
      line: rest.length + 3,
      status: 503,
      problem: { code: "unavailable", outcome: "not_applied", retry: "same-key", detail: /stopping/ },
    })
    t.ok(rest.every(({ status }) => status === 201))
    t.match(await silent.rest(), [{ line: 2, status: 503 }], "a batch that waits for its client is told at once")
    await stopped
    t.ok(Date.now() - from < 9_000)
    await hasEffects(t, sql, id, rest.length + 2)
  },
)

t.test(
  "a batch may take longer than other requests, as long as something moves; when nothing does, it ends and says so",
  async (t) => {
    const { gate, sql } = startGate(t, service.databaseUrl)
    const portal = await newPortal()
    const name = `portal-${made}`
    const app = buildApp({
      config: readConfig({}),
      gate: gate as never,
      reads: {
        run: async () => ({ portalId: portal.id, portal: name, role: "portal", keyRequired: false }),
      } as never,
    })
    t.teardown(() => app.close())
    const url = await app.listen({ port: 0, host: "127.0.0.1" })
    // As in production, only sooner: in all, and without a move.
    app.server.requestTimeout = 1_500
    app.server.timeout = 1_000
    const [line, ...more] = numbered(12).map((one) => `${JSON.stringify(one)}\n`)
    const batch = openBatch(url, `gg_${"a".repeat(43)}`)
    const from = Date.now()
    await batch.write(line ?? "")
    for (const text of more) {
      t.match(await batch.next(), { status: 201 })
      // The pace is the subject: slower than the server checks, quicker than it loses patience.
      await delay(300)
      await batch.write(text)
    }
    t.ok(Date.now() - from > 3_000)
    await batch.write(`\n\n${line?.slice(0, 10)}`)
    const rest = await batch.rest()
    t.match(rest, [
      { line: 12, status: 201 },
      {
        line: 15,
        status: 408,
        problem: { code: "invalid-request", status: 408, outcome: "not_applied", retry: "same-key" },
      },
    ])
    await hasEffects(t, sql, portal.id, 12)
    const alone = await send(url, "POST", "/v1/submissions/batch", { token: `gg_${"a".repeat(43)}`, json: {} })
    t.equal(alone.status, 415, "the server goes on")
  },
)
