/**
 * An award's rules: what an operator may send, and what comes of it. Pure. A PUT names all of them, members that are absent being null; a PATCH only
 * those that change; null is the rule's default. What the award has disbursed already bounds what its rules may become.
 */
import { z } from "zod"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { isKnownCurrency } from "./currency.js"
import { currencyText, printableText } from "./submission.js"

/** The rules as they stand: the members of the API, defaults filled in. */
export interface AwardRules {
  readonly currency: string
  /** The ceiling of the net; null: none is enforced. */
  readonly obligated_cents: number | null
  readonly status: "active" | "suspended" | "closed"
  /** YYYY-MM-DD in `time_zone`; null: open on that side. */
  readonly period_start: string | null
  readonly period_end: string | null
  /** IANA name. */
  readonly time_zone: string
  readonly liquidation_days: number
  readonly retention_years: number
  readonly final_report_submitted_on: string | null
  /** Names of those that may draw on it; null: any. */
  readonly portals: readonly string[] | null
}

/** An award's rules and totals, as recorded. */
export interface AwardRow extends AwardRules {
  readonly award_key: string
  /** As first sent. */
  readonly award_id: string
  /** 0: opened by a submission, never registered. */
  readonly rules_version: number
  readonly disbursed_cents: number
  readonly returned_cents: number
  /** RFC 3339 UTC with six digits. */
  readonly opened_at: string
}

/** What each rule is when nothing is said of it. */
const defaults: Omit<AwardRules, "currency"> = {
  obligated_cents: null,
  status: "active",
  period_start: null,
  period_end: null,
  time_zone: "UTC",
  liquidation_days: 0,
  retention_years: 3,
  final_report_submitted_on: null,
  portals: null,
}

const date = z.iso
  .date({ error: "must be a real date, YYYY-MM-DD" })
  // Postgres and most people have no year 0.
  .refine((text) => !text.startsWith("0000"), { error: "must be a real date, YYYY-MM-DD" })

const optionalRules = {
  obligated_cents: z
    .int()
    .min(0)
    .max(limits.amountCentsMax)
    .nullish()
    .meta({ description: "The ceiling of the net, in minor units; null: none is enforced.", examples: [500_000_000] }),
  status: z
    .enum(["active", "suspended", "closed"])
    .nullish()
    .meta({ description: "Only an active award takes submissions. `active` when null.", examples: ["active"] }),
  period_start: date
    .nullish()
    .meta({ description: "First day of the period, in `time_zone`; null: open.", examples: ["2024-10-01"] }),
  period_end: date
    .nullish()
    .meta({ description: "Last day of the period, in `time_zone`; null: open.", examples: ["2027-09-30"] }),
  time_zone: z
    .string()
    .refine(isTimeZone, { error: "must be an IANA time zone that is known here, such as America/New_York" })
    .nullish()
    .meta({
      description: "Where the period's dates are dates: an IANA name. `UTC` when null.",
      examples: ["America/New_York"],
    }),
  liquidation_days: z
    .int()
    .min(0)
    .max(limits.liquidationDaysMax)
    .nullish()
    .meta({
      description: "Days after `period_end` in which submissions are still taken. 0 when null.",
      examples: [120],
    }),
  retention_years: z
    .int()
    .min(limits.retentionYearsMin)
    .max(limits.retentionYearsMax)
    .nullish()
    .meta({ description: "How long its records are kept after the final report. 3 when null.", examples: [3] }),
  final_report_submitted_on: date
    .nullish()
    .meta({ description: "When the final report went in, from which the retention counts.", examples: ["2028-01-15"] }),
  portals: z
    .array(z.string())
    .max(limits.awardPortalsMax)
    .refine((names) => new Set(names).size === names.length, {
      error: "must not name a portal twice",
      params: { code: "value" },
    })
    .nullish()
    .meta({
      description: "Names of the portals that may draw on it; null: any, an empty list: none.",
      examples: [null],
    }),
}

const currency = currencyText.meta({
  description: "ISO 4217 code. It may be changed as long as nothing was recorded.",
  examples: ["USD"],
})

const reason = printableText(limits.reasonCharsMax)
  .nullish()
  .meta({ description: "Why; kept with the change, not a rule.", examples: ["Amendment 3"] })

