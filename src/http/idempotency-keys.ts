/**
 * What became of a key, and making it final that it will never be used. A key is named in the path, percent-encoded, whatever legal characters it has.
 */

import { z } from "zod"
import type { Reads } from "../db/client.js"
import { checkKey } from "../gate/key.js"
import { readKeyState } from "../gate/key-state.js"
import { type Ask, lineOf } from "../gate/operation.js"
import { newId } from "../ids.js"
import { roles } from "../portals/portals.js"
import { Problem } from "../problems.js"
import type { App, AppDeps } from "./deps.js"
import { answer, problemResponses } from "./openapi.js"
import { filterText } from "./page-query.js"
import { portalOf } from "./portal-of.js"

const keyState = z
  .object({
    key: z.string(),
    state: z.enum(["completed", "in_progress", "voided", "purged"]),
    operation: z.string().nullable(),
    disbursement_id: z.string().nullable().describe("The ledger line that it recorded; null for a balance event"),
    first_seen_at: z.string().nullable(),
    replays: z.int().nullable().describe("How often it was replayed; null: not counted by this version"),
  })
  .meta({ id: "KeyState" })

const keyParams = z.object({
  key: z
    .string()
    .describe("The key itself, without quotes, percent-encoded")
    .meta({ examples: ["inv-7781-a"] }),
})

export function idempotencyKeyRoutes(
  app: App,
  { reads, gate }: { reads: Pick<Reads, "run">; gate: Pick<AppDeps["gate"], "inProgress" | "void"> },
): void {
  app.get(
    "/v1/idempotency-keys/:key",
    {
      config: { roles },
      schema: {
        operationId: "getIdempotencyKey",
        tags: ["outcomes"],
        summary: "What became of a key",
        description:
          "Members that are not known yet are null. 404 `idempotency-key-unknown` is not final: the request may still be on its way; void the key to make it final.",
        params: keyParams,
        querystring: z.strictObject({
          portal: filterText.optional().describe("Whose key, by name; operators and auditors must give it"),
        }),
        response: {
          200: answer(keyState, "Something is recorded under the key, or a request with it is running.", {
            example: {
              key: "inv-7781-a",
              state: "completed",
              operation: "submission",
              disbursement_id: "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90",
              first_seen_at: "2025-07-01T09:00:02.417305Z",
              replays: null,
            },
          }),
          ...problemResponses("idempotency-key-unknown", "idempotency-key-invalid", "invalid-request", "not-found"),
        },
      },
    },
    async ({ params: { key }, query, caller }) => {
      checkKey(key)
      const portalId = await portalOf(reads, caller, query.portal)
      // In this order: what is running is recorded before it stops running.
      const running = await gate.inProgress(portalId, key)
      const found = await reads.run((db) => readKeyState(db, portalId, key))
      if (found) {
        const { state, operation, resourceId, firstSeenAt } = found
        const disbursement_id = resourceId === null ? null : lineOf(operation, resourceId)
        return { key, state, operation, disbursement_id, first_seen_at: firstSeenAt, replays: null }
      }
      if (!running)
        throw new Problem("idempotency-key-unknown", "Nothing is recorded under this key so far. That is not final.")
      return { key, state: "in_progress", operation: null, disbursement_id: null, first_seen_at: null, replays: null }
    },
  )

  app.delete(
    "/v1/idempotency-keys/:key",
    {
      config: { roles: ["portal"] },
      schema: {
        operationId: "voidIdempotencyKey",
        tags: ["outcomes"],
        summary: "Make it final that a key will never be used",
        description:
          "For a request whose answer never came: if it has not arrived, it never will take effect. Repeatable. A request in flight is waited for, like a twin; a late original is refused with `idempotency-key-voided`.",
        params: keyParams,
        response: {
          200: answer(
            z.object({ key: z.string(), state: z.literal("voided") }),
            "The key is void, now or from before.",
            {
              example: { key: "inv-7781-a", state: "voided" },
            },
          ),
          ...problemResponses(
            "idempotency-key-invalid",
            "already-applied",
            "submission-purged",
            "request-in-progress",
            "overloaded",
          ),
        },
      },
    },
    async (request) => {
      const { key } = request.params
      checkKey(key)
      request.audit = { event: "refused", key: key.slice(0, 12) }
      const settled = await gate.void(voidAsk(request.caller.portalId, key, request.id))
      const event = settled.kind === "refused" ? settled.problem.code : settled.kind
      request.audit = { ...request.audit, event }
      if (settled.kind === "refused") throw settled.problem
      if (settled.kind !== "voided") throw new Error(`a void does not end as ${settled.kind}`)
      return { key, state: settled.kind }
    },
  )
}

/** A void asks for nothing but the key: no award, no number, nothing to compare. */
function voidAsk(portalId: string, key: string, requestId: string): Ask {
  return {
    portalId,
    key,
    requestId,
    keyStrategy: "client/1",
    operation: "void",
    canonical: "",
    fingerprint: "",
    submissionId: null,
    undoes: null,
    account: null,
    bulk: false,
    awardKey: null,
    resourceId: newId(),
    requestText: "",
    differs: () => [],
  }
}
