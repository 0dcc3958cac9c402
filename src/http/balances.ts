/**
 * `POST /v1/balance-events` and `GET /v1/balances/{account_key}`. An event's key is what its source calls it, always: a redelivery under another header
 * is the same event, so the header is not looked at. What is decided and written is the ledger's.
 */
import type { FastifyRequest } from "fastify"
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { differences } from "../gate/fingerprint.js"
import { sourceEventKey } from "../gate/key.js"
import { readBalance } from "../ledger/account.js"
import {
  accountKeyText,
  type BalanceEvent,
  balanceCreated,
  balanceEventSchema,
  balanceRecorded,
  canonicalBalanceEvent,
  decideBalance,
  normaliseBalanceEvent,
} from "../ledger/balance.js"
import { readJsonText } from "../ledger/strict-json.js"
import { roles } from "../portals/portals.js"
import { Problem } from "../problems.js"
import type { App, GatedDeps } from "./deps.js"
import { claimIdempotencyKey, type Prepared, sendSettled } from "./idempotency.js"
import { recordedAnswers } from "./key-docs.js"
import { answer, bodyProblems, notFound, problemResponses } from "./openapi.js"
import { filterText } from "./page-query.js"
import { portalOf } from "./portal-of.js"

const operation = "balance-event"

declare module "fastify" {
  interface FastifyRequest {
    balanceEvent: BalanceEvent | null
  }
}

/** Registers both routes. */
export function balanceRoutes(app: App, deps: GatedDeps & { readonly reads: Pick<Reads, "run"> }): void {
  app.decorateRequest("balanceEvent", null)
  app.post(
    "/v1/balance-events",
    {
      config: { roles: ["portal"] },
      schema: eventDocs,
      preHandler: claimIdempotencyKey(deps, prepareBalanceEvent, { header: "ignored" }),
    },
    async (request, reply) => {
      const { claim, ask, balanceEvent, caller } = request
      if (!claim || !ask || !balanceEvent) throw new Error("the preHandler claims the key first")
      const origin = { id: ask.resourceId, portalId: caller.portalId, portal: caller.portal, idempotencyKey: ask.key }
      const settled = await claim.write((facts) => {
        const line = decideBalance(balanceEvent, origin, facts)
        if (line instanceof Problem) return line
        return { disbursements: [], balances: [line], outbox: [balanceRecorded(line)], answer: balanceCreated(line) }
      })
      return sendSettled(deps, request, reply, settled)
    },
  )

  app.get(
    "/v1/balances/:account_key",
    { config: { roles }, schema: balanceDocs },
    async ({ params: { account_key }, query, caller }) => {
      const portalId = await portalOf(deps.reads, caller, query.portal)
      const balance = await deps.reads.run((db) => readBalance(db, portalId, account_key))
      if (!balance) throw notFound("account")
      return balance
    },
  )
}

function prepareBalanceEvent(request: FastifyRequest): Prepared {
  const event = normaliseBalanceEvent(request.body as BalanceEvent)
  request.balanceEvent = event
  const canonicalBody = canonicalBalanceEvent(event)
  return {
    operation,
    params: {},
    canonicalBody,
    submissionId: null,
    awardKey: null,
    awardId: null,
    account: event.account_key,
    derive: () => ({ key: sourceEventKey(event.source, event.source_event_id), strategy: "source-event/1" }),
    differs: (storedOperation, storedRequestText) =>
      storedOperation === operation
        ? differences(normaliseBalanceEvent(readJsonText(storedRequestText) as BalanceEvent), event)
        : [""],
  }
}

const exampleEvent = {
  source: "core-bank",
  source_event_id: "evt-20250701-0001",
  account_key: "OPS/01",
  currency: "USD",
  balance: "1204.50",
  source_event_time: "2025-07-01T17:00:00Z",
}
const members = {
  source: z.string(),
  source_event_id: z.string(),
  account_key: z.string(),
  currency: z.string(),
  balance: z.string().describe("Decimal text with two decimals, exact"),
  source_event_time: z.string().meta({ format: "date-time", description: "In UTC" }),
}

const eventDocs = {
  operationId: "tellBalance",
  tags: ["balances"],
  summary: "Tell what an account held at an instant",
  description:
    "An event is known by `source` and `source_event_id` within the portal: sending it again changes nothing, whatever the headers; an `Idempotency-Key` is not looked at. The same event with other contents is refused with 422, and the first stays. Events may arrive late and in any order: each is kept, and the latest by `source_event_time` is the balance.",
  body: balanceEventSchema.meta({
    id: "BalanceEvent",
    description: "What a source says an account held at an instant.",
    examples: [exampleEvent],
  }),
  response: {
    ...recordedAnswers(
      z
        .object({
          id: z.string().meta({ format: "uuid" }),
          ...members,
          idempotency_key: z.string().describe("Derived from `source` and `source_event_id`"),
          status: z.literal("recorded"),
          recorded_at: z.string().meta({ format: "date-time", description: "By the database's clock" }),
        })
        .meta({ id: "RecordedBalanceEvent" }),
      {
        id: "0197c3c4-9d20-7e6a-b1f3-6c5d4e3f2a10",
        ...exampleEvent,
        idempotency_key: sourceEventKey(exampleEvent.source, exampleEvent.source_event_id),
        status: "recorded",
        recorded_at: "2025-07-01T17:00:04.118230Z",
      },
      "The account's balance, `/v1/balances/{account_key}`",
    ),
    ...problemResponses(
      ...bodyProblems,
      "idempotency-key-reused",
      "idempotency-key-voided",
      "request-in-progress",
      "submission-purged",
      "submission-timestamp-in-future",
      "currency-unknown",
      "currency-mismatch",
      "award-busy",
      "overloaded",
    ),
  },
}

const balanceDocs = {
  operationId: "getBalance",
  tags: ["balances"],
  summary: "An account's latest balance",
  description:
    "The latest event by `source_event_time`; of several at one instant the last that arrived. An event that arrives late does not move it.",
  params: z.object({
    account_key: accountKeyText.meta({
      description: "The account, percent-encoded",
      examples: [exampleEvent.account_key],
    }),
  }),
  querystring: z.strictObject({
    portal: filterText.optional().describe("Whose account, by name; operators and auditors must give it"),
  }),
  response: {
    200: answer(z.object(members).meta({ id: "Balance" }), "The balance, and who told it.", { example: exampleEvent }),
    ...problemResponses("not-found", "invalid-request"),
  },
}
