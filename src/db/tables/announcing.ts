/**
 * The facts to announce, where they go, and what still waits to go there.
 */
import { sql } from "drizzle-orm"
import { bigint, check, integer, jsonb, pgTable, primaryKey, text, uuid } from "drizzle-orm/pg-core"
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
