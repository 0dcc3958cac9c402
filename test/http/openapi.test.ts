/** The OpenAPI document is true: it is what the code renders, the app answers as it says, its examples work, and a client can be generated from it. */
import { execFile } from "node:child_process"
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import openapiTypescript, { astToString } from "openapi-typescript"
import t, { type Test } from "tap"
import { z } from "zod"
import { readConfig } from "../../src/config.js"
import type { Reads } from "../../src/db/client.js"
import { buildApp } from "../../src/http/app.js"
import type { AppDeps } from "../../src/http/deps.js"
import { renderOpenapi } from "../../src/http/render-openapi.js"
import { Problem, type ProblemCode, problems } from "../../src/problems.js"
import { type Answer, type CallOptions, type Service, startService } from "../support/service.js"

const root = fileURLToPath(new URL("../..", import.meta.url))
const committed = await readFile(join(root, "openapi", "openapi.json"), "utf8")
// biome-ignore lint/suspicious/noExplicitAny: a document of any shape, looked at from all sides
type Json = any
const document: Json = JSON.parse(committed)
const problemType = "application/problem+json"

interface Operation {
  readonly name: string
  readonly method: string
  readonly path: string
  readonly doc: Json
}

const operations: Operation[] = Object.entries<Json>(document.paths).flatMap(([path, item]) =>
  Object.entries<Json>(item).map(([method, doc]) => ({
    name: `${method.toUpperCase()} ${path}`,
    method: method.toUpperCase(),
    path,
    doc,
  })),
)

function operation(name: string): Operation {
  const found = operations.find((one) => one.name === name)
  if (!found) throw new Error(`${name} is not documented`)
  return found
}

/** Every object in the document, the innermost last. */
function* objectsIn(at: Json): Generator<Json> {
  if (at === null || typeof at !== "object") return
  if (!Array.isArray(at)) yield at
  for (const value of Object.values(at)) yield* objectsIn(value)
}

/** Codes of the problems that an operation documents, each with its status. */
function codesOf({ doc }: Operation): { status: number; code: ProblemCode }[] {
  return Object.entries<Json>(doc.responses).flatMap(([status, { content }]) =>
    Object.keys(content?.[problemType]?.examples ?? {}).map((code) => ({
      status: Number(status),
      code: code as ProblemCode,
    })),
  )
}

/** A validator for a schema of the document. An answer's members that are not documented fail it, though clients must bear them. */
function validatorOf(schema: Json): z.ZodType {
  const text = JSON.stringify({ ...schema, $defs: document.components.schemas })
  const local = JSON.parse(text.replaceAll("#/components/schemas/", "#/$defs/"))
  for (const object of objectsIn(local)) {
    if (object.type === "object" && object.properties) object.additionalProperties ??= false
  }
  return z.fromJSONSchema(local)
}

t.test("the committed document is what the code renders", async (t) => {
  t.equal(committed, await renderOpenapi(), "else run: npm run generate")
})

t.test("the document is whole: 3.1, every reference resolves, nothing is unused, names are unique", async (t) => {
  t.match(document.openapi, /^3\.1\./)
  const references = new Set<string>()
  for (const object of objectsIn(document)) if (typeof object.$ref === "string") references.add(object.$ref)
  t.same(
    [...references].sort(),
    Object.keys(document.components.schemas)
      .map((name) => `#/components/schemas/${name}`)
      .sort(),
    "components are those referred to",
  )
  const ids = operations.map(({ doc }) => doc.operationId)
  t.equal(new Set(ids).size, ids.length, "each operationId once")
  const tags = new Set(document.tags.map((tag: Json) => tag.name))
  t.same(new Set(operations.flatMap(({ doc }) => doc.tags)), tags, "tags are those in use")
  for (const { name, doc } of operations) {
    t.match(doc, { operationId: /^[a-z][A-Za-z]+$/, summary: /\S/, tags: { length: 1 } }, name)
    for (const parameter of doc.parameters ?? []) t.ok(parameter.description, `${name} describes ${parameter.name}`)
  }
  const guarded = operations.filter(({ doc }) => doc.security.length > 0).map(({ path }) => path)
  t.ok(guarded.every((path) => path.startsWith("/v1/")))
  t.same(
    operations.filter(({ path }) => path.startsWith("/v1/") && !guarded.includes(path)),
    [],
    "whatever is under /v1 asks for a token",
  )
})

