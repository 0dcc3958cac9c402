/**
 * Fastify's validator: a zod schema as it stands, nothing coerced, and all faults of a part of the request at once.
 */
import type { FastifySchemaCompiler } from "fastify"
import type { z } from "zod"
import { faultsOf } from "../ledger/faults.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"

const parts: Record<string, string> = { body: "body", params: "path", querystring: "query string" }

/** Answers the parsed value, or the Problem that lists all faults. */
export const validatorCompiler: FastifySchemaCompiler<z.ZodType> =
  ({ schema, httpPart = "body" }) =>
  (data: unknown) => {
    const read = schema.safeParse(data)
    if (read.success) return { value: read.data }
    const faults = faultsOf(read.error)
    const count = faults.length === 1 ? "one fault" : `${faults.length} faults`
    const detail = `The ${parts[httpPart] ?? httpPart} has ${count}.`
    return { error: new Problem("invalid-request", detail, { errors: faults.slice(0, limits.pointersMax) }) }
  }
