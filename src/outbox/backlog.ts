/**
 * What waits, and what is parked, as operators see it; and what they may do about a parked event: send it again, or give it up. Either is recorded
 * with who did it, in its own transaction, and changes nothing while a relay has the event in its hands.
 */
import { and, asc, eq, isNull, sql } from "drizzle-orm"
import type { Db } from "../db/client.js"
import type { Place } from "../db/page.js"
import { utc } from "../db/reading.js"
import { deliveryHolds, destinations, outbox, outboxDelivery, outboxHeld } from "../db/tables/announcing.js"
import { type Action, type Actor, recordActions } from "../evidence/operator-actions.js"
import { newId } from "../ids.js"
import { moveBack } from "./holds.js"

export interface Backlog {
  readonly destination: string
  readonly kind: string
  readonly paused: boolean
  readonly disabled_reason: string | null
  readonly pending: number
  /** null: nothing waits. */
  readonly oldest_age_seconds: number | null
  readonly parked: number
  readonly blocked_awards: number
}

/** Each destination's backlog. The oldest is the first of what flows or the first held, each one step down its primary key. */
export async function readBacklog(db: Db): Promise<Backlog[]> {
  const rows = await db.execute(sql`
    SELECT d.name AS destination, d.kind, d.paused, d.disabled_reason,
      ((SELECT count(*) FROM ${outboxDelivery} w WHERE w.destination_id = d.id)
        + (SELECT count(*) FROM ${outboxHeld} w WHERE w.destination_id = d.id))::int AS pending,
      (SELECT greatest(0, extract(epoch FROM clock_timestamp() - min(o.created_at)))::float8 FROM ${outbox} o
        WHERE o.seq = (SELECT min(w.seq) FROM ${outboxDelivery} w WHERE w.destination_id = d.id)
          OR o.seq = (SELECT min(h.seq) FROM ${deliveryHolds} h WHERE h.destination_id = d.id)) AS oldest_age_seconds,
      (SELECT count(*) FROM ${deliveryHolds} h WHERE h.destination_id = d.id AND h.retry_at IS NULL)::int AS parked,
      (SELECT count(*) FROM ${deliveryHolds} h WHERE h.destination_id = d.id)::int AS blocked_awards
    FROM ${destinations} d ORDER BY d.name`)
  return rows as unknown as Backlog[]
}

export interface ParkedEvent {
  readonly id: string
  readonly destination: string
  readonly type: string
  /** The award's key, or the account's. */
  readonly subject: string
  readonly reason: string
  readonly attempts: number
  /** Events of the award that wait behind it. */
  readonly waiting: number
  readonly parked_since: string
  readonly recorded_at: string
}

/** At most `limit` parked events after `after`, oldest first. `place` is unique: the event's id with its destination. */
export async function listParked(
  db: Db,
  destination: string | null,
  after: Place | null,
  limit: number,
): Promise<(ParkedEvent & { place: string })[]> {
  const h = deliveryHolds
  const place = sql<string>`${outbox.id}::text || ${h.destination_id}::text`
  return db
    .select({
      id: outbox.id,
      destination: destinations.name,
      type: outbox.type,
      subject: h.aggregateid,
      reason: h.reason,
      attempts: h.attempts,
      waiting: sql<number>`(SELECT count(*) - 1 FROM ${outboxHeld} w WHERE w.destination_id = ${h.destination_id} AND w.aggregateid = ${h.aggregateid})::int`,
      parked_since: utc(h.since),
      recorded_at: utc(outbox.created_at),
      place,
    })
    .from(h)
    .innerJoin(outbox, eq(outbox.seq, h.seq))
    .innerJoin(destinations, eq(destinations.id, h.destination_id))
    .where(
      and(
        isNull(h.retry_at),
        destination === null ? undefined : eq(destinations.name, destination),
        after === null ? undefined : sql`(${h.since}, ${place}) > (${after.at}::timestamptz, ${after.id})`,
      ),
    )
    .orderBy(asc(h.since), asc(place))
    .limit(limit)
}

/** @param eventId null: every parked event; @param destination null: wherever it is parked */
interface Which {
  readonly eventId: string | null
  readonly destination: string | null
}

/** Sends parked events again, soon; their attempts begin anew. @returns how many places it was parked in */
export async function redriveParked(db: Db, which: Which, actor: Actor, reason: string | null): Promise<number> {
  return db.transaction(async (tx) => {
    const parked = await tx.execute<Parked>(sql`
      UPDATE ${deliveryHolds} h SET retry_at = clock_timestamp(), attempts = 0
      FROM ${outbox} o, ${destinations} d
      WHERE ${isParked(which)} RETURNING o.id, d.name, h.reason`)
    await recordActions(
      tx,
      actor,
      parked.map((row) => actionOn("event.redrive", row, reason)),
    )
    return parked.length
  })
}

/** Gives a parked event up: this destination never gets it, and what waits behind it flows. @returns how many places it was parked in */
export async function skipParked(
  db: Db,
  which: Which & { eventId: string },
  actor: Actor,
  reason: string | null,
): Promise<number> {
  return db.transaction(async (tx) => {
    const parked = await tx.execute<Parked & { destination_id: number; aggregateid: string; seq: string }>(sql`
      DELETE FROM ${deliveryHolds} h USING ${outbox} o, ${destinations} d
      WHERE ${isParked(which)} RETURNING o.id, d.name, h.reason, h.destination_id, h.aggregateid, h.seq::text AS seq`)
    for (const row of parked) await moveBack(tx, row.destination_id, row.aggregateid, row.seq)
    await recordActions(
      tx,
      actor,
      parked.map((row) => actionOn("event.skip", row, reason)),
    )
    return parked.length
  })
}

interface Parked extends Record<string, unknown> {
  readonly id: string
  readonly name: string
  readonly reason: string
}

const isParked = ({ eventId, destination }: Which) => sql`
  h.retry_at IS NULL AND o.seq = h.seq AND d.id = h.destination_id
    AND (${eventId}::text IS NULL OR o.id = ${eventId}::text::uuid) AND (${destination}::text IS NULL OR d.name = ${destination}::text)`

function actionOn(action: "event.redrive" | "event.skip", { id, name, reason }: Parked, why: string | null): Action {
  return { id: newId(), action, subject: id, before: { destination: name, reason }, after: null, reason: why }
}
