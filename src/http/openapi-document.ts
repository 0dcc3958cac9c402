/**
 * The last hand on the generated OpenAPI document: headers and examples of every problem from the catalogue, the request id on every answer,
 * one component for each schema. Pure: a document in, a document out.
 */
import { isDeepStrictEqual } from "node:util"
import { limits } from "../limits.js"
import { type ProblemCode, type ProblemKind, problems } from "../problems.js"
import { problemContentType, problemType } from "./problem-replies.js"

/** A piece of a JSON document. */
export type Json = { [member: string]: unknown }

const exampleUrl = "http://127.0.0.1:3000"
const exampleRequestId = "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90"

const requestIdHeader = {
  description: "Id of this request, as in the log and in a problem's `instance`",
  schema: { type: "string", format: "uuid" },
}

/** Fills in what every operation has in common. */
export function completeDocument(document: Json): Json {
  for (const operation of operationsOf(document)) {
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
    for (const [status, response] of Object.entries(operation.responses as Record<string, Json>)) {
      completeResponse(Number(status), response)
    }
  }
  mergeInputs(document)
  dropUnused(document)
  return document
}

function operationsOf(document: Json): Json[] {
  return Object.values(document.paths as Record<string, Record<string, Json>>).flatMap((path) => Object.values(path))
}

function completeResponse(status: number, response: Json): void {
  const headers: Json = { ...(response.headers as Json | undefined), "Request-Id": requestIdHeader }
  response.headers = headers
  const problem = (response.content as Record<string, Json> | undefined)?.[problemContentType]
  if (!problem) return
  const codes = codesOf(problem.schema as Json)
  problem.examples = Object.fromEntries(
    codes.map((code) => [code, { summary: problems[code].title, value: exampleOf(code) }]),
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
  if (status === 405) headers.Allow = { description: "The methods of this path", schema: { type: "string" } }
}

/** The codes stand in the schema itself, beside the reference to the common shape. */
function codesOf(schema: Json): ProblemCode[] {
  for (const part of (schema.allOf ?? []) as Json[]) {
    const code = (part.properties as Record<string, Json> | undefined)?.code
    if (code) return (code.enum ?? [code.const]) as ProblemCode[]
  }
  throw new Error("a problem response must name its codes")
}

function exampleOf(code: ProblemCode): Json {
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
    ...(code === "invalid-request"
      ? { errors: [{ pointer: "/amount_cents", code: "invalid_type", detail: "must be an integer" }] }
      : {}),
    ...(code === "idempotency-key-reused" ? { differs: ["/amount_cents"] } : {}),
  }
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
