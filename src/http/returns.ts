/**
 * `POST /v1/disbursements/{id}/returns` and `/reversal`: the way of money that comes back. Whose the original is never changes, so that is read before
 * the gate; what came back so far does, so that comes with the facts. A line that the caller may not undo goes through the gate all the
 * same: a key that was used is recognised before anything is said of the line.
 */
import type { FastifyReply, FastifyRequest, preHandlerAsyncHookHandler } from "fastify"
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { differences } from "../gate/fingerprint.js"
import { type Original, readOriginals } from "../ledger/original.js"
import {
  canonicalUndoing,
  decideReturn,
  disbursementReturned,
  returned,
  returnSchema,
  reversalSchema,
  type Undoing,
} from "../ledger/return.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import type { App, GatedDeps } from "./deps.js"
import { exampleLine, ledgerLine } from "./disbursements.js"
import { claimIdempotencyKey, type Prepared, sendSettled } from "./idempotency.js"
import { keyHeader, keyProblems, recordedAnswers } from "./key-docs.js"
import { bodyProblems, problemResponses } from "./openapi.js"
import { isUuid } from "./portals.js"

declare module "fastify" {
  interface FastifyRequest {
    undoing: { readonly asked: Undoing; readonly id: string; readonly original: Original | null } | null
  }
}

/** Registers both routes. */
export function returnRoutes(app: App, deps: GatedDeps & { readonly reads: Pick<Reads, "run"> }): void {
  app.decorateRequest("undoing", null)
  app.post(
    "/v1/disbursements/:id/returns",
    {
      config: { roles: ["portal", "operator"] },
      schema: returnDocs,
      preHandler: [findOriginal(deps.reads, "return"), claimIdempotencyKey(deps, prepareUndoing)],
    },
    (request, reply) => undo(deps, request, reply),
  )
  app.post(
    "/v1/disbursements/:id/reversal",
    {
      config: { roles: ["portal", "operator"] },
      schema: reversalDocs,
      preHandler: [findOriginal(deps.reads, "reversal"), claimIdempotencyKey(deps, prepareUndoing)],
    },
    (request, reply) => undo(deps, request, reply),
  )
}

/** Makes the hook that reads the line to undo; one that is not the caller's own is as good as none. */
function findOriginal(reads: Pick<Reads, "run">, kind: Undoing["kind"]): preHandlerAsyncHookHandler {
  return async (request, reply) => {
    const { id: sent } = request.params as { id: string }
    const id = isUuid(sent) ? sent.toLowerCase() : null
    const [line] = id === null ? [] : await reads.run((db) => readOriginals(db, [id]), readMs(reply))
    const { role, portalId } = request.caller
    const original = line !== undefined && (role === "operator" || line.portalId === portalId) ? line : null
    // The body is one of the two, as its route's schema says.
    request.undoing = { asked: { kind, ...(request.body as object) } as Undoing, id: id ?? sent, original }
  }
}

/** What is left for the look-up, so that the gate has its time and the answer is in time. */
function readMs(reply: FastifyReply): number {
  const left = limits.answerMs - limits.memberMs - reply.elapsedTime
  return Math.min(limits.readMs, Math.max(limits.originalMsMin, left))
}

function prepareUndoing({ undoing }: FastifyRequest): Prepared {
  if (!undoing) throw new Error("the line is looked for first")
  const { asked, id, original } = undoing
  const canonicalBody = canonicalUndoing(asked)
  return {
    operation: asked.kind,
    params: { id },
    canonicalBody,
    submissionId: null,
    awardKey: original?.awardKey ?? null,
    awardId: original?.members.award_id ?? null,
    ...(original === null ? {} : { undoes: original.id }),
    derive: () => null,
    differs(storedOperation, storedRequestText) {
      if (storedOperation !== asked.kind) return [""]
      const places = differences(JSON.parse(storedRequestText), JSON.parse(canonicalBody))
      // Equal bodies: then it was another line.
      return places.length === 0 ? [""] : places
    },
  }
}

async function undo(deps: GatedDeps, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { claim, ask, undoing, caller } = request
  if (!claim || !ask || !undoing) throw new Error("the preHandler claims the key first")
  const origin = { id: ask.resourceId, portalId: caller.portalId, portal: caller.portal, idempotencyKey: ask.key }
  const settled = await claim.write((facts) => {
    const line = decideReturn(undoing.asked, origin, facts)
    if (line instanceof Problem) return line
    return { disbursements: [line], outbox: [disbursementReturned(line)], answer: returned(line) }
  })
  return sendSettled(deps, request, reply, settled)
}

const params = z.object({
  id: z.string().meta({ format: "uuid", description: "The disbursement, as in the `Location` of its answer" }),
})

const { returned_cents: _of_disbursements, net_cents: _only, ...common } = exampleLine
const exampleReturn = {
  ...common,
  id: "0197c3b8-77d0-7b1e-8c42-5a9e0d6f1b34",
  kind: "return",
  amount_cents: -25000,
  idempotency_key: "inv-7781-a-return-1",
  recorded_at: "2025-07-09T14:20:31.004212Z",
  disbursement_id: exampleLine.id,
  reason: "Invoice paid twice by the county",
  recorded_by: "county-east",
}

const problems = ["not-found", "already-reversed", "award-busy", "overloaded"] as const
const location = "The new line, `/v1/disbursements/{id}`"

const returnDocs = {
  operationId: "returnFunds",
  tags: ["disbursements"],
  summary: "Record that some of it came back",
  description:
    "A negative line of its own, linked to the disbursement. Returns never sum to more than the disbursement, and there are none after its reversal. The award's status and period do not matter. It needs a key of its own.",
  requestHeaders: keyHeader("return", '"inv-7781-a-return-1"'),
  params,
  body: returnSchema.meta({
    id: "Return",
    description: "What came back of a disbursement.",
    examples: [{ amount_cents: 25000, reason: "Invoice paid twice by the county" }],
  }),
  response: {
    ...recordedAnswers(ledgerLine, exampleReturn, location),
    ...problemResponses(...bodyProblems, ...keyProblems, ...problems, "return-exceeds-disbursement"),
  },
}

const reversalDocs = {
  operationId: "reverse",
  tags: ["disbursements"],
  summary: "Undo it: all that has not come back yet comes back",
  description:
    "A negative line of its own over what is left of the disbursement, once. To correct a disbursement, reverse it and submit the right one under a new key; the old key goes on answering with what it recorded. It needs a key of its own.",
  requestHeaders: keyHeader("reversal", '"inv-7781-a-reversal"'),
  params,
  body: reversalSchema.meta({
    id: "Reversal",
    description: "Why a disbursement is undone.",
    examples: [{ reason: "Sent to the wrong award" }],
  }),
  response: {
    ...recordedAnswers(
      ledgerLine,
      {
        ...exampleReturn,
        kind: "reversal",
        amount_cents: -100000,
        idempotency_key: "inv-7781-a-reversal",
        reason: "Sent to the wrong award",
      },
      location,
    ),
    ...problemResponses(...bodyProblems, ...keyProblems, ...problems),
  },
}
