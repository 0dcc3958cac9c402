/**
 * Awards with their rules and totals, the ledger, and balances. No foreign keys on the write path: they cost two queries a row and
 * lock upgrades that deadlock; claim, line, event and answer share one transaction instead.
 */
import { sql } from "drizzle-orm"
import {
  bigint,
  check,
  date,
  index,
  integer,
  jsonb,
  numeric,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core"
import { instant } from "./types.js"

/** An award's totals: the one row that its submissions share. Narrow, and no index on what changes with them, so that updates stay HOT. */
export const awards = pgTable(
  "awards",
  {
    /** NFC, upper case. */
    award_key: text("award_key").primaryKey(),
    /** As first sent. */
    award_id: text("award_id").notNull(),
    currency: text("currency").notNull(),
    /** Counts changes of the rules; a write names the version that it was decided under. */
    rules_version: integer("rules_version").notNull().default(0),
    disbursed_cents: bigint("disbursed_cents", { mode: "number" }).notNull(),
    returned_cents: bigint("returned_cents", { mode: "number" }).notNull().default(0),
    opened_at: instant("opened_at").notNull().defaultNow(),
    // The rules, in force once the award is registered (rules_version above 0). How they came to be stands in award_rules.
    /** The ceiling of the net; null: none is enforced. */
    obligated_cents: bigint("obligated_cents", { mode: "number" }),
    status: text("status", { enum: ["active", "suspended", "closed"] })
      .notNull()
      .default("active"),
    period_start: date("period_start", { mode: "string" }),
    period_end: date("period_end", { mode: "string" }),
    /** IANA name: where the period's dates are dates. */
    time_zone: text("time_zone").notNull().default("UTC"),
    liquidation_days: integer("liquidation_days").notNull().default(0),
    retention_years: integer("retention_years").notNull().default(3),
    final_report_submitted_on: date("final_report_submitted_on", { mode: "string" }),
    /** Names of the portals that may draw on it; null: any. */
    portals: text("portals").array(),
  },
  (t) => [
    // The awards that name a portal. Rules seldom change, so the totals' updates stay HOT.
    index("awards_portals").using("gin", t.portals).where(sql`portals IS NOT NULL`),
    // Beyond 2^53 - 1 a JSON integer is no longer exact for every reader.
    check("awards_disbursed_cents", sql`${t.disbursed_cents} BETWEEN 0 AND 9007199254740991`),
    check("awards_returned_cents", sql`${t.returned_cents} BETWEEN 0 AND ${t.disbursed_cents}`),
    check("awards_currency", sql`${t.currency} ~ '^[A-Z]{3}$'`),
    // The last guard of the ceiling, whatever the code above does.
    check(
      "awards_obligated_cents",
      sql`${t.obligated_cents} IS NULL OR (${t.obligated_cents} BETWEEN 0 AND 9007199254740991 AND ${t.disbursed_cents} - ${t.returned_cents} <= ${t.obligated_cents})`,
    ),
    check("awards_status", sql`${t.status} IN ('active', 'suspended', 'closed')`),
    check("awards_period", sql`${t.period_start} <= ${t.period_end}`),
    check("awards_days", sql`${t.liquidation_days} >= 0 AND ${t.retention_years} >= 3`),
  ],
)

/** Each version of an award's rules, from its registration on. Append-only. */
export const awardRules = pgTable(
  "award_rules",
  {
    award_key: text("award_key").notNull(),
    rules_version: integer("rules_version").notNull(),
    rules: jsonb("rules").$type<Record<string, unknown>>().notNull(),
    /** The operator's action that made it. */
    action_id: uuid("action_id").notNull(),
    recorded_at: instant("recorded_at").notNull(),
  },
  (t) => [
    primaryKey({ name: "award_rules_pkey", columns: [t.award_key, t.rules_version] }),
    check("award_rules_rules", sql`jsonb_typeof(${t.rules}) = 'object'`),
  ],
)

/** The ledger: signed lines, append-only. */
export const disbursements = pgTable(
  "disbursements",
  {
    id: uuid("id").primaryKey(),
    kind: text("kind", { enum: ["disbursement", "return", "reversal"] }).notNull(),
    portal_id: uuid("portal_id").notNull(),
    idempotency_key: text("idempotency_key").notNull(),
    award_key: text("award_key").notNull(),
    award_id: text("award_id").notNull(),
    amount_cents: bigint("amount_cents", { mode: "number" }).notNull(),
    currency: text("currency").notNull(),
    submission_timestamp: instant("submission_timestamp").notNull(),
    submission_id: text("submission_id"),
    assistance_listing_number: text("assistance_listing_number"),
    fain: text("fain"),
    recipient_uei: text("recipient_uei"),
    invoice_ref: text("invoice_ref"),
    period_from: text("period_from"),
    period_to: text("period_to"),
    /** The original of a return or reversal. */
    disbursement_id: uuid("disbursement_id"),
    reason: text("reason"),
    recorded_at: instant("recorded_at").notNull(),
    /** Whose disbursement it is, where an operator recorded the line under a key of its own: that portal sees it among its own. */
    owner_id: uuid("owner_id"),
  },
  (t) => [
    // A second guard behind `claims`: one ledger line a key. Also the look-up by key.
    uniqueIndex("disbursements_key").on(t.portal_id, t.idempotency_key),
    // The list in its order, whole, by portal and by award.
    index("disbursements_recorded_at").on(t.recorded_at, t.id),
    index("disbursements_owner").on(sql`coalesce(owner_id, portal_id)`, t.recorded_at, t.id),
    index("disbursements_award").on(t.award_key, t.recorded_at, t.id),
    // A portal's lines of one award, in order; the awards that it has drawn on, found by leaps. Without it a page of a large portal and a large
    // award that have little in common would read most of the ledger.
    index("disbursements_owner_award").on(sql`coalesce(owner_id, portal_id)`, t.award_key, t.recorded_at, t.id),
    // An operator's look-up of a portal's own number.
    index("disbursements_submission_id").on(t.submission_id).where(sql`submission_id IS NOT NULL`),
    // What came back of a disbursement.
    index("disbursements_disbursement_id").on(t.disbursement_id).where(sql`disbursement_id IS NOT NULL`),
    // A disbursement is reversed once, whatever the code above does.
    uniqueIndex("disbursements_reversal").on(t.disbursement_id).where(sql`kind = 'reversal'`),
    // The same amount of the same award a short time before.
    index("disbursements_award_amount")
      .on(t.award_key, t.amount_cents, t.recorded_at)
      .where(sql`kind = 'disbursement'`),
    // The same invoice on two awards.
    index("disbursements_invoice_ref").on(t.invoice_ref, t.award_key).where(sql`invoice_ref IS NOT NULL`),
    // An amount is never nothing, its sign is that of its kind, and it is exact in JSON.
    check(
      "disbursements_amount_cents",
      sql`CASE WHEN ${t.kind} = 'disbursement' THEN ${t.amount_cents} BETWEEN 1 AND 9007199254740991 ELSE ${t.amount_cents} BETWEEN -9007199254740991 AND -1 END`,
    ),
    check("disbursements_kind", sql`${t.kind} IN ('disbursement', 'return', 'reversal')`),
    // Returns and reversals say what they undo, and why.
    check(
      "disbursements_original",
      sql`(${t.kind} = 'disbursement') = (${t.disbursement_id} IS NULL) AND (${t.kind} = 'disbursement') = (${t.reason} IS NULL)`,
    ),
    check("disbursements_currency", sql`${t.currency} ~ '^[A-Z]{3}$'`),
  ],
)

/** The accounts that balance events speak of, each with the one currency that its first event fixed. Append-only. */
export const accounts = pgTable(
  "accounts",
  {
    portal_id: uuid("portal_id").notNull(),
    account_key: text("account_key").notNull(),
    currency: text("currency").notNull(),
    opened_at: instant("opened_at").notNull(),
  },
  (t) => [
    primaryKey({ name: "accounts_pkey", columns: [t.portal_id, t.account_key] }),
    check("accounts_currency", sql`${t.currency} ~ '^[A-Z]{3}$'`),
  ],
)

/** Balances as their sources told them, late ones included. Append-only. */
export const balanceEvents = pgTable(
  "balance_events",
  {
    portal_id: uuid("portal_id").notNull(),
    source: text("source").notNull(),
    source_event_id: text("source_event_id").notNull(),
    /** The resource id of its claim. */
    id: uuid("id").notNull().unique("balance_events_id"),
    account_key: text("account_key").notNull(),
    /** Order of arrival, which decides between events of one instant. */
    arrival: bigint("arrival", { mode: "number" }).notNull().generatedByDefaultAsIdentity(),
    currency: text("currency").notNull(),
    /** Exact; text on its way in and out. */
    balance: numeric("balance", { precision: 18, scale: 2 }).notNull(),
    source_event_time: instant("source_event_time").notNull(),
    recorded_at: instant("recorded_at").notNull(),
  },
  (t) => [
    primaryKey({ name: "balance_events_pkey", columns: [t.portal_id, t.source, t.source_event_id] }),
    // The latest of an account is the first of its index range read backwards.
    index("balance_events_account").on(t.portal_id, t.account_key, t.source_event_time, t.arrival),
  ],
)