/** Both ends of a period that are valid in themselves must be in order; one that is not is a fault of its own. */
const order = {
  path: ["period_end"],
  error: "must not be before period_start",
  params: { code: "range" },
  when: () => true,
}

/** The body of a PUT. */
export const rulesSchema = z.strictObject({ currency, ...optionalRules, reason }).refine(isInOrder, order)

/** The body of a PATCH. */
export const rulesPatchSchema = z
  .strictObject({ currency: currency.optional(), ...optionalRules, reason })
  .refine(isInOrder, order)

/** Some rules, as sent. */
export type RulesPatch = Omit<z.infer<typeof rulesPatchSchema>, "reason">

/** All rules, as sent: what is absent becomes null. */
export function wholeRules(sent: RulesPatch): RulesPatch {
  return { ...Object.fromEntries(Object.keys(defaults).map((name) => [name, null])), ...sent }
}

/**
 * What the rules become, or why not.
 * @param before null: there is no such award yet, and `sent` has a currency
 * @returns the new rules; null when they are what they were, and were registered
 */
export function decideRules(before: AwardRow | null, sent: RulesPatch): AwardRules | Problem | null {
  const known = Object.entries(sent).filter(([, value]) => value !== undefined)
  if (before !== null && known.length === 0) return null
  const filled = Object.fromEntries(
    known.map(([name, value]) => [name, value ?? defaults[name as keyof typeof defaults]]),
  )
  const after = { ...defaults, ...(before === null ? {} : rulesOf(before)), ...filled } as AwardRules
  if (before !== null && before.rules_version > 0 && isSame(rulesOf(before), after)) return null
  if (!isInOrder(after)) {
    const detail = "must not be before period_start"
    return new Problem("invalid-request", "The period would end before it begins. Nothing was changed.", {
      errors: [{ pointer: sent.period_end == null ? "/period_start" : "/period_end", code: "range", detail }],
    })
  }
  if (before?.currency !== after.currency && !isKnownCurrency(after.currency)) {
    return new Problem(
      "currency-unknown",
      "The currency is not an ISO 4217 code that this version knows. Nothing was changed.",
    )
  }
  if (before === null) return after
  // An amount is at least 1: where nothing was disbursed there is no line.
  if (before.currency !== after.currency && before.disbursed_cents > 0) {
    return new Problem("currency-mismatch", `The award has ledger lines in ${before.currency}. Nothing was changed.`)
  }
  const net = before.disbursed_cents - before.returned_cents
  if (after.obligated_cents !== null && after.obligated_cents < net) {
    return new Problem("ceiling-below-net", "obligated_cents is less than the award's net. Nothing was changed.", {
      net_cents: net,
    })
  }
  return after
}

/** The rules of an award, without its totals; the order of members is that of the API. */
export function rulesOf(row: AwardRules): AwardRules {
  return {
    currency: row.currency,
    obligated_cents: row.obligated_cents,
    status: row.status,
    period_start: row.period_start,
    period_end: row.period_end,
    time_zone: row.time_zone,
    liquidation_days: row.liquidation_days,
    retention_years: row.retention_years,
    final_report_submitted_on: row.final_report_submitted_on,
    portals: row.portals,
  }
}

/** Portals are a set: their order means nothing. */
function isSame(a: AwardRules, b: AwardRules): boolean {
  const text = (rules: AwardRules) => JSON.stringify(rulesOf({ ...rules, portals: rules.portals?.toSorted() ?? null }))
  return text(a) === text(b)
}

function isInOrder(rules: { period_start?: unknown; period_end?: unknown } | null): boolean {
  const { period_start: start, period_end: end } = rules ?? {}
  if (typeof start !== "string" || typeof end !== "string" || start <= end) return true
  return !date.safeParse(start).success || !date.safeParse(end).success
}

/** Whether this runtime knows the zone by this name, and the name is one of the IANA database, not an offset. */
function isTimeZone(name: string): boolean {
  if (!/^[A-Za-z][A-Za-z0-9_+\-/]{0,63}$/.test(name)) return false
  try {
    new Intl.DateTimeFormat("en-US", { timeZone: name })
    return true
  } catch {
    return false
  }
}