t.test("every problem of the document is the catalogue's, and says what to do", async (t) => {
  for (const one of operations) {
    for (const { status, code } of codesOf(one)) {
      const response = one.doc.responses[status]
      const kind = problems[code]
      const about = `${one.name}: ${code}`
      t.equal(kind?.status, status, `${about} has its status`)
      const { value } = response.content[problemType].examples[code]
      const { title, outcome, retry } = kind
      t.match(value, { code, status, title, outcome, retry }, `${about} in its example`)
      t.ok(response.description.includes(`](/problems/${code})`), `${about} leads to its page`)
      t.ok("retryAfter" in kind ? response.headers["Retry-After"] : true, `${about} says how long to wait`)
    }
  }
  const documented = new Set(operations.flatMap(codesOf).map(({ code }) => code))
  const thrown = await codesInSource()
  // What a path has no method for is no operation.
  thrown.delete("method-not-allowed")
  t.same(
    [...thrown].filter((code) => !documented.has(code)),
    [],
    "what the code refuses is documented",
  )
  t.same(
    [...documented].filter((code) => !thrown.has(code)),
    [],
    "what is documented can be refused",
  )
})

/** Codes that some line of the code makes a problem of. */
async function codesInSource(): Promise<Set<ProblemCode>> {
  const folder = join(root, "src")
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith(".ts"))
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")))
  const made = texts.flatMap((text) => [...text.matchAll(/new Problem\(\s*"([a-z-]+)"/g)])
  return new Set(made.map(([, code]) => code as ProblemCode))
}

t.test("every example of an answer is valid by its own schema", async (t) => {
  for (const { name, doc } of operations) {
    for (const [status, response] of Object.entries<Json>(doc.responses)) {
      for (const [type, media] of Object.entries<Json>(response.content ?? {})) {
        const examples = Object.values<Json>(media.examples ?? { one: { value: media.example } })
        t.ok(examples.length > 0, `${name} ${status} has an example`)
        for (const { value } of examples) {
          const read = validatorOf(media.schema).safeParse(value)
          t.ok(read.success, `${name} ${status} ${type} ${value?.code ?? ""}`, { issues: read.error?.issues })
        }
      }
    }
  }
})

/** Says of an answer whatever the document has about it; the shell's own headers are those of every answer, and are not repeated in it. */
function makeCheck(shell: ReadonlySet<string>) {
  return (t: Test, { name, doc }: Operation, answer: Pick<Answer, "status" | "headers" | "text">): void => {
    const { status, headers, text } = answer
    const response = doc.responses[status]
    const about = `${name} ${status}`
    if (!response) return void t.fail(`${about} is documented`, { text })
    const known = new Map(Object.entries<Json>(response.headers).map(([header, doc]) => [header.toLowerCase(), doc]))
    const sent = [...headers.keys()].filter((header) => !shell.has(header))
    t.same(
      sent.filter((header) => !known.has(header)),
      [],
      `${about}: its headers are documented`,
    )
    if (status < 300) t.same([...known.keys()].filter((header) => !headers.has(header)).sort(), [], `${about}: no less`)
    for (const [header, { schema }] of known) {
      const value = headers.get(header)
      if (value === null) continue
      if (schema.type !== "string") t.match(value, /^(?:true|\d+)$/, `${about}: ${header} is a ${schema.type}`)
      if (schema.enum) t.ok(schema.enum.map(String).includes(value), `${about}: ${header}: ${value}`)
    }
    const type = headers.get("content-type")?.split(";")[0]
    if (response.content === undefined) return void t.equal(text, "", `${about} has no body`)
    const media = response.content[type ?? ""]
    if (!media) return void t.fail(`${about} ${type} is documented`)
    const body = JSON.parse(text)
    const read = validatorOf(media.schema).safeParse(body)
    t.ok(read.success, `${about} ${body.code ?? ""}`, { issues: read.error?.issues, body })
    if (type !== problemType) return
    t.ok(media.examples[body.code], `${about} ${body.code} is documented`)
    t.same(
      Object.keys(body).filter((member) => !document.components.schemas.Problem.properties[member]),
      [],
      `${about} ${body.code} has no member that is not documented`,
    )
    t.equal(headers.has("retry-after"), "retryAfter" in problems[body.code as ProblemCode], `${about}: Retry-After`)
  }
}

