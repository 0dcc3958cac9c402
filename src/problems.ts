/**
 * The catalogue of problems (RFC 9457): code → status, title, outcome, retry, and what the caller should do. It feeds the error handler,
 * the OpenAPI document and the pages under /problems, so none of them can go stale. Codes are public and fixed: never rename one.
 */

type Outcome = "not_applied" | "applied" | "unknown"
export type Retry = "after-fixing" | "same-key" | "new-key" | "never"

export interface ProblemKind {
  readonly status: number
  readonly title: string
  readonly outcome: Outcome
  readonly retry: Retry
  /** Seconds are sent as `Retry-After`. */
  readonly retryAfter?: true
  /** What to do, for the page that `type` leads to. */
  readonly advice: string
}

const fix = { outcome: "not_applied", retry: "after-fixing" } as const
const wait = { outcome: "not_applied", retry: "same-key", retryAfter: true } as const
const done = { outcome: "applied", retry: "never" } as const

export const problems = {
  unauthenticated: {
    status: 401,
    title: "A valid token is needed",
    ...fix,
    advice:
      "Send `Authorization: Bearer <token>` with a token of your portal that has not been revoked. Nothing was recorded; the key is still free.",
  },
  forbidden: {
    status: 403,
    title: "This token's role may not do that",
    ...fix,
    advice:
      "Use a token whose role allows the operation: `portal` submits, `operator` administers, `auditor` reads. Nothing was recorded.",
  },
  "award-not-permitted": {
    status: 403,
    title: "The award does not permit this portal",
    ...fix,
    advice:
      "Ask the operator to add your portal to the award's `portals`, or correct `award_id`. Nothing was recorded.",
  },
  "rate-limited": {
    status: 429,
    title: "Too many requests",
    ...wait,
    advice: "Wait for `Retry-After` seconds and send the same request with the same key.",
  },
  overloaded: {
    status: 503,
    title: "The service is at its limit",
    ...wait,
    advice: "Nothing was recorded. Wait for `Retry-After` seconds and send the same request with the same key.",
  },
  "media-type-unsupported": {
    status: 415,
    title: "The body's media type is not read here",
    ...fix,
    advice:
      "Send the body as UTF-8 JSON with `Content-Type: application/json` (a batch: `application/x-ndjson`), without a content encoding.",
  },
  "body-too-large": {
    status: 413,
    title: "The body is too large",
    ...fix,
    advice: "A submission is at most 64 KiB. Shorten `details`, or keep documents elsewhere and send their references.",
  },
  "malformed-json": {
    status: 400,
    title: "The body is not JSON that can be read without doubt",
    ...fix,
    advice:
      "Send one JSON text: UTF-8 without a BOM, no member twice, no NUL or lone surrogate in a string, at most 32 levels deep, numbers inside ±(2^53−1) or finite.",
  },
  "invalid-request": {
    status: 400,
    title: "The request has members that are not valid",
    ...fix,
    advice: "`errors` lists every fault with a JSON pointer. Correct them; the same key may be used.",
  },
  "idempotency-key-invalid": {
    status: 400,
    title: "The Idempotency-Key header is not valid",
    ...fix,
    advice:
      'Send exactly one `Idempotency-Key` header: 1 to 255 printable ASCII characters, in double quotes (`"k"`), or bare if it begins with a letter or digit and goes on with letters, digits and - . _ ~ : / + = @.',
  },
  "idempotency-key-required": {
    status: 400,
    title: "This operation needs an Idempotency-Key header",
    ...fix,
    advice: "Make a key for each intended operation, save it before you send, and send it in `Idempotency-Key`.",
  },
  "submission-timestamp-in-future": {
    status: 400,
    title: "The timestamp lies in the future",
    ...fix,
    advice:
      "`submission_timestamp`, or a balance event's `source_event_time`, may be at most 5 minutes ahead of the server's clock. Check your clock and the offset you send.",
  },
  "currency-unknown": {
    status: 400,
    title: "The currency is not known",
    ...fix,
    advice:
      "Send an ISO 4217 code in upper case. A code added to the standard lately may need a newer version of this service.",
  },
  "invalid-cursor": {
    status: 400,
    title: "The cursor is not valid",
    ...fix,
    advice:
      "Send `next_cursor` of the page before, unchanged, with the same filters, or leave it out to begin at the first page.",
  },
  "not-found": {
    status: 404,
    title: "There is nothing here for this token",
    ...fix,
    advice: "Check the path and the id. What belongs to another portal is not found either.",
  },
  "award-not-found": {
    status: 404,
    title: "The award is not registered",
    ...fix,
    advice: "Ask the operator to register the award, or correct `award_id`. Nothing was recorded.",
  },
  "method-not-allowed": {
    status: 405,
    title: "The path exists, but not with this method",
    ...fix,
    advice: "The `Allow` header names the methods of this path.",
  },
  "idempotency-key-unknown": {
    status: 404,
    title: "Nothing is recorded under this key, so far",
    outcome: "unknown",
    retry: "same-key",
    advice:
      "This is not final: the request may still be on its way. Send it again with the same key, or void the key with DELETE to make sure that it never takes effect.",
  },
  "idempotency-key-reused": {
    status: 422,
    title: "The key was used for another request",
    outcome: "not_applied",
    retry: "new-key",
    advice:
      "This request was not recorded; the original stands. `differs` names the members that are not the same. If both are meant, send this one with a key of its own; if not, the original is what counts.",
  },
  "request-in-progress": {
    status: 409,
    title: "A request with this key is still running",
    outcome: "unknown",
    retry: "same-key",
    retryAfter: true,
    advice:
      "Wait for `Retry-After` seconds and send the same request with the same key: the answer will be that of the first one.",
  },
  "duplicate-submission": {
    status: 409,
    title: "This submission_id is recorded already, under another key",
    ...done,
    advice:
      "`disbursement_id` names what is recorded. Do not send it again. If it is another submission, it needs another `submission_id`.",
  },
  "already-applied": {
    status: 409,
    title: "The key has been used: its request took effect",
    ...done,
    advice: "`disbursement_id` names what is recorded. To undo it, record a return or a reversal.",
  },
  "already-reversed": {
    status: 409,
    title: "All of the disbursement has come back",
    ...done,
    advice:
      "It was reversed, or all of it was returned, so nothing is left to bring back. Read it to see its `returned_cents`.",
  },
  "submission-purged": {
    status: 409,
    title: "The record of this key was purged when its retention ended",
    ...done,
    advice:
      "The submission was recorded once and its record has since been lawfully removed. It is not recorded again.",
  },
  "idempotency-key-voided": {
    status: 409,
    title: "The key was voided",
    outcome: "not_applied",
    retry: "new-key",
    advice:
      "The key was voided before its request arrived, so that request was not and will never be recorded. If it is meant after all, send it with a new key.",
  },
  "award-funds-exceeded": {
    status: 409,
    title: "The award has not enough left",
    ...fix,
    advice:
      "`available_cents` is what was left at this decision. Nothing was recorded; a smaller amount may use the same key.",
  },
  "award-not-active": {
    status: 409,
    title: "The award is not active",
    ...fix,
    advice:
      "The award is suspended or closed. Nothing was recorded; after the operator makes it active again, the same key may be used.",
  },
  "award-period-closed": {
    status: 409,
    title: "The submission's date lies outside the award's period",
    ...fix,
    advice:
      "Check `submission_timestamp` against the award's period, liquidation days and time zone. Nothing was recorded.",
  },
  "currency-mismatch": {
    status: 409,
    title: "The currency is not that of the award or account",
    ...fix,
    advice: "An award or account keeps one currency. Nothing was recorded.",
  },
  "return-exceeds-disbursement": {
    status: 409,
    title: "The return is larger than what is left of the disbursement",
    ...fix,
    advice:
      "Returns never sum to more than the disbursement. Nothing was recorded; a smaller amount may use the same key.",
  },
  "ceiling-below-net": {
    status: 409,
    title: "The ceiling is below what is already disbursed",
    ...fix,
    advice: "`obligated_cents` may not be less than the award's net, which `net_cents` says. Nothing was changed.",
  },
  "award-busy": {
    status: 503,
    title: "The award, disbursement, account or submission_id is held by another request",
    ...wait,
    advice: "Nothing was recorded. Wait for `Retry-After` seconds and send the same request with the same key.",
  },
  unavailable: {
    status: 503,
    title: "The database cannot be reached",
    outcome: "not_applied",
    retry: "same-key",
    retryAfter: true,
    advice:
      "Send the same request with the same key after `Retry-After` seconds. Where `outcome` is `unknown`, it may have been recorded; the same key makes the retry safe either way.",
  },
  internal: {
    status: 500,
    title: "The service failed in a way it did not expect",
    outcome: "unknown",
    retry: "same-key",
    advice:
      "Send the same request with the same key: if it was recorded, you get its answer. If it goes on, give the operator the `instance` of this problem.",
  },
} as const satisfies Record<string, ProblemKind>

export type ProblemCode = keyof typeof problems

/** One fault of a request: where, which, and in words. `pointer` is RFC 6901 text (`/amount_cents`, `""` for the whole body). */
export interface Fault {
  readonly pointer: string
  readonly code: string
  readonly detail: string
}

/** Members that a problem may carry beside the common ones. Never a stored value of another request. */
export interface ProblemMembers {
  readonly errors?: readonly Fault[]
  readonly differs?: readonly string[]
  readonly disbursement_id?: string
  readonly available_cents?: number
  readonly net_cents?: number
  /** Overrides the catalogue's, where a COMMIT may have happened. */
  readonly outcome?: Outcome
  /** Sent as the `Allow` header, not in the body. */
  readonly allow?: string
}

/** A refusal that a caller may see: thrown or returned as a value. `detail` says what happened in this case, without any payload value. */
export class Problem extends Error {
  override readonly name = "Problem"
  constructor(
    readonly code: ProblemCode,
    readonly detail: string,
    readonly members: ProblemMembers = {},
  ) {
    super(detail)
  }

  get kind(): ProblemKind {
    return problems[this.code]
  }
}
