/**
 * The last hand on the generated OpenAPI document: what to do about every problem, its headers and examples, from the catalogue; the request id on
 * every answer; one component for each schema. Pure: a document in, a document out.
 */
import { isDeepStrictEqual } from "node:util"
import { limits } from "../limits.js"
import { type Fault, type ProblemCode, type ProblemKind, problems, type Retry } from "../problems.js"
import { problemContentType, problemType } from "./problem-replies.js"

/** A piece of a JSON document. */
export type Json = { [member: string]: unknown }

const exampleUrl = "http://127.0.0.1:3000"
const exampleId = "0197c3a2-5d02-7b31-8c4e-6a9b0e1f2d3c"
const exampleRequestId = "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90"

const requestIdHeader = {
  description: "Id of this request, as in the log and in a problem's `instance`",
  schema: { type: "string", format: "uuid" },
}

/** Fills in what every operation has in common. */
export function completeDocument(document: Json): Json {
  for (const [method, operation] of operationsOf(document)) {
    for (const parameter of (operation.parameters ?? []) as Json[]) {
      // Read as text, strictly; for the reader it is a number.
      if (parameter.in === "query" && parameter.name === "limit") {
        parameter.schema = {
          type: "integer",
          minimum: 1,
          maximum: limits.pageItemsMax,
          default: limits.pageItemsDefault,
        }
      }
    }
    const responses = operation.responses as Record<string, Json>
    const writes = method !== "get"
    const keyed = (responses[201]?.headers as Json | undefined)?.["Idempotency-Key"] !== undefined
    const fault = giveExample(document, operation)
    for (const [status, response] of Object.entries(responses)) {
      openObjects(response)
      response.headers = { ...(response.headers as Json | undefined), "Request-Id": requestIdHeader }
      completeProblem(Number(status), response, writes, keyed, fault)
    }
    nameKeyOnProblems(responses)
  }
  mergeInputs(document)
  dropUnused(document)
  sortByTags(document)
  const sent = referencesIn(operationsOf(document).map(([, operation]) => operation.requestBody))
  for (const [name, schema] of Object.entries(schemasOf(document))) if (!sent.has(name)) openObjects(schema)
  return document
}

function operationsOf(document: Json): [method: string, operation: Json][] {
  return Object.values(document.paths as Record<string, Record<string, Json>>).flatMap((path) => Object.entries(path))
}

/** An answer may have more members one day; a client that refused them would break. A request has those it has. */
function openObjects(at: unknown): void {
  if (at === null || typeof at !== "object") return
  const schema = at as Json
  if (schema.type === "object" && schema.additionalProperties === false) delete schema.additionalProperties
  for (const value of Object.values(schema)) openObjects(value)
}

function completeProblem(status: number, response: Json, writes: boolean, keyed: boolean, fault: Fault): void {
  const problem = (response.content as Record<string, Json> | undefined)?.[problemContentType]
  if (!problem) return
  const headers = response.headers as Json
  const codes = codesOf(problem.schema as Json)
  response.description = whatToDo(codes, writes, keyed)
  problem.examples = Object.fromEntries(
    codes.map((code) => [code, { summary: problems[code].title, value: exampleOf(code, fault) }]),
  )
  const kinds: ProblemKind[] = codes.map((code) => problems[code])
  if (kinds.some((kind) => kind.retryAfter)) {
    headers["Retry-After"] = {
      description: "Seconds to wait before the next try",
      schema: { type: "integer", minimum: 1 },
    }
  }
  if (status === 401) {
    headers["WWW-Authenticate"] = { description: "RFC 6750: how to authenticate", schema: { type: "string" } }
  }
}

/** For a reader in a hurry: what to do first, then the problems that ask for it. */
function whatToDo(codes: readonly ProblemCode[], writes: boolean, keyed: boolean): string {
  const paragraphs = (Object.keys(actions) as Retry[]).flatMap((retry) => {
    const asking = codes.filter((code) => problems[code].retry === retry)
    if (asking.length === 0) return []
    const lines = asking.map((code) => `- [\`${code}\`](/problems/${code}): ${problems[code].title}.`)
    return [`${actions[retry](writes, keyed)}\n\n${lines.join("\n")}`]
  })
  return paragraphs.join("\n\n")
}

/** The likeliest first. Only where a key was sent is a retry safe whatever became of the first try. */
const actions: Record<Retry, (writes: boolean, keyed: boolean) => string> = {
  "same-key": (_writes, keyed) =>
    keyed
      ? "**Send the same body with the same key again**, after `Retry-After` seconds where that is given. It is recorded once."
      : "**Send the same request again**, after `Retry-After` seconds where that is given.",
  never: () => "**Do not send it again:** it is recorded already.",
  "new-key": () => "**Only with a new key**, and only if it is meant as another request. This one was not recorded.",
  "after-fixing": (writes) =>
    `**Correct the request, then send it again.**${writes ? " Nothing was recorded by this one." : ""}`,
}

/** A problem that comes after the key was read names the key, as the answers do that are none. */
function nameKeyOnProblems(responses: Record<string, Json>): void {
  const names = ["Idempotency-Key", "Idempotency-Key-Source"]
  const answered = (responses[201]?.headers ?? {}) as Record<string, Json>
  for (const [status, response] of Object.entries(responses)) {
    if (Number(status) < 400 || ["401", "413", "415"].includes(status)) continue
    for (const name of names) {
      const header = answered[name]
      if (!header) continue
      const description = `${header.description}; absent where the key was not read`
      response.headers = { ...(response.headers as Json), [name]: { ...header, description } }
    }
  }
}

