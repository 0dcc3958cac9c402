/**
 * One submission: what a portal may send, and the one form in which two submissions are compared. Nothing is coerced, trimmed, rounded or
 * filled in by the schema; `normaliseSubmission` alone says which spellings mean the same. Rules that depend on the clock or on lists that
 * change are not here: they are asked after the look-up for a replay, so that an old recorded request stays replayable.
 */
import canonicalize from "canonicalize"
import { z } from "zod"
import { limits } from "../limits.js"
import { type Fault, Problem } from "../problems.js"
import { faultsOf } from "./faults.js"
import { hasUeiCheckCharacter, ueiPattern } from "./uei.js"

/**
 * Text that a person can read and compare: letters, marks, numbers, punctuation, symbols, and spaces inside, counted in code points. No
 * control or format characters, no line separators, nothing unassigned or for private use.
 */
export function printableText(charsMax: number) {
  const visible = "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}"
  // Each space is followed by more, so a text neither begins nor ends with one; the count is the refinement's, in code points.
  return z
    .string()
    .regex(new RegExp(`^[${visible}]+(?: +[${visible}]+)*$`, "u"), {
      error: `must have 1 to ${charsMax} printable characters, without leading or trailing space`,
    })
    .refine((text) => text.length <= charsMax || [...text].length <= charsMax, {
      error: `must have 1 to ${charsMax} printable characters`,
      params: { code: "length" },
    })
    .meta({ minLength: 1, maxLength: charsMax })
}

const timestampPattern = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?:Z|([+-])(\d{2}):(\d{2}))$/

/**
 * RFC 3339 (https://www.rfc-editor.org/rfc/rfc3339#section-5.6), narrowed: upper-case `T` and `Z`, an offset, seconds 00–59, at most 6 fraction
 * digits, the year as written 1999–2099. `-00:00` (section 4.3: the local offset is not known) is the instant that it names.
 */
export const timestampText = z
  .string()
  .regex(timestampPattern, {
    error:
      "must be an RFC 3339 date and time with offset, such as 2026-07-01T09:00:00Z, with at most 6 fraction digits",
  })
  .refine(isRealInstant, {
    error: "must be a real date and time: seconds 00 to 59, offset at most 23:59, year 1999 to 2099",
    params: { code: "range" },
  })
  .meta({ format: "date-time" })

/** Three upper-case letters; whether they name a currency is asked later, of new requests only. */
export const currencyText = z
  .string()
  .regex(/^[A-Z]{3}$/, { error: "must be an ISO 4217 code of three upper-case letters" })

/** A positive amount in minor units: an integer in every JSON reader's eyes. */
export const amountCents = z.int().min(1).max(limits.amountCentsMax)

/** An award's id, as it may be sent. */
export const awardIdText = printableText(limits.awardIdCharsMax)

const calendarDate = z.iso.date({ error: "must be a real date, YYYY-MM-DD" })

const submissionMembers = {
  award_id: awardIdText.meta({
    description: "The award drawn on. Compared without regard to case and Unicode composition; kept as sent.",
    examples: ["A-2026-014"],
  }),
  submission_timestamp: timestampText.meta({
    description: "When the submission was made: RFC 3339 with an offset. Two spellings of one instant are the same.",
    examples: ["2025-07-01T09:00:00Z"],
  }),
  amount_cents: amountCents.meta({
    description: "The amount in minor units of the currency: a JSON integer, never rounded.",
    examples: [125000],
  }),
  currency: currencyText.meta({ description: "ISO 4217 code; USD when absent.", examples: ["USD"] }).optional(),
  submission_id: printableText(limits.submissionIdCharsMax)
    .meta({
      description: "The portal's own number for this submission, unique per portal for ever.",
      examples: ["2026-Q3-0017"],
    })
    .optional(),
  assistance_listing_number: z
    .string()
    .regex(/^\d{2}\.(?:\d{3}[A-Z]?|[A-Z][A-Z0-9]{1,2})$/, {
      error: "must be an Assistance Listing number such as 93.778, 84.425D, 93.RD or 84.U01",
    })
    .meta({ description: "Assistance Listing (CFDA) number, as text: 10.500 keeps its zeros.", examples: ["93.778"] })
    .optional(),
  fain: z
    .string()
    .regex(/^[A-Za-z0-9-]{1,30}$/, { error: "must have 1 to 30 letters, digits and hyphens" })
    .meta({ description: "Federal Award Identification Number.", examples: ["SLFRP0127"] })
    .optional(),
  recipient_uei: z
    .string()
    .regex(ueiPattern, { error: "must have 12 upper-case letters and digits, without I and O, not beginning with 0" })
    .meta({
      description:
        "The recipient's Unique Entity Identifier in SAM.gov. A wrong check character is a warning in the answer.",
      examples: ["UYDJJ1S8DR85"],
    })
    .optional(),
  invoice_ref: printableText(100)
    .meta({ description: "The invoice or voucher that this pays.", examples: ["INV-2026-0815"] })
    .optional(),
  period_from: calendarDate
    .meta({ description: "First day of the period that this pays for.", examples: ["2025-04-01"] })
    .optional(),
  period_to: calendarDate.meta({ description: "Last day of that period.", examples: ["2025-06-30"] }).optional(),
  details: z
    .record(z.string(), z.unknown())
    .meta({
      description: "Any JSON object, kept as evidence and compared with the rest.",
      examples: [{ cost_category: "travel" }],
    })
    .optional(),
}

const periodRule = {
  path: ["period_to"],
  error: "must not be before period_from",
  params: { code: "range" },
  // Also when another member is wrong: all faults are listed at once.
  when: () => true,
}

