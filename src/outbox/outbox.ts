/**
 * All SQL on the outbox: the facts to announce, and the rows that wait to be announced. Events are written in the transaction of what they
 * announce, in the order of the award's decisions; every destination known at that moment gets its row in the same transaction.
 */
import { sql } from "drizzle-orm"
import type { Tx } from "../db/client.js"
import { rowsOf, statement } from "../db/statement.js"
import { destinations, outbox, outboxDelivery } from "../db/tables/announcing.js"

/** One fact to announce. */
export interface OutboxEvent {
  /** uuid v7: the id that every attempt to deliver carries. */
  readonly id: string
  readonly aggregatetype: "award" | "account"
  /** Events of one aggregate are delivered in order. */
  readonly aggregateid: string
  readonly type: "disbursement.recorded" | "disbursement.returned" | "disbursement.reversed" | "balance.recorded"
  /** Unique for ever: an effect has exactly one event. */
  readonly eventKey: string
  readonly payload: Readonly<Record<string, unknown>>
}

// ORDER BY: seq is drawn in the order of the rows, so an award's events are numbered as decided.
const writeEventsStatement = statement("write_events", (db) =>
  db.insert(outbox).select(
    sql`SELECT nextval('outbox_seq_seq'), e.id, e.aggregatetype, e.aggregateid, e.type, e.payload, e."eventKey",
            ${sql.placeholder("now")}::text::timestamptz
          FROM json_to_recordset(${rowsOf("events")}) AS e(at int, id uuid, aggregatetype text, aggregateid text, type text, payload jsonb,
            "eventKey" text)
          ORDER BY e.at`,
  ),
)

const writeDeliveriesStatement = statement("write_deliveries", (db) =>
  db.insert(outboxDelivery).select(
    sql`SELECT d.id, o.seq, o.aggregateid, NULL::uuid, NULL::timestamptz, 0
          FROM ${destinations} d JOIN ${outbox} o ON o.id = ANY(${sql.placeholder("ids")}::uuid[])`,
  ),
)

/** Writes events and what waits for each destination: two statements, started in order, to be awaited together. */
export function writeEvents(tx: Tx, events: readonly OutboxEvent[], now: string): Promise<unknown>[] {
  const rows = JSON.stringify(events.map((event, at) => ({ at, ...event })))
  const written = writeEventsStatement(tx, { events: rows, now })
  return [written, writeDeliveriesStatement(tx, { ids: events.map((event) => event.id) })]
}
