/**
 * All SQL on holds: awards whose first waiting event a destination did not take, and what waits behind it, aside of what flows. Whoever moves rows
 * aside holds the hold's row (FOR SHARE), whoever ends a hold deletes it first: so nothing is moved behind a hold that is gone, and what comes
 * back comes back whole, in its old order.
 */
import { sql } from "drizzle-orm"
import type { Db, Tx } from "../db/client.js"
import { deliveryHolds, deliveryReceipts, outbox, outboxDelivery, outboxHeld } from "../db/tables/announcing.js"
import { type Leased, leasedColumns } from "./deliveries.js"

/** A hold under a lease. */
export interface HoldRef {
  readonly destinationId: number
  readonly token: string
  readonly aggregateid: string
}

/** Moves rows of held awards, of the destination's first `windowRows`, out of the way. @returns how many */
export async function setAside(db: Db, destinationId: number, windowRows: number): Promise<number> {
  const rows = await db.execute(sql`
    WITH win AS MATERIALIZED (
      SELECT d.seq, d.aggregateid FROM ${outboxDelivery} d WHERE d.destination_id = ${destinationId} ORDER BY d.seq LIMIT ${windowRows}
    ), holds AS MATERIALIZED (
      SELECT h.aggregateid FROM ${deliveryHolds} h
      WHERE h.destination_id = ${destinationId} AND h.aggregateid = ANY(ARRAY(SELECT aggregateid FROM win))
      ORDER BY h.aggregateid FOR SHARE
    ), moved AS (
      DELETE FROM ${outboxDelivery} d
      WHERE d.destination_id = ${destinationId}
        AND d.seq = ANY(ARRAY(SELECT w.seq FROM win w JOIN holds h ON h.aggregateid = w.aggregateid))
      RETURNING d.destination_id, d.aggregateid, d.seq
    ), aside AS (
      INSERT INTO ${outboxHeld} (destination_id, aggregateid, seq) SELECT destination_id, aggregateid, seq FROM moved RETURNING 1
    )
    SELECT count(*)::int AS n FROM aside`)
  return Number(rows[0]?.n ?? 0)
}

/** Leases holds whose time has come, each with its event. An attempt is counted now, so that a process that ends with it has spent one. */
export async function leaseHolds(
  db: Db,
  ask: { destinationId: number; token: string; leaseMs: number; rowsMax: number },
): Promise<Leased[]> {
  const rows = await db.execute(sql`
    WITH due AS MATERIALIZED (
      SELECT h.aggregateid FROM ${deliveryHolds} h
      WHERE h.destination_id = ${ask.destinationId} AND h.retry_at <= clock_timestamp()
        AND (h.leased_until IS NULL OR h.leased_until <= clock_timestamp())
      ORDER BY h.retry_at LIMIT ${ask.rowsMax} FOR UPDATE SKIP LOCKED
    ), leased AS (
      UPDATE ${deliveryHolds} h
      SET lease_token = ${ask.token}::text::uuid, leased_until = clock_timestamp() + ${ask.leaseMs} * interval '1 millisecond',
        attempts = h.attempts + 1
      WHERE h.destination_id = ${ask.destinationId} AND h.aggregateid = ANY(ARRAY(SELECT aggregateid FROM due))
      RETURNING h.seq, h.attempts
    )
    SELECT ${leasedColumns(sql`l.attempts`)} FROM leased l JOIN ${outbox} o ON o.seq = l.seq`)
  return rows as unknown as Leased[]
}

/** The held event was delivered: its award flows again. Changes nothing when the lease was lost. */
export async function endHold(db: Db, hold: HoldRef): Promise<boolean> {
  return db.transaction(async (tx) => {
    const [ended] = await tx
      .delete(deliveryHolds)
      .where(owned(hold))
      .returning({ seq: sql<string>`${deliveryHolds.seq}::text`, attempts: deliveryHolds.attempts })
    if (!ended) return false
    await moveBack(tx, hold.destinationId, hold.aggregateid, ended.seq)
    await tx.execute(sql`
      INSERT INTO ${deliveryReceipts} (destination_id, seq, attempts, delivered_at)
      VALUES (${hold.destinationId}, ${ended.seq}::text::bigint, ${ended.attempts}, clock_timestamp())`)
    return true
  })
}

/** Lets what waits behind a hold flow again, all but the held event. The hold's row must be deleted before, in the same transaction. */
export async function moveBack(tx: Tx, destinationId: number, aggregateid: string, heldSeq: string): Promise<void> {
  await tx.execute(sql`
    WITH moved AS (
      DELETE FROM ${outboxHeld} w WHERE w.destination_id = ${destinationId} AND w.aggregateid = ${aggregateid}
      RETURNING w.destination_id, w.seq, w.aggregateid
    )
    INSERT INTO ${outboxDelivery} (destination_id, seq, aggregateid)
    SELECT destination_id, seq, aggregateid FROM moved WHERE seq <> ${heldSeq}::text::bigint ORDER BY seq`)
}

/**
 * The held event was tried and not taken.
 * @param retryMs null: parked
 * @param spent false: the destination is to blame, and the attempt is given back
 */
export async function keepHold(
  db: Db,
  hold: HoldRef,
  { reason, retryMs, spent }: { reason: string | null; retryMs: number | null; spent: boolean },
): Promise<void> {
  await db
    .update(deliveryHolds)
    .set({
      attempts: sql`${deliveryHolds.attempts} - ${spent ? 0 : 1}::int`,
      reason: sql`coalesce(${reason}::text, ${deliveryHolds.reason})`,
      retry_at: sql`clock_timestamp() + ${retryMs}::int * interval '1 millisecond'`,
      lease_token: null,
      leased_until: null,
    })
    .where(owned(hold))
}

function owned({ destinationId, token, aggregateid }: HoldRef) {
  const h = deliveryHolds
  return sql`${h.destination_id} = ${destinationId} AND ${h.aggregateid} = ${aggregateid} AND ${h.lease_token} = ${token}::text::uuid`
}
