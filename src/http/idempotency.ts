/**
 * The idempotency preHandler, the last hook before a handler: take the key from the header or derive it, and claim it in Postgres. A replay or a
 * refusal is answered here, and the handler never runs. Nothing is stored in onSend or onResponse: those also run for refusals, and would
 * overwrite the original with one.
 */
import type { FastifyReply, FastifyRequest } from "fastify"
import { canonicalRequest, fingerprint } from "../gate/fingerprint.js"
import { type KeyStrategy, parseKeyHeader, quoteKey } from "../gate/key.js"
import type { Ask, Claimed, Settled } from "../gate/operation.js"
import { newId } from "../ids.js"
import type { AllFacts, Rows } from "../ledger/book.js"
import { Problem } from "../problems.js"
import type { App, Audit, GatedDeps } from "./deps.js"
import type { SubmissionOutcome } from "./metrics.js"

/** What an operation says of a request that is valid in itself. */
export interface Prepared {
  readonly operation: string
  readonly params: Readonly<Record<string, string>>
  /** RFC 8785 text of the normalised body. */
  readonly canonicalBody: string
  readonly submissionId: string | null
  readonly awardKey: string | null
  /** As sent; the one value of a payload that a log line may hold. */
  readonly awardId: string | null
  /** The line that it returns or reverses. */
  readonly undoes?: string
  /** The portal's account whose balance it tells. */
  readonly account?: string
  /** The key where the header is absent; null: the header is needed. */
  derive(): { key: string; strategy: KeyStrategy } | null
  /** JSON pointers of the members in which a stored request differs. */
  differs(storedOperation: string, storedRequestText: string): string[]
}

declare module "fastify" {
  interface FastifyRequest {
    /** The key, claimed in an open transaction; set by the preHandler of every operation that records something. */
    claim: Claimed<AllFacts, Rows> | null
    /** What the claim was asked for. */
    ask: Ask | null
  }
}

/** What every request carries for it; and a claim whose handler failed gives its key back at once. */
export function registerClaims(app: App): void {
  app.decorateRequest("claim", null)
  app.decorateRequest("ask", null)
  app.addHook("onError", async (request) => request.claim?.abandon())
}

/**
 * Makes the preHandler of an operation.
 * @param how.header `ignored`: the key is always derived, and no header, right or wrong, makes a difference
 */
export function claimIdempotencyKey(
  deps: GatedDeps,
  prepare: (request: FastifyRequest) => Prepared,
  how: { readonly header: "read" | "ignored" } = { header: "read" },
) {
  const reads = how.header === "read"
  return async function claimIdempotencyKey(
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply | undefined> {
    const sent = reads ? parseKeyHeader(request.raw.rawHeaders) : null
    if (reads && sent === null && request.caller.keyRequired) {
      throw new Problem(
        "idempotency-key-required",
        "This portal sends an Idempotency-Key with every request, and this one has none. Nothing was recorded.",
      )
    }
    const prepared = prepare(request)
    const named = sent === null ? prepared.derive() : ({ key: sent, strategy: "client/1" } as const)
    if (named === null) {
      throw new Problem(
        "idempotency-key-required",
        "This operation needs an Idempotency-Key header. Nothing was recorded.",
      )
    }
    reply
      .header("idempotency-key", quoteKey(named.key))
      .header("idempotency-key-source", sent === null ? "derived" : "client")

    const ask = askFor(prepared, named, {
      portalId: request.caller.portalId,
      requestText: request.bodyBytes.toString("utf8"),
      requestId: request.id,
      bulk: false,
    })
    request.ask = ask
    request.audit = auditOf(prepared, named.key, "refused")
    const outcome = await deps.gate.claim(ask)
    if (outcome.kind === "claimed") {
      request.claim = outcome
      return
    }
    return sendSettled(deps, request, reply, outcome)
  }
}

/** What the gate is asked for a request that is valid in itself, whichever way it came in. */
export function askFor(
  prepared: Prepared,
  named: { readonly key: string; readonly strategy: KeyStrategy },
  from: Pick<Ask, "portalId" | "requestText" | "requestId" | "bulk">,
): Ask {
  const canonical = canonicalRequest(prepared.operation, prepared.params, prepared.canonicalBody)
  return {
    ...from,
    key: named.key,
    keyStrategy: named.strategy,
    operation: prepared.operation,
    canonical,
    fingerprint: fingerprint(canonical),
    submissionId: prepared.submissionId,
    awardKey: prepared.awardKey,
    undoes: prepared.undoes ?? null,
    account: prepared.account ?? null,
    resourceId: newId(),
    differs: prepared.differs,
  }
}

/** What a log line may say of it: the beginning of the key, the award, and no more. */
export function auditOf({ awardId }: Prepared, key: string, event: string): Audit {
  return { event, key: key.slice(0, 12), ...(awardId === null ? {} : { award_id: awardId }) }
}

const asItIs = (body: string): string => body

/** How its end is counted. */
export function countedAs(settled: Settled): SubmissionOutcome {
  if (settled.kind === "recorded" || settled.kind === "replayed") return settled.kind
  if (settled.kind === "voided") return "refused"
  switch (settled.problem.code) {
    case "idempotency-key-reused":
      return "conflict"
    case "request-in-progress":
      return "in_progress"
    case "unavailable":
    case "overloaded":
      return "unavailable"
    default:
      return settled.problem.kind.status === 400 ? "invalid" : "refused"
  }
}

/** Answers with how a request ended: the stored answer byte for byte, or a problem. */
export function sendSettled(
  deps: GatedDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  settled: Settled,
): FastifyReply {
  const event = settled.kind === "refused" ? settled.problem.code : settled.kind
  if (request.audit) request.audit = { ...request.audit, event }
  deps.metrics.outcome(request.ask?.operation ?? "unknown", countedAs(settled))
  if (settled.kind === "refused") throw settled.problem
  if (settled.kind === "voided") throw new Error("only a void ends as voided")
  const { answer } = settled
  if (settled.kind === "replayed") {
    reply.code(200).header("idempotent-replayed", "true").header("idempotency-original-status", String(answer.status))
  } else {
    reply.code(answer.status)
  }
  if (answer.location !== null) reply.header("location", answer.location)
  // Serialized already. Without this Fastify would add a charset, and the first answer's Content-Type is part of what is replayed.
  return reply.header("content-type", answer.contentType).serializer(asItIs).send(answer.body)
}
