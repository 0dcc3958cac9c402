/**
 * Every table, with the reason for each CHECK and index. What SQL cannot say through drizzle-kit (append-only triggers, fill factors)
 * stands in the custom migrations under drizzle/. No foreign keys on the write path: they cost two queries a row and
 * lock upgrades that deadlock; claim, line, event and answer share one transaction instead.
 */
import { sql } from "drizzle-orm"
import {
  bigint,
  boolean,
  check,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core"

const bytea = customType<{ data: Buffer }>({ dataType: () => "bytea" })
/** To the microsecond, as text: a JS Date would lose the last three digits, and cursors with them. */
const instant = (name: string) => timestamp(name, { withTimezone: true, mode: "string", precision: 6 })

/** Registered callers. A portal is the scope of its idempotency keys; its tokens come and go. */
export const portals = pgTable(
  "portals",
  {
    id: uuid("id").primaryKey(),
    name: text("name").notNull().unique("portals_name"),
    role: text("role", { enum: ["portal", "operator", "auditor"] }).notNull(),
    key_required: boolean("key_required").notNull().default(false),
    created_at: instant("created_at").notNull().defaultNow(),
  },
  (t) => [check("portals_role", sql`${t.role} IN ('portal', 'operator', 'auditor')`)],
)

/** Only hashes: a stolen copy of the database opens no door. Revoked tokens stay, as evidence of who could do what when. */
export const portalTokens = pgTable(
  "portal_tokens",
  {
    id: uuid("id").primaryKey(),
    portal_id: uuid("portal_id")
      .notNull()
      .references(() => portals.id),
    token_sha256: bytea("token_sha256").notNull(),
    created_at: instant("created_at").notNull().defaultNow(),
    revoked_at: instant("revoked_at"),
  },
  (t) => [
    // The look-up of every request's token.
    uniqueIndex("portal_tokens_token_sha256").on(t.token_sha256),
    index("portal_tokens_portal_id").on(t.portal_id),
  ],
)

/**
 * One row for each used or voided key, never deleted. The primary key is what makes a retry safe, whatever the code above does.
 * There is no "processing" state: a claim is committed together with its effect or not at all.
 */
export const claims = pgTable(
  "claims",
  {
    portal_id: uuid("portal_id").notNull(),
    idempotency_key: text("idempotency_key").notNull(),
    key_strategy: text("key_strategy"),
    operation: text("operation"),
    fingerprint: text("fingerprint"),
    award_key: text("award_key"),
    submission_id: text("submission_id"),
    /** What the key stands for: the id of its ledger line, and of its row in `answers`. */
    resource_id: uuid("resource_id").notNull(),
    state: text("state", { enum: ["completed", "voided", "purged"] }).notNull(),
    claimed_at: instant("claimed_at").notNull(),
  },
  (t) => [
    primaryKey({ name: "claims_pkey", columns: [t.portal_id, t.idempotency_key] }),
    // The portal's own number guards against the same submission under another key, for ever.
    uniqueIndex("claims_submission_id").on(t.portal_id, t.submission_id).where(sql`submission_id IS NOT NULL`),
    check("claims_state", sql`${t.state} IN ('completed', 'voided', 'purged')`),
    check("claims_key_length", sql`octet_length(${t.idempotency_key}) BETWEEN 1 AND 255`),
    // A voided key never had a request; every other one says what it was asked and by which rule.
    check(
      "claims_completed",
      sql`${t.state} = 'voided' OR (${t.key_strategy} IS NOT NULL AND ${t.operation} IS NOT NULL AND ${t.fingerprint} IS NOT NULL)`,
    ),
  ],
)

/** What was asked and answered, byte for byte. `text`, not jsonb, which would reorder the members. Append-only. */
export const answers = pgTable(
  "answers",
  {
    resource_id: uuid("resource_id").primaryKey(),
    request: text("request").notNull(),
    request_sha256: bytea("request_sha256").notNull(),
    status: smallint("status").notNull(),
    content_type: text("content_type").notNull(),
    location: text("location"),
    body: text("body").notNull(),
  },
  (t) => [check("answers_status", sql`${t.status} BETWEEN 200 AND 299`)],
)

/** An award's totals: the one row that its submissions share. Narrow, and no index on what changes, so that updates stay HOT. */
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
  },
  (t) => [
    // Beyond 2^53 - 1 a JSON integer is no longer exact for every reader.
    check("awards_disbursed_cents", sql`${t.disbursed_cents} BETWEEN 0 AND 9007199254740991`),
    check("awards_returned_cents", sql`${t.returned_cents} BETWEEN 0 AND ${t.disbursed_cents}`),
    check("awards_currency", sql`${t.currency} ~ '^[A-Z]{3}$'`),
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
  },
  (t) => [
    // A second guard behind `claims`: one ledger line a key. Also the look-up by key.
    uniqueIndex("disbursements_key").on(t.portal_id, t.idempotency_key),
    // The list in its order, whole, by portal and by award.
    index("disbursements_recorded_at").on(t.recorded_at, t.id),
    index("disbursements_portal").on(t.portal_id, t.recorded_at, t.id),
    index("disbursements_award").on(t.award_key, t.recorded_at, t.id),
    // An operator's look-up of a portal's own number.
    index("disbursements_submission_id").on(t.submission_id).where(sql`submission_id IS NOT NULL`),
    // What came back of a disbursement.
    index("disbursements_disbursement_id").on(t.disbursement_id).where(sql`disbursement_id IS NOT NULL`),
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

/** Facts to announce, in the default columns of Debezium's outbox event router. Append-only; `seq` is the order of writing per award. */
export const outbox = pgTable(
  "outbox",
  {
    seq: bigint("seq", { mode: "number" }).primaryKey().generatedByDefaultAsIdentity(),
    id: uuid("id").notNull().unique("outbox_id"),
    aggregatetype: text("aggregatetype").notNull(),
    aggregateid: text("aggregateid").notNull(),
    type: text("type").notNull(),
    payload: jsonb("payload").notNull(),
    /** type and ledger line: an effect is announced by exactly one event. */
    event_key: text("event_key").notNull().unique("outbox_event_key"),
    created_at: instant("created_at").notNull(),
  },
  (t) => [
    // A double-encoded payload would be a string.
    check("outbox_payload", sql`jsonb_typeof(${t.payload}) = 'object'`),
  ],
)

/** Where events go. Rows, not configuration of a process, so that the write path's own SQL sees each one. */
export const destinations = pgTable("destinations", {
  id: integer("id").primaryKey().generatedAlwaysAsIdentity(),
  name: text("name").notNull().unique("destinations_name"),
  created_at: instant("created_at").notNull().defaultNow(),
})

/** What waits to be announced: a row for each destination and event, deleted when delivered. */
export const outboxDelivery = pgTable(
  "outbox_delivery",
  {
    destination_id: integer("destination_id").notNull(),
    seq: bigint("seq", { mode: "number" }).notNull(),
    aggregateid: text("aggregateid").notNull(),
    // Leases and back-off: in no index, so that their updates stay HOT.
    lease_token: uuid("lease_token"),
    leased_until: instant("leased_until"),
    not_before: instant("not_before"),
    attempts: integer("attempts").notNull().default(0),
    parked_reason: text("parked_reason"),
  },
  (t) => [primaryKey({ name: "outbox_delivery_pkey", columns: [t.destination_id, t.seq] })],
)

/** Each refused reuse of a key, for investigation. Names what differs, holds no value. Append-only. */
export const conflicts = pgTable(
  "conflicts",
  {
    id: uuid("id").primaryKey(),
    portal_id: uuid("portal_id").notNull(),
    idempotency_key: text("idempotency_key").notNull(),
    /** What the refused request asked for, and its fingerprint. */
    operation: text("operation").notNull(),
    fingerprint: text("fingerprint").notNull(),
    original_operation: text("original_operation").notNull(),
    original_fingerprint: text("original_fingerprint").notNull(),
    /** JSON pointers of the members that are not the same. */
    differs: jsonb("differs").$type<string[]>().notNull(),
    disbursement_id: uuid("disbursement_id").notNull(),
    request_id: text("request_id").notNull(),
    occurred_at: instant("occurred_at").notNull().defaultNow(),
  },
  (t) => [
    index("conflicts_occurred_at").on(t.occurred_at, t.id),
    check("conflicts_differs", sql`jsonb_typeof(${t.differs}) = 'array'`),
  ],
)
