/** The shell around every route: order of checks, problems on every path, tokens and roles, what the log says and does not say. */
import t, { type Test } from "tap"
import { readConfig } from "../../src/config.js"
import { Reads } from "../../src/db/client.js"
import { buildApp } from "../../src/http/app.js"
import type { AppDeps } from "../../src/http/deps.js"
import { Problem, problems } from "../../src/problems.js"
import { type Answer, sendRaw, startService } from "../support/service.js"

const json = { "content-type": "application/json" }
const submission = { award_id: "A-2026-014", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 125_000 }

/** Asserts that the answer is a whole problem with this code. */
function isProblem(t: Test, answer: Answer, code: keyof typeof problems, about: string = code): void {
  const kind = problems[code]
  t.equal(answer.status, kind.status, `${about}: status`)
  t.equal(answer.headers.get("content-type"), "application/problem+json", `${about}: media type`)
  t.match(answer.body, { title: kind.title, status: kind.status, code, retry: kind.retry, detail: /\S/ }, about)
  t.match(answer.body.type, new RegExp(`^http://.+/problems/${code}$`), `${about}: type`)
  t.ok(["not_applied", "applied", "unknown"].includes(answer.body.outcome), `${about}: outcome`)
  t.equal(answer.body.instance, answer.headers.get("request-id"), `${about}: instance is the request's id`)
  t.equal(answer.headers.get("cache-control"), "no-store", `${about}: not cached`)
}

t.test("each check comes before the next", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const auditor = await service.portal("audit", "auditor")
  const big = Buffer.alloc(70_000, 0x20)

  const order: [string, keyof typeof problems, Answer][] = [
    ["no token, unknown path", "unauthenticated", await service.call("GET", "/v1/nope", { token: null })],
    ["no token, unknown path with escapes", "unauthenticated", await service.call("GET", "/v1/%zz", { token: null })],
    ["no token, wrong method", "unauthenticated", await service.call("PUT", "/v1/submissions", { token: null })],
    [
      "no token, bad body",
      "unauthenticated",
      await service.call("POST", "/v1/submissions", { token: null, body: "{" }),
    ],
    ["unknown token", "unauthenticated", await service.call("GET", "/v1/me", { token: `gg_${"a".repeat(43)}` })],
    ["not a token", "unauthenticated", await service.call("GET", "/v1/me", { token: "x y" })],
    [
      "another scheme",
      "unauthenticated",
      await service.call("GET", "/v1/me", { token: null, headers: { authorization: `Basic ${token}` } }),
    ],
    [
      "wrong role, bad body",
      "forbidden",
      await service.call("POST", "/v1/submissions", { token: auditor.token, body: big }),
    ],
    ["unknown path", "not-found", await service.call("GET", "/v1/nope", { token })],
    [
      "unknown path with a bad body",
      "not-found",
      await service.call("POST", "/v1/nope", { token, body: "{", headers: json }),
    ],
    ["bad escape", "invalid-request", await service.call("GET", "/v1/idempotency-keys/%zz", { token })],
    [
      "wrong method",
      "method-not-allowed",
      await service.call("PUT", "/v1/submissions", { token, body: "{", headers: json }),
    ],
    ["method of WebDAV", "method-not-allowed", await service.call("PROPFIND", "/v1/me", { token })],
    [
      "wrong media type and too large",
      "media-type-unsupported",
      await service.call("POST", "/v1/submissions", { token, body: big, headers: { "content-type": "text/plain" } }),
    ],
    [
      "no media type",
      "media-type-unsupported",
      await service.call("POST", "/v1/submissions", { token, body: Buffer.from("{}") }),
    ],
    [
      "content encoding",
      "media-type-unsupported",
      await service.call("POST", "/v1/submissions", {
        token,
        body: big,
        headers: { ...json, "content-encoding": "gzip" },
      }),
    ],
    [
      "another charset",
      "media-type-unsupported",
      await service.call("POST", "/v1/submissions", {
        token,
        body: "{}",
        headers: { "content-type": "application/json; charset=latin1" },
      }),
    ],
    [
      "too large and malformed",
      "body-too-large",
      await service.call("POST", "/v1/submissions", { token, body: big, headers: json }),
    ],
    [
      "malformed",
      "malformed-json",
      await service.call("POST", "/v1/submissions", { token, body: "{", headers: { ...json, "idempotency-key": "" } }),
    ],
    ["empty", "malformed-json", await service.call("POST", "/v1/submissions", { token, headers: json })],
    ["no body at all", "malformed-json", await service.call("POST", "/v1/submissions", { token })],
    [
      "schema before key",
      "invalid-request",
      await service.call("POST", "/v1/submissions", { token, json: {}, headers: { "idempotency-key": "" } }),
    ],
    [
      "key",
      "idempotency-key-invalid",
      await service.call("POST", "/v1/submissions", { token, json: submission, headers: { "idempotency-key": "" } }),
    ],
    ["outside /v1", "not-found", await service.call("GET", "/nope", { token: null })],
    [
      "outside /v1, wrong method",
      "method-not-allowed",
      await service.call("POST", "/livez", { token: null, body: "{", headers: json }),
    ],
  ]
  for (const [about, code, answer] of order) isProblem(t, answer, code, about)

  const allow = (await service.call("PUT", "/v1/submissions", { token })).headers.get("allow")
  t.equal(allow, "POST", "405 names the methods that there are")
  const none = await service.call("GET", "/v1/me", { token: null })
  t.equal(none.headers.get("www-authenticate"), 'Bearer realm="grantgate"')
  const wrong = await service.call("GET", "/v1/me", { token: "wrong" })
  t.equal(wrong.headers.get("www-authenticate"), 'Bearer realm="grantgate", error="invalid_token"')
  t.equal(
    (await service.call("GET", "/v1/me", { token: null, headers: { authorization: `bearer ${token}` } })).status,
    200,
  )

  const { body } = await service.call("POST", "/v1/portals", { json: { name: "", role: "king", "a/b~": 1 } })
  t.same(
    body.errors.map((fault: { pointer: string }) => fault.pointer).sort(),
    ["/a~1b~0", "/name", "/role"],
    "every fault, each with its pointer",
  )
  const query = await service.call("GET", "/v1/disbursements?limit=0&limits=3&from=2026-02-30T00:00:00Z")
  isProblem(t, query, "invalid-request", "query")
  t.same(query.body.errors.map((fault: { pointer: string }) => fault.pointer).sort(), ["/from", "/limit", "/limits"])
})

