/**
 * All SQL on `outbox_delivery` after an event was written: lease, settle, release. A lease is a token and a time by the database's clock; whatever is
 * said of a row later must name the token, so that the late word of an owner who lost it changes nothing. An award's events are leased as an
 * unbroken run from its first waiting one: nobody else can hold an earlier one. Rows are found by their presence, never by a cursor: identities
 * commit out of order.
 */
import { type SQL, sql } from "drizzle-orm"
import type { Db } from "../db/client.js"
import { utc } from "../db/reading.js"
import { deliveryHolds, deliveryReceipts, outbox, outboxDelivery, outboxHeld } from "../db/tables/announcing.js"
import { limits } from "../limits.js"

/** An event as it is handed to a destination. */
export interface Leased {
  /** Its place in the order of writing, as text: it may exceed 2^53. */
  readonly seq: string
  /** Attempts so far, this one included. */
  readonly attempts: number
  readonly id: string
  readonly type: string
  readonly aggregatetype: string
  readonly aggregateid: string
  /** JSON text, its numbers as stored. */
  readonly payload: string
  /** RFC 3339 UTC. */
  readonly at: string
}

export interface LeaseAsk {
  readonly destinationId: number
  /** A fresh uuid: the owner's name for this lease. */
  readonly token: string
  readonly leaseMs: number
  readonly rowsMax: number
  /** How many of the destination's first rows are looked at. */
  readonly windowRows: number
  /** False: leave rows alone that two leases in a row were lost with. */
  readonly suspects: boolean
  /** One event, of any award: the trial of a destination that was down. */
  readonly trial: boolean
}

export interface Lease {
  readonly rows: readonly Leased[]
  /** Rows looked at; fewer than asked: that was all of them. */
  readonly scanned: number
  /** Rows looked at that wait behind a hold and belong aside. */
  readonly held: number
}

/** Columns of `Leased`, from `outbox o` and what gives `attempts`. */
export const leasedColumns = (attempts: SQL): SQL =>
  sql`o.seq::text AS seq, ${attempts} AS attempts, o.id, o.type, o.aggregatetype, o.aggregateid, o.payload::text AS payload, ${utc(sql`o.created_at`)} AS at`

/** Losing a lease or a settlement in a crash of the server costs a repeat, which receivers drop: not worth an fsync. */
const asyncCommit = sql`(SELECT set_config('synchronous_commit', 'off', true)) async_commit`

/**
 * Leases what may go out now. Locks only the rows it leases, never waits, and reads the first `windowRows` of the primary key in one snapshot with
 * the holds: an award is taken only from its first row on, so an earlier row that somebody else has leased or is settling keeps the later ones back.
 * What lost: an index on (destination_id, aggregateid, seq) for a NOT EXISTS; it costs every submission an index entry.
 */
export async function leaseBatch(db: Db, ask: LeaseAsk): Promise<Lease> {
  const { destinationId, trial, suspects } = ask
  const rows = await db.execute<Record<string, unknown> & { scanned: number; held: number; seq: string | null }>(sql`
    WITH win AS MATERIALIZED (
      SELECT d.seq, d.aggregateid, d.attempts, d.leased_until IS NULL OR d.leased_until <= clock_timestamp() AS free
      FROM ${outboxDelivery} d WHERE d.destination_id = ${destinationId} ORDER BY d.seq LIMIT ${ask.windowRows}
    ), judged AS MATERIALIZED (
      SELECT w.seq, w.aggregateid, w.attempts >= ${limits.leasesLostInCompanyMax} AS suspect, h.seq IS NOT NULL AS held,
        row_number() OVER award AS place,
        bool_and(w.free) OVER award AS open,
        bool_and(w.attempts < ${limits.leasesLostInCompanyMax}) OVER award AS plain
      FROM win w LEFT JOIN ${deliveryHolds} h ON h.destination_id = ${destinationId} AND h.aggregateid = w.aggregateid
      WINDOW award AS (PARTITION BY w.aggregateid ORDER BY w.seq)
    ), ready AS MATERIALIZED (
      (SELECT seq, aggregateid FROM judged
        WHERE open AND plain AND NOT held AND place <= ${trial ? 1 : limits.leasedPerAwardMax}
        ORDER BY ${trial ? sql`random()` : sql`seq`} LIMIT ${trial ? 1 : ask.rowsMax})
      UNION ALL
      (SELECT seq, aggregateid FROM judged
        WHERE open AND suspect AND NOT held AND place = 1 ORDER BY seq LIMIT ${suspects ? 1 : 0})
    ), locked AS MATERIALIZED (
      SELECT d.seq FROM ${outboxDelivery} d
      WHERE d.destination_id = ${destinationId} AND d.seq = ANY(ARRAY(SELECT seq FROM ready))
        AND (d.leased_until IS NULL OR d.leased_until <= clock_timestamp())
      FOR UPDATE SKIP LOCKED
    ), unbroken AS (
      SELECT r.seq, bool_and(l.seq IS NOT NULL) OVER (PARTITION BY r.aggregateid ORDER BY r.seq) AS mine
      FROM ready r LEFT JOIN locked l ON l.seq = r.seq
    ), leased AS (
      UPDATE ${outboxDelivery} d
      SET lease_token = ${ask.token}::text::uuid, leased_until = clock_timestamp() + ${ask.leaseMs} * interval '1 millisecond',
        attempts = d.attempts + 1
      WHERE d.destination_id = ${destinationId} AND d.seq = ANY(ARRAY(SELECT seq FROM unbroken WHERE mine))
      RETURNING d.seq, d.attempts
    )
    SELECT s.scanned, s.held, e.*
    FROM (SELECT count(*)::int AS scanned, (count(*) FILTER (WHERE held))::int AS held FROM judged) s CROSS JOIN ${asyncCommit}
      LEFT JOIN (SELECT ${leasedColumns(sql`l.attempts`)} FROM leased l JOIN ${outbox} o ON o.seq = l.seq) e ON true
    ORDER BY e.seq::bigint`)
  const first = rows[0]
  return {
    rows: first === undefined || first.seq === null ? [] : (rows as unknown as Leased[]),
    scanned: first?.scanned ?? 0,
    held: first?.held ?? 0,
  }
}

