/**
 * `POST /v1/submissions`: the way of one submission through the gate. What is decided and written is the ledger's; this file is the way there, and
 * the lines of a batch take it too.
 */
import type { FastifyRequest } from "fastify"
import { differences } from "../gate/fingerprint.js"
import { deriveKey } from "../gate/key.js"
import type { Ask, Decide } from "../gate/operation.js"
import type { Rows } from "../ledger/book.js"
import { created, decideDisbursement, disbursementRecorded, type Facts } from "../ledger/disbursement.js"
import { readJsonText } from "../ledger/strict-json.js"
import {
  canonicalSubmission,
  type NormalisedSubmission,
  normaliseSubmission,
  parseSubmissionLine,
  type Submission,
} from "../ledger/submission.js"
import type { Caller } from "../portals/portals.js"
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
      preHandler: claimIdempotencyKey(deps, prepareRequest),
    },
    async (request, reply) => {
      const { claim, ask, submission, caller } = request
      if (!claim || !ask || !submission) throw new Error("the preHandler claims the key first")
      return sendSettled(deps, request, reply, await claim.write(decideSubmission(submission, ask, caller)))
    },
  )
}

function prepareRequest(request: FastifyRequest): Prepared {
  request.submission = normaliseSubmission(request.body as Submission)
  return prepareSubmission(request.submission)
}

/** The decision on a submission, and what it writes. */
export function decideSubmission(submission: NormalisedSubmission, ask: Ask, caller: Caller): Decide<Facts, Rows> {
  const origin = { id: ask.resourceId, portalId: caller.portalId, portal: caller.portal, idempotencyKey: ask.key }
  return (facts) => {
    const line = decideDisbursement(submission, origin, facts)
    if (line instanceof Problem) return line
    return { disbursements: [line], outbox: [disbursementRecorded(line)], answer: created(line, facts) }
  }
}

/** What the gate needs to know of a submission. */
export function prepareSubmission(submission: NormalisedSubmission): Prepared {
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

/** The stored request in the form in which it was compared; the line of a batch may name its key, which is no part of that. */
function normalised(requestText: string): unknown {
  const { submission } = parseSubmissionLine(readJsonText(requestText))
  return JSON.parse(canonicalSubmission(normaliseSubmission(submission)))
}
