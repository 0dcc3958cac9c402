/**
 * The OpenAPI 3.1 document, made from the routes' own schemas and the problem catalogue; /openapi.json, and /docs to browse and try it.
 * A route declares what it answers with `answer` and `problems`; headers and examples of problems are filled in from the catalogue here,
 * so that no route repeats them.
 */
import swagger from "@fastify/swagger"
import swaggerUi from "@fastify/swagger-ui"
import { createJsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod"
import { z } from "zod"
import { Problem, type ProblemCode, problems } from "../problems.js"
import type { App } from "./deps.js"
import { completeDocument, type Json } from "./openapi-document.js"
import { problemContentType } from "./problem-replies.js"

/** A header that an answer carries: JSON schema and description in one. */
export interface HeaderDoc {
  readonly description: string
  readonly type: "string" | "integer" | "boolean"
  readonly format?: string
  readonly enum?: readonly unknown[]
}

/** What one status answers. Sits under `response` of a route's schema; the index signature keeps Fastify from typing replies by it. */
export interface AnswerDoc {
  readonly description: string
  readonly content: Record<string, { readonly schema: z.ZodType; readonly example?: unknown }>
  readonly headers?: Record<string, HeaderDoc>
}

export type ResponseDocs = Record<number, AnswerDoc>

/** A JSON answer. */
export function answer(
  schema: z.ZodType,
  description: string,
  more: { example?: unknown; headers?: Record<string, HeaderDoc> } = {},
): AnswerDoc {
  return answerAs("application/json", schema, description, more)
}

/** An answer of another media type; for NDJSON the schema is a line's. */
export function answerAs(
  type: string,
  schema: z.ZodType,
  description: string,
  more: { example?: unknown; headers?: Record<string, HeaderDoc> } = {},
): AnswerDoc {
  const { example, headers } = more
  return {
    description,
    content: { [type]: example === undefined ? { schema } : { schema, example } },
    ...(headers ? { headers } : {}),
  }
}

/** 204. */
export function noContent(description: string) {
  return z.undefined().describe(description)
}

/** What can go wrong with any JSON body. */
export const bodyProblems = ["media-type-unsupported", "body-too-large", "malformed-json", "invalid-request"] as const

/** The problem responses of a route that needs a token: those named, and those that every such route may give. */
export function problemResponses(...codes: ProblemCode[]): ResponseDocs {
  return openProblems("unauthenticated", "forbidden", "unavailable", ...codes)
}

/** The problem responses of a route that is open to all; any request may be one that cannot be read. */
export function openProblems(...codes: ProblemCode[]): ResponseDocs {
  const byStatus = new Map<number, ProblemCode[]>()
  for (const code of new Set<ProblemCode>(["invalid-request", ...codes, "internal"])) {
    const { status } = problems[code]
    byStatus.set(status, [...(byStatus.get(status) ?? []), code])
  }
  return Object.fromEntries(
    [...byStatus].map(([status, list]) => [
      status,
      {
        // Written with the examples, when it is known what the operation does.
        description: "",
        content: {
          [problemContentType]: {
            schema: z.intersection(problemSchema, z.looseObject({ code: z.enum(list as [ProblemCode]) })),
          },
        },
      },
    ]),
  )
}

/** One fault of a request, or of a submission that was recorded all the same. */
export const faultSchema = z
  .object({
    pointer: z.string().describe('The member at fault, RFC 6901, such as `/amount_cents`; `""` for the whole'),
    code: z.string().describe("Stable, such as `required`, `type`, `format`, `range`, `length`, `unknown-member`"),
    detail: z.string().describe("In words"),
  })
  .meta({ id: "Fault" })

/** Every 4xx and 5xx. */
export const problemSchema = z
  .looseObject({
    type: z.url().describe("Leads to a page about this kind of problem"),
    title: z.string().describe("The kind of problem, in words"),
    status: z.int().min(400).max(599),
    detail: z.string().describe("What happened in this case"),
    instance: z
      .string()
      .describe("The request's id, also in the `Request-Id` header: give it to whoever runs the service"),
    code: z.enum(Object.keys(problems) as [ProblemCode]).describe("The kind of problem, for programs"),
    outcome: z
      .enum(["not_applied", "applied", "unknown"])
      .describe("Whether what was asked for is recorded: no, yes, or it may be"),
    retry: z
      .enum(["after-fixing", "same-key", "new-key", "never"])
      .describe(
        "What to do: correct it and send it again; send the same again with the same key; only with a new key, as another request; do not send it again",
      ),
    errors: z.array(faultSchema).optional().describe("All faults of a request that is not valid"),
    differs: z
      .array(z.string())
      .optional()
      .describe("JSON pointers of the members that differ from the original request"),
    disbursement_id: z.string().optional().describe("What is recorded already"),
    available_cents: z.int().optional().describe("What the award, or the disbursement, had left at this decision"),
    net_cents: z.int().optional().describe("What the award has disbursed, less what came back"),
  })
  .meta({ id: "Problem", description: "RFC 9457 problem details; a program needs only `retry`." })

const introduction = `Records grant award disbursements so that a retry, a double click or a crash never pays twice and never loses a payment.

1. Make a key for each disbursement that you intend, and **save it before you send**.
2. Send the submission with the key in \`Idempotency-Key\`.
3. No answer? Send **the same body with the same key** again, until you have one.

| You get | What it means | What you do |
|---|---|---|
| **201** | Recorded now. | Keep \`id\`. Done. |
| **200** with \`Idempotent-Replayed: true\` | An earlier try recorded it; this is its answer. | The same as for 201. |
| **409**, **422** | Refused; \`outcome\` says whether it is recorded already. | What \`retry\` says. |
| other **4xx** | Nothing was recorded. | Correct it and send it again; the key is still free. |
| no answer, **429**, **5xx** | It may or may not be recorded. | The same body with the same key again, after \`Retry-After\`. |

Every 4xx and 5xx is a problem (RFC 9457), and all a program needs of it is \`retry\`: \`after-fixing\`, \`same-key\`, \`new-key\` or \`never\`.
[All problems, and what to do about each](/problems).

**To try it here:** *Authorize* with a portal's token, open *Record a disbursement*, *Execute*: 201. *Execute* again: 200, and nothing more is recorded.`

/** Registers what collects the routes; call it before any route that belongs into the document. */
export function registerOpenapi(app: App): void {
  app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "grantgate",
        version: "1",
        summary: "Idempotent recording of grant award disbursements",
        description: introduction,
        license: { name: "MIT", identifier: "MIT" },
      },
      servers: [{ url: "/", description: "This server" }],
      tags: [
        { name: "submissions", description: "Recording disbursements, each exactly as often as it is meant" },
        { name: "outcomes", description: "What became of a key" },
        { name: "disbursements", description: "Reading the ledger" },
        { name: "awards", description: "What may be disbursed, by whom and when; and what is left" },
        { name: "balances", description: "What accounts hold, as their sources tell it" },
        { name: "portals", description: "Who may call" },
        { name: "evidence", description: "Who did what, and why" },
        { name: "service", description: "The service itself" },
      ],
      components: {
        securitySchemes: {
          token: { type: "http", scheme: "bearer", description: "A portal's token, such as `gg_…`" },
        },
      },
    },
    transform: (input) => {
      const { schema, url } = transform(input as never)
      return { url, schema: describeRoute(input as never, (schema ?? { hide: true }) as Json) as never }
    },
    transformObject: (input) => completeDocument(jsonSchemaTransformObject(input) as Json) as never,
  })
  app.register(swaggerUi, {
    routePrefix: "/docs",
    uiConfig: {
      // Without the bar on top, which would load any other document.
      layout: "BaseLayout",
      tryItOutEnabled: true,
      persistAuthorization: false,
      displayRequestDuration: true,
    },
    theme: { title: "grantgate", css: [{ filename: "grantgate.css", content: docsStyle }] },
  })
}