/** Headers of every answer: the connection's, the body's, and those that keep a browser safe. */
async function shellHeaders(service: Service): Promise<Set<string>> {
  const { headers } = await service.call("GET", "/livez", { token: null })
  return new Set([...headers.keys(), "transfer-encoding"].filter((header) => header !== "request-id"))
}

const submission = { award_id: "A-2026-014", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 125_000 }
const future = "2099-01-01T00:00:00Z"
const nobody = "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90"

t.test(
  "a running service answers as documented, from each success to each refusal that a request can cause",
  async (t) => {
    const service = await startService(t, { awards: "open" })
    const check = makeCheck(await shellHeaders(service))
    const { id: portalId, token } = await service.portal("east")
    const strict = await service.portal("strict", "portal", true)
    const seen = new Set<string>()

    /** Sends a request and holds its answer against the document. */
    async function visit(name: string, expected: number | ProblemCode, options: Visit = {}): Promise<Answer> {
      const one = operation(name)
      const path = one.path.replaceAll(/\{(\w+)\}/g, (_, member) =>
        encodeURIComponent(options.path?.[member] ?? nobody),
      )
      const answer = await service.call(one.method, `${path}${options.query ?? ""}`, options)
      t.equal(answer.body?.code ?? answer.status, expected, `${name}: ${expected}`)
      check(t, one, answer)
      seen.add(`${name} ${answer.body?.code ?? answer.status}`)
      return answer
    }
    const submit = (expected: number | ProblemCode, change: object, key?: string, more: Visit = {}) =>
      visit("POST /v1/submissions", expected, {
        token,
        json: { ...submission, ...change },
        ...(key === undefined ? {} : { headers: { "idempotency-key": key } }),
        ...more,
      })

    await visit("GET /livez", 200, { token: null })
    await visit("GET /readyz", 200, { token: null })

    const { body: line } = await submit(201, { submission_id: "2026-Q3-1", recipient_uei: "UYDJJ1S8DR86" }, "k-1")
    t.equal(line.warnings.length, 1, "an answer with a warning was seen")
    await submit(200, { submission_id: "2026-Q3-1", recipient_uei: "UYDJJ1S8DR86" }, "k-1")
    await submit(201, {})
    await submit("idempotency-key-reused", { amount_cents: 1 }, "k-1")
    await submit("duplicate-submission", { submission_id: "2026-Q3-1" }, "k-2")
    await submit("currency-mismatch", { currency: "EUR" }, "k-3")
    await submit("award-funds-exceeded", { amount_cents: Number.MAX_SAFE_INTEGER }, "k-3")
    await submit("currency-unknown", { currency: "ZZZ" }, "k-3")
    await submit("submission-timestamp-in-future", { submission_timestamp: future }, "k-3")
    await submit("invalid-request", { amount_cents: "1" }, "k-3")
    await submit("idempotency-key-invalid", {}, '"k')
    await submit("idempotency-key-required", {}, undefined, { token: strict.token })
    await submit("unauthenticated", {}, "k-3", { token: null })
    await submit("unauthenticated", {}, "k-3", { token: "wrong" })
    await submit("forbidden", {}, "k-3", { token: (await service.portal("audit", "auditor")).token })
    const type = { "content-type": "application/json" }
    await visit("POST /v1/submissions", "malformed-json", { token, body: "{", headers: type })
    await visit("POST /v1/submissions", "media-type-unsupported", { token, body: "{}" })
    await visit("POST /v1/submissions", "body-too-large", { token, body: Buffer.alloc(70_000, 0x20), headers: type })

    const lines = { "content-type": "application/x-ndjson" }
    await visit("POST /v1/submissions/batch", 200, { token, body: JSON.stringify(submission), headers: lines })
    await visit("POST /v1/submissions/batch", 200, { token, body: "{", headers: lines })
    await visit("POST /v1/submissions/batch", "media-type-unsupported", { token, json: {} })
    await visit("POST /v1/submissions/batch", "malformed-json", { token })

    await visit("GET /v1/disbursements/{id}", 200, { token, path: { id: line.id } })
    await visit("GET /v1/disbursements/{id}", "not-found", { token })
    await visit("GET /v1/disbursements", 200, { token, query: "?limit=1" })
    await visit("GET /v1/disbursements", "invalid-cursor", { token, query: "?cursor=nope" })
    await visit("GET /v1/disbursements", "invalid-request", { token, query: "?limit=0" })

    const award_id = submission.award_id
    const rules = (method: string, expected: number | ProblemCode, json: object, id = award_id) =>
      visit(`${method} /v1/awards/{award_id}`, expected, { path: { award_id: id }, json })
    await rules("PUT", 201, { currency: "USD", obligated_cents: 100, portals: ["east"] }, "B/1")
    await rules("PUT", 200, { currency: "USD", obligated_cents: 500_000 })
    await rules("PUT", "ceiling-below-net", { currency: "USD", obligated_cents: 1 })
    await rules("PUT", "currency-mismatch", { currency: "EUR" })
    await rules("PUT", "currency-unknown", { currency: "ZZZ" })
    await rules("PUT", "invalid-request", { currency: "USD", portals: ["nobody"] })
    await rules("PATCH", "award-not-found", {}, "B/2")
    const { body: capped } = await submit(201, { amount_cents: 1 }, "k-4")
    t.equal(capped.award.available_cents, 500_000 - 250_001, "an answer with what is left was seen")
    await submit("award-funds-exceeded", { amount_cents: 250_000 }, "k-5")
    await rules("PATCH", 200, { period_end: "2020-12-31" })
    await submit("award-period-closed", {}, "k-5")
    await rules("PATCH", 200, { status: "suspended" })
    await submit("award-not-active", {}, "k-5")
    await rules("PATCH", 200, { portals: [] })
    await submit("award-not-permitted", {}, "k-5")
    await visit("GET /v1/awards/{award_id}", 200, { token, path: { award_id } })
    await visit("GET /v1/awards/{award_id}", "award-not-found", { token, path: { award_id: "B/2" } })
    await visit("GET /v1/awards/{award_id}", "invalid-request", { token, path: { award_id: " " } })
    await visit("GET /v1/awards", 200, { query: "?limit=1" })
    await visit("GET /v1/awards", "invalid-cursor", { query: "?cursor=nope" })
    await visit("GET /v1/awards/{award_id}/history", 200, { path: { award_id } })
    await visit("GET /v1/operator-actions", 200, { query: "?subject=B%2F1" })
    await rules("PATCH", 200, { portals: null, status: null, period_end: null })
    const balance = {
      source: "core-bank",
      source_event_id: "1",
      account_key: "OPS/01",
      currency: "USD",
      balance: "1204.5",
      source_event_time: "2025-07-01T17:00:00Z",
    }
    const tell = (expected: number | ProblemCode, change: object) =>
      visit("POST /v1/balance-events", expected, { token, json: { ...balance, ...change } })
    const path = { account_key: "OPS/01" }
    await tell(201, {})
    await tell(200, { balance: "1204.50" })
    await tell("idempotency-key-reused", { balance: "1204.51" })
    await tell("currency-mismatch", { source_event_id: "2", currency: "EUR" })
    await tell("invalid-request", { source_event_id: "2", currency: "KWD" })
    await tell("currency-unknown", { source_event_id: "2", currency: "ZZZ" })
    await tell("submission-timestamp-in-future", { source_event_id: "2", source_event_time: future })
    await tell("invalid-request", { balance: 1 })
    await visit("GET /v1/balances/{account_key}", 200, { token, path })
    await visit("GET /v1/balances/{account_key}", 200, { query: "?portal=east", path })
    await visit("GET /v1/balances/{account_key}", "not-found", { token })
    await visit("GET /v1/balances/{account_key}", "invalid-request", { path })

    const back = (name: string, expected: number | ProblemCode, key: string | null, json: object, id = line.id) =>
      visit(`POST /v1/disbursements/{id}/${name}`, expected, {
        token,
        path: { id },
        json: { reason: "Paid twice", ...json },
        ...(key === null ? {} : { headers: { "idempotency-key": key } }),
      })
    const { body: part } = await back("returns", 201, "r-1", { amount_cents: 25_000 })
    await back("returns", 200, "r-1", { amount_cents: 25_000 })
    await back("returns", "idempotency-key-reused", "r-1", { amount_cents: 25_001 })
    await back("returns", "idempotency-key-required", null, { amount_cents: 1 })
    await back("returns", "return-exceeds-disbursement", "r-2", { amount_cents: 100_001 })
    await back("returns", "not-found", "r-2", { amount_cents: 1 }, nobody)
    await back("returns", "invalid-request", "r-2", { amount_cents: -1 })
    await visit("GET /v1/disbursements/{id}", 200, { token, path: { id: part.id } })
    await back("reversal", 201, "r-3", {})
    await back("reversal", 200, "r-3", {})
    await back("reversal", "idempotency-key-reused", "k-1", {})
    await back("reversal", "already-reversed", "r-4", {})
    await back("returns", "already-reversed", "r-4", { amount_cents: 1 })
    await back("reversal", "not-found", "r-4", {}, part.id)

    await visit("GET /v1/possible-duplicates", 200, { token })
    await visit("GET /v1/possible-duplicates", "invalid-cursor", { token, query: "?cursor=nope" })
    await visit("GET /v1/possible-duplicates", "invalid-request", { token, query: "?days=0" })
    await visit("GET /v1/totals", 200, { token, query: "?by=award" })
    await visit("GET /v1/totals", "invalid-cursor", { token, query: "?by=award&cursor=nope" })
    await visit("GET /v1/totals", "invalid-request", { token, query: "?by=month" })
    const csv = { body: "submission_id,award_id,amount\nS,A,1.00\n", headers: { "content-type": "text/csv" } }
    await visit("POST /v1/reconciliations", 200, { token, ...csv })
    await visit("POST /v1/reconciliations", "invalid-request", { ...csv })
    await visit("POST /v1/reconciliations", "media-type-unsupported", { token, json: {} })
    await visit("GET /v1/idempotency-keys/{key}", 200, { token, path: { key: "k-1" } })
    await visit("GET /v1/idempotency-keys/{key}", "idempotency-key-unknown", { token, path: { key: "k-9" } })
    await visit("GET /v1/idempotency-keys/{key}", "idempotency-key-invalid", { token, path: { key: "é" } })
    await visit("GET /v1/idempotency-keys/{key}", "invalid-request", { path: { key: "k-1" } })
    await visit("GET /v1/idempotency-keys/{key}", "not-found", { path: { key: "k-1" }, query: "?portal=nobody" })
    await visit("DELETE /v1/idempotency-keys/{key}", 200, { token, path: { key: "k-void" } })
    await visit("DELETE /v1/idempotency-keys/{key}", "already-applied", { token, path: { key: "k-1" } })
    await submit("idempotency-key-voided", {}, "k-void")
    await visit("GET /v1/idempotency-keys/{key}", 200, { token, path: { key: "k-void" } })
    await visit("GET /v1/conflicts", 200)

    await visit("POST /v1/portals", 201, { json: { name: "west", role: "portal" } })
    await visit("POST /v1/portals", "invalid-request", { json: { name: "west", role: "portal" } })
    await visit("GET /v1/portals", 200)
    const { body: made } = await visit("POST /v1/portals/{id}/tokens", 201, { path: { id: portalId } })
    await visit("POST /v1/portals/{id}/tokens", "not-found")
    const tokenPath = { id: portalId, token_id: made.id }
    await visit("DELETE /v1/portals/{id}/tokens/{token_id}", 204, { path: tokenPath })
    await visit("DELETE /v1/portals/{id}/tokens/{token_id}", "not-found")
    await visit("GET /v1/me", 200, { token })

    const successes = operations.flatMap(({ name, doc }) =>
      Object.keys(doc.responses)
        .filter((status) => status < "3")
        .map((status) => `${name} ${status}`),
    )
    t.same(
      successes.filter((success) => !seen.has(success)),
      [],
      "every documented success was answered",
    )
  },
)

