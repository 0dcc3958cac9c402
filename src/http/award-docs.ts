/**
 * What the OpenAPI document says of awards: shapes and examples of what is answered. Documentation only; what may be sent is in ledger/award-rules.ts.
 */
import { z } from "zod"
import { limits } from "../limits.js"

const cents = z.int()
const date = z.string().nullable()

const rules = {
  currency: z.string(),
  obligated_cents: cents.nullable().describe("The ceiling of the net; null: none is enforced"),
  status: z.enum(["active", "suspended", "closed"]),
  period_start: date,
  period_end: date,
  time_zone: z.string().describe("Where the period's dates are dates"),
  liquidation_days: z.int(),
  retention_years: z.int(),
  final_report_submitted_on: date,
  portals: z.array(z.string()).nullable().describe("Those that may draw on it; null: any"),
}

/** An award, its rules and totals. */
export const award = z
  .object({
    award_id: z.string().describe("As first sent"),
    ...rules,
    rules_version: z.int().describe("Counts changes of the rules; 0: opened by a submission, never registered"),
    disbursed_cents: cents.describe("Gross"),
    returned_cents: cents.describe("What came back"),
    net_cents: cents.describe("Gross less what came back"),
    available_cents: cents.nullable().describe("Obligated less net; null without a ceiling"),
    opened_at: z.string(),
  })
  .meta({ id: "Award" })

const exampleRules = {
  currency: "USD",
  obligated_cents: 500_000_000,
  status: "active",
  period_start: "2024-10-01",
  period_end: "2027-09-30",
  time_zone: "America/New_York",
  liquidation_days: 120,
  retention_years: 3,
  final_report_submitted_on: null,
  portals: null,
}

export const exampleAward = {
  award_id: "A-2026-014",
  ...exampleRules,
  rules_version: 1,
  disbursed_cents: 125_000,
  returned_cents: 25_000,
  net_cents: 100_000,
  available_cents: 499_900_000,
  opened_at: "2025-06-30T14:02:11.482913Z",
}

const rulesObject = z.object(rules).meta({ id: "AwardRules" })

/** A version of the rules. */
export const rulesVersion = z
  .object({
    rules_version: z.int(),
    changed_at: z.string(),
    changed_by: z.string().nullable().describe("The operator's name; null: the command line"),
    reason: z.string().nullable(),
    request_id: z.string().nullable(),
    before: rulesObject.nullable().describe("null: there was no such award"),
    after: rulesObject,
  })
  .meta({ id: "AwardRulesVersion" })

export const exampleVersion = {
  rules_version: 1,
  changed_at: "2025-06-30T14:02:11.482913Z",
  changed_by: "grants-office",
  reason: "Notice of award",
  request_id: "94960669e991-9",
  before: null,
  after: exampleRules,
}

/** What operators may send; examples that can be pasted. */
export const exampleRulesRequest = {
  currency: "USD",
  obligated_cents: 500_000_000,
  period_start: "2024-10-01",
  period_end: "2027-09-30",
  time_zone: "America/New_York",
  liquidation_days: 120,
  reason: "Notice of award",
}
export const exampleRulesPatch = { obligated_cents: 650_000_000, reason: "Amendment 1" }

export const changeDescription = `Each change makes a version of the rules, kept with who made it, when and why (\`reason\`); sending what is there already changes nothing. Submissions decided from then on are decided under the new rules. An award that is held by another request is waited for, ${limits.heldMs / 1000} s at most.`
