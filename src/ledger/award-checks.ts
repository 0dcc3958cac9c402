/**
 * What an award's rules say of one submission: pure, on the facts alone, in a fixed order. Permission comes first, so that a portal which may not
 * draw on an award learns nothing of its status, period, currency or money. Money is compared in integers, dates as days of the award's own calendar.
 */
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import type { AwardFacts } from "./award.js"
import type { NormalisedSubmission } from "./submission.js"

const dayMs = 24 * 60 * 60 * 1000

/**
 * Why the award does not take the submission; null when it does.
 * @param award as of this decision, neighbours accepted before included; null: nobody has opened it
 * @param portal name of the portal that submits
 * @param registeredOnly an award must be registered before it can be drawn on
 */
export function refuseByAward(
  submission: NormalisedSubmission,
  portal: string,
  award: AwardFacts | null,
  registeredOnly: boolean,
): Problem | null {
  if (registeredOnly && (award === null || award.rulesVersion === 0)) {
    return new Problem("award-not-found", "No award with this award_id is registered. Nothing was recorded.")
  }
  if (award === null) return null
  if (award.portals !== null && !award.portals.includes(portal)) {
    return new Problem(
      "award-not-permitted",
      "The award names the portals that may draw on it, and this one is not among them. Nothing was recorded.",
    )
  }
  if (award.status !== "active") {
    return new Problem("award-not-active", `The award is ${award.status}. Nothing was recorded.`)
  }
  if (!isWithinPeriod(award, submission.submission_timestamp)) {
    return new Problem(
      "award-period-closed",
      `The submission's date in ${award.timeZone} lies outside the award's period${award.liquidationDays > 0 ? ` and its ${award.liquidationDays} days of liquidation` : ""}. Nothing was recorded.`,
    )
  }
  if (award.currency !== submission.currency) {
    return new Problem("currency-mismatch", `The award keeps ${award.currency}. Nothing was recorded.`)
  }
  const left = leftToDisburse(award)
  if (submission.amount_cents <= left) return null
  return new Problem(
    "award-funds-exceeded",
    left === availableCents(award)
      ? "The amount is more than the award has left. Nothing was recorded."
      : "The award's gross would pass the largest amount that can be kept exactly. Nothing was recorded.",
    { available_cents: left },
  )
}

/** What is left under the ceiling, obligated less net; null: no ceiling is set. */
export function availableCents(
  award: Pick<AwardFacts, "obligatedCents" | "disbursedCents" | "returnedCents">,
): number | null {
  return award.obligatedCents === null ? null : award.obligatedCents - (award.disbursedCents - award.returnedCents)
}

/** The most that one submission may take: what is left under the ceiling, and what keeps the gross exact. */
function leftToDisburse(award: AwardFacts): number {
  return Math.min(availableCents(award) ?? Number.POSITIVE_INFINITY, limits.amountCentsMax - award.disbursedCents)
}

/** Both ends are part of the period, and so are the days of liquidation after it; without a date it is open on that side. */
function isWithinPeriod(award: AwardFacts, timestamp: string): boolean {
  const { periodStart, periodEnd } = award
  if (periodStart === null && periodEnd === null) return true
  const day = localDay(timestamp, award.timeZone)
  if (periodStart !== null && day < dayOf(periodStart)) return false
  return periodEnd === null || day <= dayOf(periodEnd) + award.liquidationDays
}

/** Days since 1970-01-01: whole numbers, so that no clock change and no year's length matters. */
function dayOf(date: string): number {
  return Date.parse(`${date}T00:00:00Z`) / dayMs
}

const formats = new Map<string, Intl.DateTimeFormat>()

/** The day that an instant has in a time zone. @throws RangeError when this runtime does not know the zone */
function localDay(timestamp: string, timeZone: string): number {
  if (timeZone === "UTC") return dayOf(timestamp.slice(0, 10))
  const [, month, day, year] = /^(\d+)\/(\d+)\/(\d+)$/.exec(formatOf(timeZone).format(Date.parse(timestamp))) ?? []
  const ms = Date.UTC(Number(year), Number(month) - 1, Number(day))
  if (!Number.isInteger(ms)) throw new Error("a date of the award's calendar was expected")
  return ms / dayMs
}

/** Made once for each zone that awards have: making one costs a thousand times what using it does. */
function formatOf(timeZone: string): Intl.DateTimeFormat {
  let format = formats.get(timeZone)
  if (!format) {
    // Its own calendar and digits: the words of a locale differ between runtimes, numbers of the Gregorian calendar do not.
    format = new Intl.DateTimeFormat("en-US", {
      timeZone,
      calendar: "gregory",
      numberingSystem: "latn",
      year: "numeric",
      month: "numeric",
      day: "numeric",
    })
    formats.set(timeZone, format)
  }
  return format
}
