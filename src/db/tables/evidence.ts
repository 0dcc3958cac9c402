/**
 * What was refused and what operators did, kept for those who ask later.
 */
import { sql } from "drizzle-orm"
import { check, index, jsonb, pgTable, text, uuid } from "drizzle-orm/pg-core"
import { instant } from "./types.js"

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

/** What operators did: who, when, to what, before and after, why; written in the transaction of what it records. Append-only. */
export const operatorActions = pgTable(
  "operator_actions",
  {
    id: uuid("id").primaryKey(),
    /** Whose token, or the bootstrap operator's id. Null: the command line, which has the database itself. */
    portal_id: uuid("portal_id"),
    action: text("action").notNull(),
    /** What it was done to: an award's key, an event's id, a portal's id. */
    subject: text("subject").notNull(),
    before: jsonb("before").$type<Record<string, unknown>>(),
    after: jsonb("after").$type<Record<string, unknown>>(),
    reason: text("reason"),
    request_id: text("request_id"),
    occurred_at: instant("occurred_at").notNull(),
  },
  (t) => [
    index("operator_actions_occurred_at").on(t.occurred_at, t.id),
    // What was done to one award, event or portal.
    index("operator_actions_subject").on(t.subject, t.occurred_at),
  ],
)
