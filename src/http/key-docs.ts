/**
 * What the OpenAPI document says of keys and of the two answers to a keyed request, for every operation that records something. Documentation only:
 * the preHandler reads the header itself.
 */
import type { z } from "zod"
import { answer, type HeaderDoc, type ResponseDocs } from "./openapi.js"

/** The request's header. @param example quoted */
export function keyHeader(what: string, example: string) {
  return {
    "Idempotency-Key": {
      type: "string",
      description: `The caller's name for this one intended ${what}: 1 to 255 printable ASCII characters, in double quotes (\`${example}\`, an RFC 8941 string) or bare. Save it before you send.`,
      examples: [example],
    },
  }
}

/** What the key itself can be refused for, on any operation. */
export const keyProblems = [
  "idempotency-key-invalid",
  "idempotency-key-required",
  "idempotency-key-reused",
  "idempotency-key-voided",
  "request-in-progress",
  "submission-purged",
] as const

/** 201, and 200 for its replay. @param location what `Location` leads to */
export function recordedAnswers(schema: z.ZodType, example: unknown, location: string): ResponseDocs {
  const headers: Record<string, HeaderDoc> = {
    "Idempotency-Key": { type: "string", description: "The key used, quoted" },
    "Idempotency-Key-Source": {
      type: "string",
      enum: ["client", "derived"],
      description: "`client`: as sent; `derived`: made here",
    },
    Location: { type: "string", format: "uri-reference", description: location },
  }
  return {
    201: answer(schema, "**Recorded now.** Keep `id`; you are done.", { example, headers }),
    200: answer(
      schema,
      "**Recorded by an earlier try**: its answer, byte for byte. Nothing more was recorded; you are done.",
      {
        example,
        headers: {
          ...headers,
          "Idempotent-Replayed": {
            type: "boolean",
            enum: [true],
            description: "This is the answer of an earlier request",
          },
          "Idempotency-Original-Status": { type: "integer", enum: [201], description: "That answer's status" },
        },
      },
    ),
  }
}
