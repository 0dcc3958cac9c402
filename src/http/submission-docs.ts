/**
 * What the OpenAPI document says of POST /v1/submissions: the headers both ways, both answers, every problem. Documentation only; the route checks
 * its own header.
 */
import { z } from "zod"
import { answer, bodyProblems, type HeaderDoc, problemResponses } from "./openapi.js"

const recorded = z
  .object({
    id: z.string().meta({ format: "uuid" }),
    award_id: z.string().describe("As sent"),
    amount_cents: z.int(),
    currency: z.string(),
    submission_timestamp: z.string().describe("In UTC"),
    submission_id: z.string().optional(),
    idempotency_key: z.string(),
    status: z.literal("recorded"),
    recorded_at: z.string(),
    award: z
      .object({ disbursed_cents: z.int(), available_cents: z.int() })
      .optional()
      .describe("As of this decision; only where the award has a ceiling"),
    warnings: z.array(z.unknown()).describe("What is odd and was recorded all the same"),
  })
  .meta({ id: "RecordedSubmission" })

const example = {
  id: "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90",
  award_id: "A-2026-014",
  amount_cents: 125000,
  currency: "USD",
  submission_timestamp: "2025-07-01T09:00:00Z",
  idempotency_key: "inv-7781-a",
  status: "recorded",
  recorded_at: "2025-07-01T09:00:02.417305Z",
  warnings: [],
}

const keyHeaders: Record<string, HeaderDoc> = {
  "Idempotency-Key": { type: "string", description: "The key used, quoted" },
  "Idempotency-Key-Source": { type: "string", description: "`client`, or `derived` where none was sent" },
  Location: { type: "string", description: "The ledger line" },
}

/** Spread it into the route's schema, beside `body`. */
export const submissionDocs = {
  operationId: "submit",
  tags: ["submissions"],
  summary: "Record a disbursement",
  description:
    "Send it again, with the same `Idempotency-Key` and the same body, until it is answered: it is recorded once. The same key with another body is refused with 422. Without the header the key is derived from the award, the timestamp and the contents, so that equal contents are one submission.",
  requestHeaders: {
    "Idempotency-Key": {
      type: "string",
      description:
        'The caller\'s name for this one intended disbursement: 1 to 255 printable ASCII characters, as an RFC 8941 string (`"inv-7781-a"`) or bare. Save it before sending.',
      examples: ['"inv-7781-a"'],
    },
  },
  requestExample: { award_id: "A-2026-014", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 125000 },
  response: {
    201: answer(recorded, "Recorded, for the first time.", { example, headers: keyHeaders }),
    200: answer(recorded, "A replay: the first answer, byte for byte. Nothing was recorded now.", {
      example,
      headers: {
        ...keyHeaders,
        "Idempotent-Replayed": { type: "boolean", description: "Always true" },
        "Idempotency-Original-Status": { type: "integer", description: "The first answer's status, 201" },
      },
    }),
    ...problemResponses(
      ...bodyProblems,
      "idempotency-key-invalid",
      "idempotency-key-required",
      "idempotency-key-reused",
      "idempotency-key-voided",
      "request-in-progress",
      "submission-purged",
      "duplicate-submission",
      "submission-timestamp-in-future",
      "currency-unknown",
      "award-not-found",
      "currency-mismatch",
      "award-funds-exceeded",
      "award-busy",
      "overloaded",
    ),
  },
}
