/**
 * Balance events: what a source says an account held at an instant. Each is kept, late and tied ones too; the latest by its own time is the balance.
 * A balance is decimal text from the request to NUMERIC(18,2) and back, never a JavaScript number. An account keeps the currency of its first event.
 */
import canonicalize from "canonicalize"
import { z } from "zod"
import type { Answer } from "../gate/operation.js"
import { newId } from "../ids.js"
import { limits } from "../limits.js"
import type { OutboxEvent } from "../outbox/outbox.js"
import { Problem } from "../problems.js"
import { minorUnits } from "./currency.js"
import type { Origin } from "./disbursement.js"
import { currencyText, normaliseTimestamp, printableText, timestampText } from "./submission.js"

/** Also in a URL, percent-encoded. */
export const accountKeyText = printableText(limits.accountKeyCharsMax)

/** The body of `POST /v1/balance-events`. */
export const balanceEventSchema = z.strictObject({
  source: printableText(limits.sourceCharsMax).meta({
    description: "The system that tells the balance. Compared as sent, letter by letter.",
    examples: ["core-bank"],
  }),
  source_event_id: printableText(limits.sourceEventIdCharsMax).meta({
    description: "What the source calls this event: the same on every delivery, and never on another event.",
    examples: ["evt-20250701-0001"],
  }),
  account_key: accountKeyText.meta({
    description: "The account, by the portal's own name for it. Compared as sent.",
    examples: ["OPS/01"],
  }),
  currency: currencyText.meta({
    description: "ISO 4217 code of a currency with at most two decimals; an account keeps its first.",
    examples: ["USD"],
  }),
  balance: z
    .string()
    .regex(/^-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,2})?$/, {
      error: 'must be a decimal text such as "1204.50": at most 16 digits before the point and two after it',
    })
    .meta({ description: "A JSON string, so that nobody rounds it. `10.0` is `10.00`.", examples: ["1204.50"] }),
  source_event_time: timestampText.meta({
    description: "When the account held it: RFC 3339 with an offset.",
    examples: ["2025-07-01T17:00:00Z"],
  }),
})

/** A balance event in the form in which it is compared and recorded: two decimals, no negative zero, time in UTC. */
export type BalanceEvent = z.infer<typeof balanceEventSchema>

/** What is known of an account. */
export interface AccountFacts {
  readonly portalId: string
  readonly accountKey: string
  readonly currency: string
}

/** One balance event, as it is written. */
export interface BalanceLine extends Origin {
  readonly event: BalanceEvent
  readonly recordedAt: string
}

export function normaliseBalanceEvent(event: BalanceEvent): BalanceEvent {
  return {
    ...event,
    balance: normaliseBalance(event.balance),
    source_event_time: normaliseTimestamp(event.source_event_time),
  }
}

/** RFC 8785 text of a normalised event: what the fingerprint is made of. */
export function canonicalBalanceEvent(event: BalanceEvent): string {
  return canonicalize(event) as string
}

/** The event's line, or why it is refused. @param facts.account null: nobody has told of it yet */
export function decideBalance(
  event: BalanceEvent,
  origin: Origin,
  facts: { readonly now: string; readonly account: AccountFacts | null },
): BalanceLine | Problem {
  // Far ahead, it would stay the latest whatever came after it.
  if (Date.parse(event.source_event_time) > Date.parse(facts.now) + limits.submissionAheadMs) {
    return new Problem(
      "submission-timestamp-in-future",
      `source_event_time is more than ${limits.submissionAheadMs / 60_000} minutes ahead of the server's clock. Nothing was recorded.`,
    )
  }
  const decimals = minorUnits(event.currency)
  if (decimals === undefined) {
    return new Problem(
      "currency-unknown",
      "The currency is not an ISO 4217 code that this version knows. Nothing was recorded.",
    )
  }
  if (decimals > 2) {
    const detail = "must be a currency of at most two decimals, which is what a balance has"
    return new Problem("invalid-request", "The currency has more decimals than a balance. Nothing was recorded.", {
      errors: [{ pointer: "/currency", code: "value", detail }],
    })
  }
  if (facts.account !== null && facts.account.currency !== event.currency) {
    return new Problem("currency-mismatch", `The account keeps ${facts.account.currency}. Nothing was recorded.`)
  }
  return { ...origin, event, recordedAt: facts.now }
}

/** The answer to a first acceptance; stored and replayed byte for byte. */
export function balanceCreated({ id, event, idempotencyKey, recordedAt }: BalanceLine): Answer {
  return {
    status: 201,
    contentType: "application/json",
    location: `/v1/balances/${encodeURIComponent(event.account_key)}`,
    body: JSON.stringify({
      id,
      ...inOrder(event),
      idempotency_key: idempotencyKey,
      status: "recorded",
      recorded_at: recordedAt,
    }),
  }
}

/** The fact that a balance was told. Events of one account are delivered in the order of their arrival. */
export function balanceRecorded({ id, event, portalId, portal, idempotencyKey, recordedAt }: BalanceLine): OutboxEvent {
  return {
    id: newId(),
    aggregatetype: "account",
    aggregateid: `${portalId}/${event.account_key}`,
    type: "balance.recorded",
    eventKey: `balance.recorded:${id}`,
    payload: { id, ...inOrder(event), idempotency_key: idempotencyKey, portal, recorded_at: recordedAt },
  }
}

/** Members in one order, whatever that of the request was. */
function inOrder({ source, source_event_id, account_key, currency, balance, source_event_time }: BalanceEvent) {
  return { source, source_event_id, account_key, currency, balance, source_event_time }
}

/** `10`, `10.0` and `10.00` → `10.00`; `-0` → `0.00`. @param text valid by the schema */
function normaliseBalance(text: string): string {
  const [whole = "", fraction = ""] = text.split(".")
  const exact = `${whole}.${fraction.padEnd(2, "0")}`
  return exact === "-0.00" ? "0.00" : exact
}