interface Visit extends CallOptions {
  readonly path?: Record<string, string>
  readonly query?: string
}

t.test("each problem that a submission documents is answered with the headers it documents", async (t) => {
  const service = await startService(t)
  const check = makeCheck(await shellHeaders(service))
  const submit = operation("POST /v1/submissions")
  for (const { code } of codesOf(submit)) {
    const app = buildApp({
      config: readConfig({}),
      reads: { run: async () => ({ portalId: nobody, portal: "east", role: "portal" }) } as unknown as Reads,
      gate: {
        claim: async () => ({ kind: "refused", problem: new Problem(code, "As the test wants it.") }),
      } as unknown as AppDeps["gate"],
    })
    const { statusCode, headers, payload } = await app.inject({
      method: "POST",
      url: "/v1/submissions",
      headers: { authorization: `Bearer gg_${"a".repeat(43)}`, "idempotency-key": "k" },
      payload: submission,
    })
    t.match(JSON.parse(payload), { code }, code)
    // The key was read: what the document calls absent otherwise is there.
    const documented = Object.keys(submit.doc.responses[statusCode].headers)
    const text = Object.entries(headers).map(([header, value]) => [header, String(value)] as [string, string])
    const named = text.filter(([header]) => !header.startsWith("idempotency-key"))
    check(t, submit, {
      status: statusCode,
      headers: new Headers(documented.includes("Idempotency-Key") ? text : named),
      text: payload,
    })
    if (documented.includes("Idempotency-Key")) t.equal(headers["idempotency-key"], '"k"', `${code} names the key`)
    await app.close()
  }
})