/** The body of `POST /v1/submissions`. */
export const submissionSchema = z.strictObject(submissionMembers).refine(isPeriodInOrder, periodRule)

/** A line of a batch: a submission, and its key where it has one. What a key may be is asked after the rest. */
export const submissionLineSchema = z
  .strictObject({
    ...submissionMembers,
    idempotency_key: z
      .string()
      .meta({
        description:
          "The key of this submission, 1 to 255 printable ASCII characters, as it stands between the quotes of the header; without it one is derived.",
        examples: ["inv-7781-b"],
      })
      .optional(),
  })
  .refine(isPeriodInOrder, periodRule)

/** A valid submission, as sent. */
export type Submission = z.infer<typeof submissionSchema>

/** A submission in the form in which it is decided, compared and recorded. Members that were not sent are absent. */
export type NormalisedSubmission = Submission & {
  /** `award_id` in the form in which awards are compared; `award_id` itself stays as sent. */
  readonly award_key: string
  readonly currency: string
}

/**
 * Reads a submission strictly.
 * @throws Problem `invalid-request`, listing all faults
 */
export function parseSubmission(value: unknown): Submission {
  return parse(submissionSchema, value)
}

/**
 * Reads a line of a batch strictly.
 * @returns the submission as if it had come alone, and the key it names; null where it names none
 * @throws Problem `invalid-request`, listing all faults
 */
export function parseSubmissionLine(value: unknown): { submission: Submission; key: string | null } {
  const { idempotency_key: key = null, ...submission } = parse(submissionLineSchema, value)
  return { submission, key }
}

function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const read = schema.safeParse(value)
  if (read.success) return read.data
  throw new Problem("invalid-request", "The submission is not valid; nothing was recorded.", {
    errors: faultsOf(read.error).slice(0, limits.pointersMax),
  })
}

/** Brings a valid submission into its one form: award key, timestamp in UTC, currency filled in. */
export function normaliseSubmission(submission: Submission): NormalisedSubmission {
  return {
    ...submission,
    award_key: awardKey(submission.award_id),
    submission_timestamp: normaliseTimestamp(submission.submission_timestamp),
    currency: submission.currency ?? "USD",
  }
}

/** RFC 8785 text of the normalised body, award id in its compared form: what fingerprints and derived keys are made of. */
export function canonicalSubmission(submission: NormalisedSubmission): string {
  // Members that are undefined are absent to RFC 8785, too.
  return canonicalize({ ...submission, award_id: submission.award_key, award_key: undefined }) as string
}

/**
 * The form in which award ids are compared: NFC, upper case. Upper-casing can take a character apart (`ΐ`), so the result is composed
 * again: the key of a key is itself, and an id and its upper case are one award.
 */
export function awardKey(awardId: string): string {
  if (/^[ -~]*$/.test(awardId)) return awardId.toUpperCase()
  return awardId.normalize("NFC").toUpperCase().normalize("NFC")
}

/**
 * The instant in UTC: `Z`, fraction without trailing zeros, none when zero. Text throughout, so that microseconds stay exact.
 * @param text valid by `timestampText`
 */
export function normaliseTimestamp(text: string): string {
  // The common spelling is its own normal form.
  if (text.length === 20 && text.endsWith("Z")) return text
  const parts = timestampPattern.exec(text)
  if (!parts) throw new Error("a timestamp is checked before it is normalised")
  const [, year, month, day, hour, minute, second, fraction = "", sign, offsetHours = 0, offsetMinutes = 0] = parts
  const offset = (Number(offsetHours) * 60 + Number(offsetMinutes)) * (sign === "-" ? -1 : 1)
  const digits = fraction.replace(/0+$/, "")
  const at = Date.UTC(
    Number(year),
    Number(month) - 1,
    Number(day),
    Number(hour),
    Number(minute) - offset,
    Number(second),
  )
  return `${new Date(at).toISOString().slice(0, 19)}${digits === "" ? "" : `.${digits}`}Z`
}

/** What a person should look at although the submission was accepted. */
export function submissionWarnings(submission: NormalisedSubmission): Fault[] {
  if (submission.recipient_uei === undefined || hasUeiCheckCharacter(submission.recipient_uei)) return []
  return [
    {
      pointer: "/recipient_uei",
      code: "check-character",
      detail: "The last character does not check the other eleven; compare the identifier with SAM.gov.",
    },
  ]
}

function isRealInstant(text: string): boolean {
  const parts = timestampPattern.exec(text)
  if (!parts) return false
  const [year, month, day] = [Number(parts[1]), Number(parts[2]), Number(parts[3])]
  const isDate =
    year >= 1999 && year <= 2099 && month >= 1 && month <= 12 && day >= 1 && day <= daysInMonth(year, month)
  // Two digits each, so that they compare as text.
  const [hour = "", minute = "", second = "", , , offsetHours = "00", offsetMinutes = "00"] = parts.slice(4)
  return isDate && hour <= "23" && minute <= "59" && second <= "59" && offsetHours <= "23" && offsetMinutes <= "59"
}

function daysInMonth(year: number, month: number): number {
  return new Date(Date.UTC(year, month, 0)).getUTCDate()
}

/** True also where a date is missing or wrong: that is a fault of its own. */
function isPeriodInOrder(submission: { period_from?: unknown; period_to?: unknown } | null): boolean {
  const from = submission?.period_from
  const to = submission?.period_to
  if (typeof from !== "string" || typeof to !== "string" || from <= to) return true
  return !calendarDate.safeParse(from).success || !calendarDate.safeParse(to).success
}
