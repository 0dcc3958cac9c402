/**
 * Returns and reversals: what came back of a disbursement, as negative lines linked to it. The original is never changed, and what comes back
 * is never more than it. Neither looks at the award's status or period: money comes back when it comes back. Deciding is pure.
 */
import canonicalize from "canonicalize"
import { z } from "zod"
import type { Answer } from "../gate/operation.js"
import { newId } from "../ids.js"
import { limits } from "../limits.js"
import type { OutboxEvent } from "../outbox/outbox.js"
import { Problem } from "../problems.js"
import type { Origin } from "./disbursement.js"
import type { LedgerLine } from "./disbursement-reads.js"
import type { Original } from "./original.js"
import { amountCents, printableText } from "./submission.js"

const reason = printableText(limits.reasonCharsMax).meta({
  description: "Why, in words: kept with the line for whoever asks later.",
  examples: ["Invoice paid twice by the county"],
})

/** The body of `POST /v1/disbursements/{id}/returns`. */
export const returnSchema = z.strictObject({
  amount_cents: amountCents.meta({
    description: "What came back, in minor units of the disbursement's currency: a positive JSON integer.",
    examples: [25000],
  }),
  reason,
})

/** The body of `POST /v1/disbursements/{id}/reversal`. */
export const reversalSchema = z.strictObject({ reason })

/** What is asked: a return of an amount, or a reversal of whatever is left. */
export type Undoing =
  | ({ readonly kind: "return" } & z.infer<typeof returnSchema>)
  | ({ readonly kind: "reversal" } & z.infer<typeof reversalSchema>)

/** One return or reversal, as it is written. */
export interface ReturnLine extends Origin {
  readonly kind: "return" | "reversal"
  readonly original: Original
  /** What comes back: positive. The line's own amount is negative. */
  readonly returnedCents: number
  readonly reason: string
  readonly recordedAt: string
}

/** RFC 8785 text of the body: what the fingerprint is made of, beside operation and id. */
export function canonicalUndoing({ kind: _in_the_operation, ...body }: Undoing): string {
  return canonicalize(body) as string
}

/** The ledger line, or why it is refused. @param facts.original null: there is none that the caller may undo */
export function decideReturn(
  asked: Undoing,
  origin: Origin,
  facts: { readonly now: string; readonly original: Original | null },
): ReturnLine | Problem {
  const { original } = facts
  if (original === null)
    return new Problem("not-found", "There is no such disbursement for this token. Nothing was recorded.")
  if (original.kind !== "disbursement")
    return new Problem("not-found", `This line is a ${original.kind}, which is not undone. Nothing was recorded.`)
  if (original.reversed)
    return new Problem("already-reversed", "The disbursement is reversed: all of it has come back. Nothing was added.")
  const left = original.amountCents - original.returnedCents
  if (asked.kind === "reversal" && left === 0)
    return new Problem("already-reversed", "All of it was returned before, so nothing is left. Nothing was added.")
  const returnedCents = asked.kind === "reversal" ? left : asked.amount_cents
  if (returnedCents > left) {
    return new Problem(
      "return-exceeds-disbursement",
      "Less than this is left of the disbursement: `available_cents`. Nothing was recorded.",
      { available_cents: left },
    )
  }
  const { kind, reason } = asked
  return { ...origin, kind, original, returnedCents, reason, recordedAt: facts.now }
}

/** The original once the line is entered: what later members of a group are decided on. */
export function afterReturn(line: ReturnLine): Original {
  const { original, kind, returnedCents } = line
  return {
    ...original,
    returnedCents: original.returnedCents + returnedCents,
    reversed: original.reversed || kind === "reversal",
  }
}

/** The answer to a first acceptance: the line, exactly as it is read from then on. */
export function returned(line: ReturnLine): Answer {
  return {
    status: 201,
    contentType: "application/json",
    location: `/v1/disbursements/${line.id}`,
    body: JSON.stringify(asRead(line)),
  }
}

/** The fact that it came back. Members that the original did not have are absent, as in the event of the original. */
export function disbursementReturned(line: ReturnLine): OutboxEvent {
  const type = line.kind === "return" ? "disbursement.returned" : "disbursement.reversed"
  return {
    id: newId(),
    aggregatetype: "award",
    aggregateid: line.original.awardKey,
    type,
    eventKey: `${type}:${line.id}`,
    payload: Object.fromEntries(Object.entries(asRead(line)).filter(([, value]) => value !== null)),
  }
}

function asRead({
  id,
  kind,
  idempotencyKey,
  portal,
  original,
  returnedCents,
  reason,
  recordedAt,
}: ReturnLine): LedgerLine {
  const { award_id, currency, submission_timestamp, submission_id, ...rest } = original.members
  return {
    id,
    kind,
    award_id,
    amount_cents: -returnedCents,
    currency,
    submission_timestamp,
    submission_id,
    idempotency_key: idempotencyKey,
    portal: original.portal,
    recorded_at: recordedAt,
    ...rest,
    disbursement_id: original.id,
    reason,
    recorded_by: portal,
  }
}
