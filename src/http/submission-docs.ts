/**
 * What the OpenAPI document says of POST /v1/submissions: the headers both ways, both answers, every problem. Documentation only; the route checks
 * its own header.
 */
import { z } from "zod"
import { submissionSchema } from "../ledger/submission.js"
import { keyHeader, keyProblems, recordedAnswers } from "./key-docs.js"
import { bodyProblems, faultSchema, problemResponses } from "./openapi.js"

const instant = z.string().meta({ format: "date-time" })
const cents = z.int()

const recorded = z
  .object({
    id: z.string().meta({ format: "uuid", description: "The ledger line's id, under which it can be read" }),
    award_id: z.string().describe("As sent"),
    amount_cents: cents,
    currency: z.string(),
    submission_timestamp: instant.describe("In UTC"),
    submission_id: z.string().optional().describe("When it was sent"),
    idempotency_key: z.string().describe("The key used, without quotes"),
    status: z.literal("recorded"),
    recorded_at: instant.describe("By the database's clock"),
    award: z
      .object({ disbursed_cents: cents, available_cents: cents })
      .optional()
      .describe("As of this decision; only where the award has a ceiling"),
    warnings: z.array(faultSchema).describe("What is odd and was recorded all the same"),
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

/** Spread it into the route's schema. */
export const submissionDocs = {
  operationId: "submit",
  tags: ["submissions"],
  summary: "Record a disbursement",
  description: `Send it with a key of its own in \`Idempotency-Key\`, and send **the same body with the same key** again until it is answered: it is recorded once.

The same key with another body is refused with 422, and the first stays as it is. Without the header a key is derived from award, timestamp and contents, so that equal contents are one submission.`,
  requestHeaders: keyHeader("disbursement", '"inv-7781-a"'),
  // Named here, not in the ledger: the name is the document's.
  body: submissionSchema.meta({
    id: "Submission",
    description: "One intended disbursement.",
    examples: [{ award_id: "A-2026-014", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 125000 }],
  }),
  response: {
    ...recordedAnswers(recorded, example, "The ledger line, `/v1/disbursements/{id}`"),
    ...problemResponses(
      ...bodyProblems,
      ...keyProblems,
      "duplicate-submission",
      "submission-timestamp-in-future",
      "currency-unknown",
      "award-not-found",
      "award-not-permitted",
      "award-not-active",
      "award-period-closed",
      "currency-mismatch",
      "award-funds-exceeded",
      "award-busy",
      "overloaded",
    ),
  },
}