/** Room between the columns of the introduction's table, no column for links, of which there are none, and buttons that wrap: it fits a telephone. */
const docsStyle = `.swagger-ui .info table { display: block; overflow-x: auto; padding: 0 }
.swagger-ui .info table :is(th, td) { padding: .5rem 1.25rem .5rem 0 !important; vertical-align: top }
.swagger-ui .info { margin: 2rem 0 }
.swagger-ui .response-col_links { display: none }
.swagger-ui .responses-table { table-layout: fixed }
.swagger-ui .response-col_status { width: 4rem }
.swagger-ui .opblock .opblock-section-header { flex-wrap: wrap; height: auto }
`

const transform = createJsonSchemaTransform({ skipList: [] })

/** The provider drops headers and examples that stand beside a response's schema: they are put back. Roles become security and a sentence. */
function describeRoute(
  input: { schema?: unknown; route: { config?: { roles?: readonly string[] } } },
  schema: Json,
): Json {
  const docs = (input.schema as { response?: Record<string, Partial<AnswerDoc>> } | undefined)?.response ?? {}
  const made = (schema.response ?? {}) as Record<string, Json>
  for (const [status, doc] of Object.entries(docs)) {
    const response = made[status]
    if (!response) continue
    if (doc.headers) response.headers = doc.headers
    for (const [type, { example }] of Object.entries(doc.content ?? {})) {
      const content = (response.content as Record<string, Json>)[type]
      if (example !== undefined && content) content.example = example
    }
  }
  const sent = (input.schema as { requestHeaders?: Json } | undefined)?.requestHeaders
  if (sent) schema.headers = { type: "object", properties: sent }
  const roles = input.route.config?.roles
  if (schema.hide === true) return schema
  if (!roles) return { ...schema, security: [] }
  const sentence = `Needs a token with the role ${roles.map((role) => `\`${role}\``).join(" or ")}.`
  return {
    ...schema,
    security: [{ token: [] }],
    description: [schema.description, sentence].filter((text) => text !== undefined).join("\n\n"),
  }
}

export function openapiRoutes(app: App): void {
  app.get("/openapi.json", { schema: { hide: true } }, async (_request, reply) => {
    reply.header("content-type", "application/json")
    return JSON.stringify(app.swagger())
  })
}

export function notFound(what: string): Problem {
  return new Problem("not-found", `There is no such ${what} for this token.`)
}