t.test("each request example, pasted into the running service, succeeds", async (t) => {
  const service = await startService(t)
  const tokens: Record<string, string> = {}
  for (const role of ["portal", "operator"] as const) tokens[role] = (await service.portal(role, role)).token
  // What the examples of lines that undo one are about.
  const { body: made } = await service.call("POST", "/v1/submissions", {
    token: tokens.portal ?? null,
    json: submission,
  })
  const withBody = operations.filter(({ doc }) => doc.requestBody)
  t.ok(withBody.length >= 2)
  for (const { name, method, path, doc } of withBody) {
    const headers = Object.fromEntries(
      (doc.parameters ?? [])
        .filter((parameter: Json) => parameter.in === "header")
        .map((parameter: Json) => [parameter.name, parameter.example]),
    )
    const [, role = ""] = /role `(\w+)`/.exec(doc.description) ?? []
    const [type = "", { example }] = Object.entries<Json>(doc.requestBody.content)[0] ?? ["", {}]
    t.ok(example, `${name} has an example`)
    const sent = {
      body: typeof example === "string" ? example : JSON.stringify(example),
      headers: { ...headers, "content-type": type },
    }
    const url = path.replace("{id}", made.id)
    const answer = await service.call(method, url, { token: tokens[role] ?? null, ...sent })
    // A line of NDJSON says itself what became of it.
    const { status } = answer.headers.get("content-type") === "application/x-ndjson" ? JSON.parse(answer.text) : answer
    t.ok(status < 300 && doc.responses[answer.status], `${name}: ${answer.text}`)
  }
  const { properties } = document.components.schemas.Submission
  const all = Object.fromEntries(Object.entries<Json>(properties).map(([name, schema]) => [name, schema.examples?.[0]]))
  const whole = await service.call("POST", "/v1/submissions", { token: tokens.portal ?? null, json: all })
  t.equal(whole.status, 201, `a submission of every member's own example: ${whole.text}`)
  t.same(whole.body.warnings, [])
})

