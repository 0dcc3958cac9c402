/**
 * The facts to announce, where they go, and what still waits to go there.
 */
import { sql } from "drizzle-orm"
import { bigint, boolean, check, integer, jsonb, pgTable, primaryKey, text, uuid } from "drizzle-orm/pg-core"
import { instant } from "./types.js"

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
export const destinations = pgTable(
  "destinations",
  {
    id: integer("id").primaryKey().generatedAlwaysAsIdentity(),
    name: text("name").notNull().unique("destinations_name"),
    kind: text("kind").notNull().default("stdout"),
    /** Addresses and names of secrets; never a secret. */
    config: jsonb("config").notNull().default(sql`'{}'::jsonb`),
    paused: boolean("paused").notNull().default(false),
    /** Why nothing is sent there until an operator resumes it: the receiver said so, or its earlier events are being laid out. */
    disabled_reason: text("disabled_reason"),
    created_at: instant("created_at").notNull().defaultNow(),
  },
  (t) => [
    check("destinations_kind", sql`${t.kind} IN ('webhook', 'nats', 'rabbitmq', 'stdout')`),
    check("destinations_config", sql`jsonb_typeof(${t.config}) = 'object'`),
  ],
)

/** What flows: a row for each destination and event that nothing stands in the way of, deleted when delivered. */
export const outboxDelivery = pgTable(
  "outbox_delivery",
  {
    destination_id: integer("destination_id").notNull(),
    seq: bigint("seq", { mode: "number" }).notNull(),
    aggregateid: text("aggregateid").notNull(),
    // Leases: in no index, so that their updates stay HOT.
    lease_token: uuid("lease_token"),
    leased_until: instant("leased_until"),
    /** Leases since somebody last said how it went: more than one means that a process ended, or froze, with this row. */
    attempts: integer("attempts").notNull().default(0),
  },
  (t) => [primaryKey({ name: "outbox_delivery_pkey", columns: [t.destination_id, t.seq] })],
)

/** Awards (or accounts) whose first waiting event a destination did not take: it is tried again at `retry_at`, or is parked, and the rest waits. */
export const deliveryHolds = pgTable(
  "delivery_holds",
  {
    destination_id: integer("destination_id").notNull(),
    aggregateid: text("aggregateid").notNull(),
    /** The event that was not taken. */
    seq: bigint("seq", { mode: "number" }).notNull(),
    reason: text("reason").notNull(),
    attempts: integer("attempts").notNull(),
    since: instant("since").notNull(),
    /** null: parked, until an operator redrives or skips it. */
    retry_at: instant("retry_at"),
    lease_token: uuid("lease_token"),
    leased_until: instant("leased_until"),
  },
  (t) => [primaryKey({ name: "delivery_holds_pkey", columns: [t.destination_id, t.aggregateid] })],
)

/** What waits behind a hold, the held event itself included: out of the way of what flows, moved there and back as sets. */
export const outboxHeld = pgTable(
  "outbox_held",
  {
    destination_id: integer("destination_id").notNull(),
    aggregateid: text("aggregateid").notNull(),
    seq: bigint("seq", { mode: "number" }).notNull(),
  },
  (t) => [primaryKey({ name: "outbox_held_pkey", columns: [t.destination_id, t.aggregateid, t.seq] })],
)

/** What was delivered: append-only. */
export const deliveryReceipts = pgTable(
  "delivery_receipts",
  {
    destination_id: integer("destination_id").notNull(),
    seq: bigint("seq", { mode: "number" }).notNull(),
    attempts: integer("attempts").notNull(),
    delivered_at: instant("delivered_at").notNull(),
  },
  (t) => [primaryKey({ name: "delivery_receipts_pkey", columns: [t.destination_id, t.seq] })],
)
