/** What the OpenAPI document says of POST /v1/submissions/batch: one line each way. Documentation only; the lines are read one by one. */
import { z } from "zod"
import { submissionLineSchema } from "../ledger/submission.js"
import { answerAs, problemResponses, problemSchema } from "./openapi.js"

const answered = z
  .object({
    line: z.int().describe("Which line it answers: they count from 1, blank lines, which are not answered, included"),
    status: z
      .int()
      .describe(
        "What the submission alone would have been answered: 201 recorded now, 200 recorded before, or a problem's",
      ),
    idempotency_key: z.string().optional().describe("The key used, sent or derived"),
    disbursement_id: z.string().optional().describe("The ledger line, under which it can be read"),
    problem: problemSchema.optional().describe("Why it was refused, as the submission alone would have been told"),
  })
  .meta({ id: "BatchAnswer" })

/** Spread it into the route's schema. */
export const batchDocs = {
  operationId: "submitBatch",
  tags: ["submissions"],
  summary: "Record many disbursements",
  description: `One submission a line (NDJSON), any number of lines of at most 64 KiB each, with a member \`idempotency_key\` where it has a key of its own; the answers come back in the same order, a line each, **while you send**: read them while you send.

A line stands or falls alone, and is answered as if it had come alone. Two lines with one key: the second is a replay of the first, or a conflict with it.

Cut off, or ended early? What was recorded stays recorded; send the whole file again, and only the rest is recorded. The stream ends early with a line of status 503 when the database is lost or the service stops, and with 408 when nothing moved for 60 s; lines without an answer are safe to send again. An \`Idempotency-Key\` header is not used here.`,
  consumes: ["application/x-ndjson"],
  body: submissionLineSchema.meta({
    id: "SubmissionLine",
    description: "One line: a submission, and its key.",
    examples: [
      {
        award_id: "A-2026-014",
        submission_timestamp: "2025-07-01T09:00:00Z",
        amount_cents: 125000,
        idempotency_key: "inv-7781-b",
      },
    ],
  }),
  response: {
    200: answerAs(
      "application/x-ndjson",
      answered,
      "**A line for each submission**, in the order in which they were sent.",
      {
        example: {
          line: 1,
          status: 201,
          idempotency_key: "inv-7781-b",
          disbursement_id: "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90",
        },
      },
    ),
    ...problemResponses("media-type-unsupported", "malformed-json"),
  },
}
