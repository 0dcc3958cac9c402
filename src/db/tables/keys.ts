/**
 * The gate's two tables: what was asked under which key, and what was answered. Nothing here knows money.
 */
import { sql } from "drizzle-orm"
import { check, pgTable, primaryKey, smallint, text, uniqueIndex, uuid } from "drizzle-orm/pg-core"
import { bytea, instant } from "./types.js"

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