t.test("bytes that make no request are answered by a problem, and the connection ends", async (t) => {
  const service = await startService(t)
  const cases: [string, string, number][] = [
    ["garbage", "\x16\x03\x01 hello\r\n\r\n", 400],
    ["a bad header", "GET /livez HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400],
    ["two lengths", "POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400],
    ["headers without end", `GET /livez HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(20_000)}\r\n\r\n`, 431],
    ["a tunnel", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400],
    ["no Host", "GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n", 400],
    ["two Hosts", "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", 400],
  ]
  for (const [about, bytes, status] of cases) {
    const text = await sendRaw(service.url, bytes)
    const [head = "", body = ""] = text.split("\r\n\r\n")
    t.match(head, new RegExp(`^HTTP/1.1 ${status} `), about)
    t.match(head.toLowerCase(), /content-type: application\/problem\+json\r?$/m, `${about}: media type`)
    t.match(JSON.parse(body), { code: "invalid-request", status, outcome: "not_applied", instance: /./ }, about)
  }
  t.match(await sendRaw(service.url, "GET /livez HTTP/1.0\r\n\r\n"), /^HTTP\/1.1 200 /, "HTTP/1.0 needs no Host")
  const expecting = "GET /livez HTTP/1.1\r\nHost: a\r\nExpect: much\r\nConnection: close\r\n\r\n"
  t.match(await sendRaw(service.url, expecting), /^HTTP\/1.1 200 /, "an unknown expectation is ignored")
  t.equal((await service.call("GET", "/livez")).status, 200, "others are served on")
})

t.test("a body over the limit is refused in words, not by a broken connection", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  for (const size of [65_537, 1_000_000, 8_000_000]) {
    const answer = await service.call("POST", "/v1/submissions", {
      token,
      body: Buffer.alloc(size, 0x20),
      headers: json,
    })
    isProblem(t, answer, "body-too-large", `${size} bytes`)
  }
  const chunked =
    "POST /v1/submissions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
  const body = `${(70_000).toString(16)}\r\n${" ".repeat(70_000)}\r\n0\r\n\r\n`
  const text = await sendRaw(
    service.url,
    `${chunked}Authorization: Bearer ${token}\r\nConnection: close\r\n\r\n${body}`,
  )
  t.match(text, /^HTTP\/1.1 413 /, "chunked")
})

t.test("what fails inside shows none of its text", async (t) => {
  const secret = "select * from secrets where amount = 4711"
  const failing = (error: unknown): AppDeps => ({
    config: readConfig({}),
    reads: { run: () => Promise.reject(error) } as unknown as Reads,
    gate: {} as AppDeps["gate"],
  })
  const cases: [unknown, keyof typeof problems][] = [
    [new TypeError(secret), "internal"],
    [Object.assign(new Error(secret), { code: "ERR_INVALID_ARG_TYPE" }), "internal"],
    [Object.assign(new Error(secret), { code: "23505" }), "internal"],
    [secret, "internal"],
    [Object.assign(new Error(secret), { code: "ECONNREFUSED" }), "unavailable"],
    [new Error(secret, { cause: Object.assign(new Error(secret), { code: "57P01" }) }), "unavailable"],
    [new Problem("award-busy", "held"), "award-busy"],
  ]
  for (const [error, code] of cases) {
    const app = buildApp(failing(error))
    const token = `gg_${"a".repeat(43)}`
    const answer = await app.inject({ method: "GET", url: "/v1/me", headers: { authorization: `Bearer ${token}` } })
    t.equal(answer.statusCode, problems[code].status)
    t.equal(answer.headers["content-type"], "application/problem+json")
    t.match(answer.json(), { code, status: problems[code].status, instance: answer.headers["request-id"] })
    t.notMatch(answer.payload, /secrets|4711/)
    t.equal(answer.headers["retry-after"], "retryAfter" in problems[code] ? "1" : undefined)
    await app.close()
  }
})

t.test("a route under /v1 without roles stops the start", async (t) => {
  const deps = {
    config: readConfig({}),
    reads: new Reads("postgres://127.0.0.1/x", { max: 1, preparedStatements: false }),
    gate: {} as AppDeps["gate"],
  }
  const app = buildApp(deps)
  app.register(async (scope) => {
    scope.get("/v1/forgotten", async () => "open to all")
  })
  await t.rejects(async () => app.ready(), /must declare config.roles/)
  await deps.reads.end()
})

t.test("the problem pages are the catalogue's", async (t) => {
  const service = await startService(t)
  const list = await service.call("GET", "/problems", { token: null })
  t.match(list.headers.get("content-type"), "text/html")
  for (const [code, kind] of Object.entries(problems)) {
    t.match(list.text, `/problems/${code}"`, `${code} is listed`)
    const page = await service.call("GET", `/problems/${code}`, { token: null })
    t.equal(page.status, 200, code)
    t.ok(
      page.text.includes(`<td>${kind.status}</td>`) && page.text.includes(`<code>${code}</code>`),
      `${code} has its page`,
    )
    t.notMatch(page.text, /`|undefined/, `${code} is set in type`)
  }
  isProblem(t, await service.call("GET", "/problems/nope", { token: null }), "not-found")
  const { body } = await service.call("GET", "/v1/me", { token: null })
  t.equal((await fetch(body.type)).status, 200, "a problem's type leads to its page")
})

t.test("each role may do its own", async (t) => {
  const service = await startService(t)
  const tokens: Record<string, string> = {}
  for (const role of ["portal", "operator", "auditor"] as const) tokens[role] = (await service.portal(role, role)).token
  const table: [string, string, unknown, string[]][] = [
    ["POST", "/v1/submissions", submission, ["portal"]],
    ["GET", "/v1/disbursements", undefined, ["portal", "operator", "auditor"]],
    ["GET", "/v1/me", undefined, ["portal", "operator", "auditor"]],
    ["GET", "/v1/conflicts", undefined, ["operator", "auditor"]],
    ["GET", "/v1/portals", undefined, ["operator", "auditor"]],
    ["POST", "/v1/portals", { name: "x", role: "portal" }, ["operator"]],
    ["DELETE", "/v1/idempotency-keys/k", undefined, ["portal"]],
    ["GET", "/metrics", undefined, ["operator", "auditor"]],
  ]
  for (const [method, path, body, allowed] of table) {
    for (const [role, token] of Object.entries(tokens)) {
      const answer = await service.call(method, path, { token, ...(body === undefined ? {} : { json: body }) })
      if (allowed.includes(role)) t.ok(answer.status < 300, `${role} may ${method} ${path}`)
      else isProblem(t, answer, "forbidden", `${role} may not ${method} ${path}`)
    }
  }
  isProblem(t, await service.call("GET", "/metrics", { token: null }), "unauthenticated")
  const { body } = await service.call("GET", "/v1/me", { token: tokens.auditor ?? "" })
  t.same(body, { portal: "auditor", role: "auditor", key_required: false })
})

t.test("one line a request, without a value of it", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const key = "secret-key-0123456789-tail"
  const send = () =>
    service.call("POST", "/v1/submissions", {
      token,
      json: {
        ...submission,
        amount_cents: 987_654_321,
        submission_id: "SECRET-ID",
        invoice_ref: "SECRET-REF",
        details: { who: "SECRET-WHO" },
      },
      headers: { "idempotency-key": key, "x-secret": "SECRET-HEADER" },
    })
  const first = await send()
  const second = await send()
  await service.call("GET", `/v1/idempotency-keys/${key}`, { token })
  await service.call("GET", "/v1/disbursements?award_id=SECRET-AWARD", { token })
  await service.call("GET", "/v1/SECRET-PATH", { token })
  await service.call("POST", "/v1/submissions", { token, json: { award_id: "SECRET-INVALID" } })
  await service.stop()

  const text = JSON.stringify(service.log)
  t.notMatch(text, /SECRET|987654321|0123456789-tail|gg_/, "no value, no path, no token")
  const lines = service.log.filter((line) => line.route === "/v1/submissions")
  t.match(lines, [
    {
      level: "info",
      msg: "recorded",
      key: key.slice(0, 12),
      award_id: "A-2026-014",
      status: 201,
      portal: "east",
      ms: Number,
    },
    { level: "info", msg: "replayed", key: key.slice(0, 12), award_id: "A-2026-014", status: 200, portal: "east" },
    { level: "info", msg: "request", status: 400 },
  ])
  t.equal(lines.length, 3, "one each")
  t.same(
    lines.slice(0, 2).map((line) => line.request_id),
    [first, second].map(({ headers }) => headers.get("request-id")),
  )
  t.match(
    service.log.find((line) => line.status === 404),
    { route: "unknown" },
  )
})

t.test("metrics count outcomes and name nobody", async (t) => {
  const service = await startService(t, { metricsPublic: true })
  const { token } = await service.portal("east-of-eden")
  for (const amount_cents of [1, 1, 2, 0]) {
    await service.call("POST", "/v1/submissions", {
      token,
      json: { ...submission, amount_cents },
      headers: { "idempotency-key": "k-metrics" },
    })
  }
  const { status, text } = await service.call("GET", "/metrics", { token: null })
  t.equal(status, 200, "public when configured so")
  for (const outcome of ["recorded", "replayed", "conflict"]) {
    t.match(text, `grantgate_submissions_total{operation="submission",outcome="${outcome}"} 1`)
  }
  t.match(
    text,
    /grantgate_http_request_duration_seconds_count\{method="POST",route="\/v1\/submissions",status="201"\} 1/,
  )
  t.match(text, /grantgate_gate_members 0/)
  t.notMatch(text, /eden|k-metrics|A-2026/)
})

t.test("it is alive while its database is away, and not ready", async (t) => {
  const reads = new Reads("postgres://127.0.0.1:1/nowhere", { max: 1, preparedStatements: false })
  const app = buildApp({ config: readConfig({}), reads, gate: {} as AppDeps["gate"] })
  t.equal((await app.inject("/livez")).statusCode, 200)
  const ready = await app.inject("/readyz")
  t.match(ready.json(), { code: "unavailable", status: 503, outcome: "not_applied" })
  t.equal(ready.headers["retry-after"], "1")
  app.stopping = true
  t.equal((await app.inject("/readyz")).statusCode, 503)
  t.equal((await app.inject("/livez")).statusCode, 200)
  await app.close()
  await reads.end()
})