/** A row under a lease. */
export interface Owned {
  readonly seq: string
  readonly token: string
}

/** An event that was not taken for a reason of its own. */
export interface Failure extends Owned {
  /** For people: no payload. */
  readonly reason: string
  /** null: parked. */
  readonly retryMs: number | null
}

/** Deletes what was delivered and keeps its receipts. @returns how many rows the leases still owned */
export async function settleDelivered(db: Db, destinationId: number, rows: readonly Owned[]): Promise<number> {
  const [settled] = await db.execute(sql`
    WITH gone AS (
      DELETE FROM ${outboxDelivery} d USING json_to_recordset(${JSON.stringify(rows)}::text::json) AS r(seq bigint, token uuid)
      WHERE d.destination_id = ${destinationId} AND d.seq = r.seq AND d.lease_token = r.token
      RETURNING d.destination_id, d.seq, d.attempts
    ), kept AS (
      INSERT INTO ${deliveryReceipts} (destination_id, seq, attempts, delivered_at)
      SELECT g.destination_id, g.seq, g.attempts, clock_timestamp() FROM gone g RETURNING 1
    )
    SELECT count(*)::int AS n FROM kept CROSS JOIN ${asyncCommit}`)
  return Number(settled?.n ?? 0)
}

/** Puts a hold on each failed event's award, in the statement that takes the event out of the way. @returns how many the leases still owned */
export async function settleFailed(db: Db, destinationId: number, failures: readonly Failure[]): Promise<number> {
  const [settled] = await db.execute(sql`
    WITH failed AS (
      DELETE FROM ${outboxDelivery} d
      USING json_to_recordset(${JSON.stringify(failures)}::text::json) AS f(seq bigint, token uuid, reason text, "retryMs" int)
      WHERE d.destination_id = ${destinationId} AND d.seq = f.seq AND d.lease_token = f.token
      RETURNING d.destination_id, d.seq, d.aggregateid, d.attempts, f.reason, f."retryMs" AS retry_ms
    ), aside AS (
      INSERT INTO ${outboxHeld} (destination_id, aggregateid, seq) SELECT destination_id, aggregateid, seq FROM failed
    ), holds AS (
      INSERT INTO ${deliveryHolds} (destination_id, aggregateid, seq, reason, attempts, since, retry_at)
      SELECT destination_id, aggregateid, seq, reason, attempts, clock_timestamp(),
        clock_timestamp() + retry_ms * interval '1 millisecond'
      FROM failed RETURNING 1
    )
    SELECT count(*)::int AS n FROM holds`)
  return Number(settled?.n ?? 0)
}

/** Gives leases up: nobody was to blame, no attempt is spent. */
export async function releaseLeases(db: Db, destinationId: number, rows: readonly Owned[]): Promise<void> {
  await db.execute(sql`
    UPDATE ${outboxDelivery} d SET lease_token = NULL, leased_until = NULL, attempts = 0
    FROM json_to_recordset(${JSON.stringify(rows)}::text::json) AS r(seq bigint, token uuid) CROSS JOIN ${asyncCommit}
    WHERE d.destination_id = ${destinationId} AND d.seq = r.seq AND d.lease_token = r.token`)
}
