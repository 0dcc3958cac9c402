/**
 * From zod's issues to faults: all of them, each with an RFC 6901 pointer, a stable code and our own words. Neither a value of the payload nor
 * a library's text leaves: the schemas bring their own sentences, and what zod would say itself is said here.
 */
import type { z } from "zod"
import type { Fault } from "../problems.js"

type Issue = z.core.$ZodIssue

/**
 * Codes: `required`, `type`, `format`, `range`, `length`, `value`, `unknown-member`; a refinement may name its own in `params.code`.
 * @returns a fault for each issue and each unknown member, in the schema's order; where a member has several, the first, which the others follow from
 */
export function faultsOf(error: { readonly issues: readonly Issue[] }): Fault[] {
  const faults = new Map<string, Fault>()
  for (const fault of error.issues.flatMap(toFaults)) {
    if (!faults.has(fault.pointer)) faults.set(fault.pointer, fault)
  }
  return [...faults.values()]
}

/** RFC 6901 text: `["details", "a/b"]` → `/details/a~1b`, the empty path → `""`. */
function pointerTo(path: readonly PropertyKey[]): string {
  return path.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")
}

function toFaults(issue: Issue): Fault[] {
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((name) => ({
      pointer: pointerTo([...issue.path, name]),
      code: "unknown-member",
      detail: "is not a member of this request",
    }))
  }
  const [code, detail] = describe(issue)
  return [{ pointer: pointerTo(issue.path), code, detail }]
}

/** Every number that a request may hold is one. */
const integer = "must be an integer, written without quotes, fraction or exponent"

const typeNames: Readonly<Record<string, string>> = {
  string: "must be a string",
  number: integer,
  int: integer,
  boolean: "must be true or false",
  object: "must be an object",
  record: "must be an object",
  array: "must be an array",
}

function describe(issue: Issue): [code: string, detail: string] {
  switch (issue.code) {
    case "invalid_type":
      // zod says only here that the member is absent.
      if (issue.message.endsWith("received undefined")) return ["required", "is required"]
      return ["type", typeNames[issue.expected] ?? "is of the wrong type"]
    case "too_small":
    case "too_big": {
      const bound = issue.code === "too_small" ? `at least ${issue.minimum}` : `at most ${issue.maximum}`
      if (issue.origin === "string") return ["length", `must have ${bound} characters`]
      if (issue.origin === "array" || issue.origin === "set") return ["length", `must have ${bound} items`]
      return ["range", `must be ${bound}`]
    }
    case "invalid_format":
      return ["format", own(issue.message, "is not in the format of this member")]
    case "invalid_value":
      return ["value", `must be one of: ${issue.values.map(String).join(", ")}`]
    case "custom": {
      const code: unknown = issue.params?.code
      return [typeof code === "string" ? code : "format", own(issue.message, "is not valid")]
    }
    default:
      return ["value", "is not valid"]
  }
}

/** The schema's own sentence, unless it has none and this is zod's. */
function own(message: string, otherwise: string): string {
  return /^Invalid\b/.test(message) ? otherwise : message
}
