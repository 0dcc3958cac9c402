/**
 * From zod's issues to faults: every one of a part of the request (path, query or body), each with an RFC 6901 pointer and no value.
 * Nothing is coerced: what a schema does not say explicitly does not happen.
 */
import type { FastifySchemaCompiler } from "fastify"
import type { z } from "zod"
import { limits } from "../limits.js"
import { type Fault, Problem } from "../problems.js"

type Issue = z.core.$ZodIssue

/** Fastify's validator: answers the parsed value, or the Problem that lists all faults. */
export const validatorCompiler: FastifySchemaCompiler<z.ZodType> =
  ({ schema, httpPart }) =>
  (data: unknown) => {
    const read = schema.safeParse(data)
    return read.success ? { value: read.data } : { error: invalidRequest(read.error.issues, httpPart ?? "body") }
  }

export function invalidRequest(issues: readonly Issue[], part: string): Problem {
  const faults = issues.flatMap(faultsOf)
  const where = part === "body" ? "body" : part === "params" ? "path" : "query string"
  const count = faults.length === 1 ? "one fault" : `${faults.length} faults`
  return new Problem("invalid-request", `The ${where} has ${count}.`, { errors: faults.slice(0, limits.pointersMax) })
}

/** One issue is one fault, except unknown members: one each. */
function faultsOf(issue: Issue): Fault[] {
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({
      pointer: pointer([...issue.path, key]),
      code: "unknown_member",
      detail: "is not a member that is known here",
    }))
  }
  return [{ pointer: pointer(issue.path), code: issue.code, detail: issue.message }]
}

/** RFC 6901 section 3: `~` and `/` of a name are escaped. */
export function pointer(path: readonly PropertyKey[]): string {
  return path.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")
}
