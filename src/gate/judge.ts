/**
 * What a recorded claim means for a request that comes later: replay, conflict, duplicate, voided. Pure: reads nothing, writes nothing.
 * The same judgement serves a group's losers and the look-ups outside it.
 */
import { Problem } from "../problems.js"
import type { Claimant, Found } from "./claim.js"
import { sameRequest } from "./fingerprint.js"
import { type Ask, lineOf, type Settled } from "./operation.js"

/** A refused reuse of a key, to be recorded before it is answered. */
export interface Conflict {
  readonly kind: "conflict"
  readonly ask: Ask
  readonly originalOperation: string
  readonly originalFingerprint: string
  readonly resourceId: string
  readonly differs: readonly string[]
}

/** @returns how the request ends, now that `found` is what is recorded */
export function judge({ ask, voiding }: Claimant, found: Found): Settled | Conflict {
  const { resourceId, state, answer, operation, fingerprint } = found
  if (found.by === "submission_id") {
    return refused(
      new Problem(
        "duplicate-submission",
        "This submission_id is recorded under another idempotency key. Nothing was recorded now.",
        { disbursement_id: resourceId },
      ),
    )
  }
  if (state === "voided") {
    if (voiding) return { kind: "voided" }
    return refused(
      new Problem("idempotency-key-voided", "The key was voided before this request arrived. Nothing was recorded."),
    )
  }
  if (state === "purged") {
    return refused(
      new Problem(
        "submission-purged",
        "What this key recorded was purged when its retention ended. It is not recorded again.",
        naming(operation, resourceId),
      ),
    )
  }
  if (operation === null || fingerprint === null || answer === null || found.request === null) {
    throw new Error("a completed claim has its operation, fingerprint and answer")
  }
  // After a COMMIT of unknown outcome: the claim holds this request's own id, so it was this request that took effect.
  if (resourceId === ask.resourceId) return { kind: "recorded", answer, resourceId }
  if (voiding) {
    return refused(
      new Problem(
        "already-applied",
        "The key has been used, so it cannot be voided. What it recorded stands.",
        naming(operation, resourceId),
      ),
    )
  }
  if (operation === ask.operation && sameRequest(fingerprint, ask.canonical))
    return { kind: "replayed", answer, resourceId }
  return {
    kind: "conflict",
    ask,
    originalOperation: operation,
    originalFingerprint: fingerprint,
    resourceId,
    differs: ask.differs(operation, found.request),
  }
}

/** The answer to a conflict, once it is recorded. */
export function conflictRefusal(conflict: Conflict): Settled {
  return refused(
    new Problem(
      "idempotency-key-reused",
      "The key was used for a request that is not the same. This one was not recorded; the original stands.",
      { differs: conflict.differs, ...naming(conflict.originalOperation, conflict.resourceId) },
    ),
  )
}

/** The member of a problem that names what is recorded, where that is a ledger line. */
function naming(operation: string | null, resourceId: string): { readonly disbursement_id?: string } {
  const line = lineOf(operation, resourceId)
  return line === null ? {} : { disbursement_id: line }
}

export function refused(problem: Problem): Settled {
  return { kind: "refused", problem }
}