/** The codes stand in the schema itself, beside the reference to the common shape. */
function codesOf(schema: Json): ProblemCode[] {
  for (const part of (schema.allOf ?? []) as Json[]) {
    const code = (part.properties as Record<string, Json> | undefined)?.code
    if (code) return (code.enum ?? [code.const]) as ProblemCode[]
  }
  throw new Error("a problem response must name its codes")
}

const exampleMembers: Partial<Record<ProblemCode, Json>> = {
  "idempotency-key-reused": { differs: ["/amount_cents"], disbursement_id: exampleId },
  "duplicate-submission": { disbursement_id: exampleId },
  "already-applied": { disbursement_id: exampleId },
  "submission-purged": { disbursement_id: exampleId },
  "award-funds-exceeded": { available_cents: 100 },
  "ceiling-below-net": { net_cents: 125000 },
  "return-exceeds-disbursement": { available_cents: 100 },
}

function exampleOf(code: ProblemCode, fault: Fault): Json {
  const { title, status, outcome, retry } = problems[code]
  return {
    type: problemType(exampleUrl, code),
    title,
    status,
    detail: title,
    instance: exampleRequestId,
    code,
    outcome,
    retry,
    ...(code === "invalid-request" ? { errors: [fault] } : exampleMembers[code]),
  }
}

/**
 * Puts the example of the body's schema where every tool looks for it.
 * @returns a fault that a request to this operation could have: another's would lead astray
 */
function giveExample(document: Json, operation: Json): Fault {
  const content = (operation.requestBody as { content?: Record<string, Json> } | undefined)?.content
  const media = content?.["application/json"] ?? content?.["application/x-ndjson"]
  if (content && media && content["text/csv"]) {
    // One and the same object for both, with the examples of both.
    const [ndjson, table] = Object.values((media.examples ?? {}) as Record<string, Json>)
    delete media.examples
    content["text/csv"] = { ...media, example: table?.value }
    media.example = ndjson?.value
  }
  const query = ((operation.parameters ?? []) as Json[]).find((parameter) => parameter.in === "query")
  if (media) {
    const { $ref } = media.schema as Json
    const schema = (typeof $ref === "string" ? schemasOf(document)[$ref.slice(prefix.length)] : media.schema) as Json
    media.example ??= (schema.examples as unknown[] | undefined)?.[0]
    const member = (schema.required as string[] | undefined)?.[0]
    if (member !== undefined) return { pointer: `/${member}`, code: "required", detail: "is required" }
  }
  if (query) return { pointer: "/nope", code: "unknown-member", detail: "is not a member of this request" }
  return { pointer: "/Host", code: "host-header", detail: "must be sent exactly once" }
}

/** zod's provider emits each schema for input and for output; where that is one and the same, or only one is used, one remains. */
function mergeInputs(document: Json): void {
  const schemas = schemasOf(document)
  for (const input of Object.keys(schemas).filter((name) => name.endsWith("Input"))) {
    const output = input.slice(0, -"Input".length)
    const used = referencesIn({ paths: document.paths })
    if (!used.has(input)) delete schemas[input]
    else if (!used.has(output) || isDeepStrictEqual(schemas[input], schemas[output])) {
      schemas[output] = schemas[input] as Json
      delete schemas[input]
      renameReferences(document, input, output)
    }
  }
}

function dropUnused(document: Json): void {
  const schemas = schemasOf(document)
  for (let dropped = true; dropped; ) {
    dropped = false
    const used = referencesIn(document)
    for (const name of Object.keys(schemas)) {
      if (used.has(name)) continue
      delete schemas[name]
      dropped = true
    }
  }
}

/** Paths in the order of the tags, components in that of their first use: what most readers come for stands first. */
function sortByTags(document: Json): void {
  const tags = (document.tags as { name: string }[]).map(({ name }) => name)
  const tagOf = (path: Record<string, Json>) => tags.indexOf(String(Object.values(path).flatMap(({ tags }) => tags)[0]))
  const paths = Object.entries(document.paths as Record<string, Record<string, Json>>)
  document.paths = Object.fromEntries(paths.sort(([, a], [, b]) => tagOf(a) - tagOf(b)))
  const schemas = schemasOf(document)
  const names = referencesIn(operationsOf(document).map(([, { requestBody, responses }]) => [requestBody, responses]))
  for (const name of names) referencesIn(schemas[name], names)
  ;(document.components as Json).schemas = Object.fromEntries([...names].map((name) => [name, schemas[name]]))
}

function schemasOf(document: Json): Record<string, Json> {
  return (document.components as { schemas: Record<string, Json> }).schemas
}

const prefix = "#/components/schemas/"

function referencesIn(at: unknown, found = new Set<string>()): Set<string> {
  if (at === null || typeof at !== "object") return found
  for (const [key, value] of Object.entries(at)) {
    if (key === "$ref" && typeof value === "string" && value.startsWith(prefix)) found.add(value.slice(prefix.length))
    else referencesIn(value, found)
  }
  return found
}

function renameReferences(at: unknown, from: string, to: string): void {
  if (at === null || typeof at !== "object") return
  for (const [key, value] of Object.entries(at)) {
    if (key === "$ref" && value === prefix + from) (at as Json).$ref = prefix + to
    else renameReferences(value, from, to)
  }
}
