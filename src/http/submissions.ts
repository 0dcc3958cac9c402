/** `POST /v1/submissions`: the way of one submission through the gate. What is decided and written is the ledger's; this file is the way there. */
import type { FastifyRequest } from "fastify"
import { differences } from "../gate/fingerprint.js"
import { deriveKey } from "../gate/key.js"
import { created, decideDisbursement, disbursementRecorded } from "../ledger/disbursement.js"
import { readJsonText } from "../ledger/strict-json.js"
import {
  canonicalSubmission,
  type NormalisedSubmission,
  normaliseSubmission,
  parseSubmission,
  type Submission,
} from "../ledger/submission.js"
import { Problem } from "../problems.js"
import type { App, GatedDeps } from "./deps.js"
import { claimIdempotencyKey, type Prepared, sendSettled } from "./idempotency.js"
import { submissionDocs } from "./submission-docs.js"

const operation = "submission"

declare module "fastify" {
  interface FastifyRequest {
    submission: NormalisedSubmission | null
  }
}

/** Registers the route. */
export function submissionRoutes(app: App, deps: GatedDeps): void {
  app.decorateRequest("submission", null)
  app.post(
    "/v1/submissions",
    {
      config: { roles: ["portal"] },
      schema: submissionDocs,
      preHandler: claimIdempotencyKey(deps, prepareSubmission),
    },
    async (request, reply) => {
      const { claim, ask, submission, caller } = request
      if (!claim || !ask || !submission) throw new Error("the preHandler claims the key first")
      const origin = { id: ask.resourceId, portalId: caller.portalId, portal: caller.portal, idempotencyKey: ask.key }
      const settled = await claim.write((facts) => {
        const line = decideDisbursement(submission, origin, facts)
        if (line instanceof Problem) return line
        return { disbursements: [line], outbox: [disbursementRecorded(line)], answer: created(line, facts) }
      })
      return sendSettled(deps, request, reply, settled)
    },
  )
}

function prepareSubmission(request: FastifyRequest): Prepared {
  const submission = normaliseSubmission(request.body as Submission)
  request.submission = submission
  const canonicalBody = canonicalSubmission(submission)
  return {
    operation,
    params: {},
    canonicalBody,
    submissionId: submission.submission_id ?? null,
    awardKey: submission.award_key,
    awardId: submission.award_id,
    derive: () => ({
      key: deriveKey(submission.award_key, submission.submission_timestamp, canonicalBody),
      strategy: "award-timestamp-payload/1",
    }),
    differs: (storedOperation, storedRequestText) =>
      storedOperation === operation ? differences(normalised(storedRequestText), JSON.parse(canonicalBody)) : [""],
  }
}

/** The stored request in the form in which it was compared. */
function normalised(requestText: string): unknown {
  return JSON.parse(canonicalSubmission(normaliseSubmission(parseSubmission(readJsonText(requestText)))))
}