/** As a portal's developer would write it; lines that must not compile are marked. */
const client = `
import createClient from "openapi-fetch"
import type { components, paths } from "./grantgate.js"

const [, , baseUrl = "", token = ""] = process.argv
// Lists can also be had as CSV and NDJSON; this program reads JSON.
type Json = "application/json" | "application/problem+json"
const api = createClient<paths, Json>({ baseUrl, headers: { authorization: \`Bearer \${token}\` } })
const body: components["schemas"]["Submission"] = {
  award_id: "A-2026-014",
  submission_timestamp: "2025-07-01T09:00:00Z",
  amount_cents: 125000,
}
const header = { "Idempotency-Key": '"client-1"' }
for (const sent of [body, body, { ...body, amount_cents: 1 }]) {
  const { data, error, response } = await api.POST("/v1/submissions", { body: sent, params: { header } })
  if (data) {
    const id: string = data.id
    const warnings: { pointer: string; code: string }[] = data.warnings
    console.log(response.status, response.headers.get("idempotent-replayed"), id, warnings.length)
  } else {
    const retry: "after-fixing" | "same-key" | "new-key" | "never" = error.retry
    console.log(response.status, error.code, retry, error.differs?.join())
  }
}
const { data: page } = await api.GET("/v1/disbursements", { params: { query: { limit: 10 } } })
console.log(page?.items.length, page?.items[0]?.net_cents)

export function mustNotCompile() {
  // @ts-expect-error an amount is a number
  api.POST("/v1/submissions", { body: { ...body, amount_cents: "125000" } })
  // @ts-expect-error an award is needed
  api.POST("/v1/submissions", { body: { submission_timestamp: body.submission_timestamp, amount_cents: 1 } })
  // @ts-expect-error there is no such member
  const misspelt: components["schemas"]["Submission"] = { ...body, amount: 1 }
  return misspelt
}
`

