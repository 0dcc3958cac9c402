/**
 * A disbursement: deciding it (pure), and the answer and event that go with it. What is decided here rests on the
 * facts alone; the clock and the lists that change come in through them, so an old recorded request is replayed before any of this is asked.
 */
import type { Answer } from "../gate/operation.js"
import { newId } from "../ids.js"
import { limits } from "../limits.js"
import type { OutboxEvent } from "../outbox/outbox.js"
import { Problem } from "../problems.js"
import type { AwardFacts } from "./award.js"
import { availableCents, refuseByAward } from "./award-checks.js"
import { isKnownCurrency } from "./currency.js"
import { type NormalisedSubmission, submissionWarnings } from "./submission.js"

/** What a submission is decided on. */
export interface Facts {
  /** The database's clock at the start of the transaction, RFC 3339 UTC with six digits. */
  readonly now: string
  /** null: nobody has opened the award. */
  readonly award: AwardFacts | null
  /** An award must be registered before it can be drawn on. */
  readonly registeredOnly: boolean
}

/** One line of the ledger, as it is written. Times are RFC 3339 UTC. */
export interface Line {
  readonly id: string
  readonly kind: "disbursement"
  readonly portalId: string
  readonly portal: string
  readonly idempotencyKey: string
  readonly submission: NormalisedSubmission
  readonly recordedAt: string
}

/** Who asks, and under which key and id the line will stand. */
export interface Origin {
  readonly id: string
  readonly portalId: string
  readonly portal: string
  readonly idempotencyKey: string
}

/** The ledger line of a submission, or why it is refused. */
export function decideDisbursement(submission: NormalisedSubmission, origin: Origin, facts: Facts): Line | Problem {
  // Both are UTC texts, so most need no reading to be seen as past.
  const ahead = submission.submission_timestamp > facts.now
  if (ahead && Date.parse(submission.submission_timestamp) > Date.parse(facts.now) + limits.submissionAheadMs) {
    return new Problem(
      "submission-timestamp-in-future",
      `submission_timestamp is more than ${limits.submissionAheadMs / 60_000} minutes ahead of the server's clock. Nothing was recorded.`,
    )
  }
  if (!isKnownCurrency(submission.currency)) {
    return new Problem(
      "currency-unknown",
      "The currency is not an ISO 4217 code that this version knows. Nothing was recorded.",
    )
  }
  const refusal = refuseByAward(submission, origin.portal, facts.award, facts.registeredOnly)
  if (refusal) return refusal
  return { ...origin, kind: "disbursement", submission, recordedAt: facts.now }
}

/**
 * The answer to a first acceptance; stored and replayed byte for byte.
 * @param facts those that the line was decided on: where a ceiling is set, the answer says what this line leaves of it
 */
export function created(line: Line, { award }: Pick<Facts, "award">): Answer {
  const { submission } = line
  const left = award === null ? null : availableCents(award)
  return {
    status: 201,
    contentType: "application/json",
    location: `/v1/disbursements/${line.id}`,
    body: JSON.stringify({
      id: line.id,
      award_id: submission.award_id,
      amount_cents: submission.amount_cents,
      currency: submission.currency,
      submission_timestamp: submission.submission_timestamp,
      ...(submission.submission_id === undefined ? {} : { submission_id: submission.submission_id }),
      idempotency_key: line.idempotencyKey,
      status: "recorded",
      recorded_at: line.recordedAt,
      ...(award === null || left === null
        ? {}
        : {
            award: {
              disbursed_cents: award.disbursedCents + submission.amount_cents,
              available_cents: left - submission.amount_cents,
            },
          }),
      warnings: submissionWarnings(submission),
    }),
  }
}

/** The fact that a disbursement was recorded. */
export function disbursementRecorded(line: Line): OutboxEvent {
  const { submission } = line
  const { award_key, details: _kept_with_the_request, ...members } = submission
  return {
    id: newId(),
    aggregatetype: "award",
    aggregateid: award_key,
    type: "disbursement.recorded",
    eventKey: `disbursement.recorded:${line.id}`,
    payload: {
      id: line.id,
      kind: line.kind,
      ...members,
      idempotency_key: line.idempotencyKey,
      portal: line.portal,
      recorded_at: line.recordedAt,
    },
  }
}