t.test("a generated client compiles under --strict and submits: 201, then 200", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "grantgate-client-"))
  t.teardown(() => rm(folder, { recursive: true }))
  await mkdir(join(folder, "src"))
  await symlink(join(root, "node_modules"), join(folder, "node_modules"))
  await writeFile(join(folder, "package.json"), '{"type":"module"}')
  await writeFile(join(folder, "src", "grantgate.ts"), astToString(await openapiTypescript(committed)))
  await writeFile(join(folder, "src", "client.ts"), client)
  const run = (args: string[]) =>
    promisify(execFile)(process.execPath, args, { cwd: folder, timeout: 120_000 }).catch(
      (error: Error & { stdout: string; stderr: string }) => {
        throw new Error(`${error.message}\n${error.stdout}\n${error.stderr}`)
      },
    )
  const tsc = join(root, "node_modules", "typescript", "bin", "tsc")
  const options = "--strict --module nodenext --target es2022 --types node --rootDir src --outDir out".split(" ")
  await run([tsc, ...options, "src/client.ts"])

  const service = await startService(t)
  const { token } = await service.portal("east")
  const { stdout } = await run([join("out", "client.js"), service.url, token])
  const [first = "", second = "", other, listed] = stdout.split("\n")
  const [, id] = first.split(" null ")
  t.match(first, /^201 null [0-9a-f-]{36} 0$/)
  t.equal(second, `200 true ${id}`, "the retry has the first one's id")
  t.equal(other, "422 idempotency-key-reused new-key /amount_cents")
  t.equal(listed, "1 125000")
})
