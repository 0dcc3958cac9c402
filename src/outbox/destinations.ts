/**
 * All SQL on `destinations`. One is added or removed while no event is being written (a lock on `outbox` that waits for the writers under way), so
 * that each event is either before it or after it for every reader, and none falls between. What operators do here is recorded with it.
 */
import { asc, eq, sql } from "drizzle-orm"
import type { Db, Tx } from "../db/client.js"
import { utc } from "../db/reading.js"
import { deliveryHolds, destinations, outbox, outboxDelivery, outboxHeld } from "../db/tables/announcing.js"
import { type Actor, recordActions } from "../evidence/operator-actions.js"
import { newId } from "../ids.js"
import { limits } from "../limits.js"
import type { DestinationConfig, DestinationKind } from "./destination-config.js"

export interface Destination {
  readonly id: number
  readonly name: string
  readonly kind: DestinationKind
  readonly config: DestinationConfig
  readonly paused: boolean
  /** Why nothing is sent until an operator resumes it. */
  readonly disabled_reason: string | null
  readonly created_at: string
}

const beingFilled = "Its earlier events are being laid out."

export async function listDestinations(db: Db): Promise<Destination[]> {
  const d = destinations
  const rows = await db
    .select({
      id: d.id,
      name: d.name,
      kind: d.kind,
      config: sql<string>`${d.config}::text`,
      paused: d.paused,
      disabled_reason: d.disabled_reason,
      created_at: utc(d.created_at),
    })
    .from(d)
    .orderBy(asc(d.id))
  return rows.map((row) => ({ ...row, kind: row.kind as DestinationKind, config: JSON.parse(row.config) }))
}

/**
 * Adds a destination, from now on or from the first event on. Earlier events are laid out after the lock has gone, while the destination waits.
 * @returns its id; null: the name is taken
 */
export async function addDestination(
  db: Db,
  { name, kind, config, fromBeginning }: Pick<Destination, "name" | "kind" | "config"> & { fromBeginning: boolean },
  actor: Actor,
): Promise<number | null> {
  const added = await db.transaction(async (tx) => {
    await lockWriters(tx)
    const [row] = await tx
      .insert(destinations)
      .values({
        name,
        kind,
        config: sql`${JSON.stringify(config)}::text::jsonb`,
        disabled_reason: fromBeginning ? beingFilled : null,
      })
      .onConflictDoNothing()
      .returning({ id: destinations.id })
    if (!row) return null
    const [last] = await tx.execute(sql`SELECT max(seq)::text AS seq FROM ${outbox}`)
    await record(tx, actor, "destination.add", name, null, { kind, config, from_beginning: fromBeginning })
    return { id: row.id, last: (last?.seq ?? null) as string | null }
  })
  if (added === null) return null
  if (fromBeginning) {
    await db.transaction(async (tx) => {
      if (added.last !== null) {
        await tx.execute(sql`
          INSERT INTO ${outboxDelivery} (destination_id, seq, aggregateid)
          SELECT ${added.id}, o.seq, o.aggregateid FROM ${outbox} o WHERE o.seq <= ${added.last}::text::bigint ORDER BY o.seq`)
      }
      await tx.update(destinations).set({ disabled_reason: null }).where(eq(destinations.id, added.id))
    })
  }
  return added.id
}

/** Pauses or resumes; resuming also enables what a receiver had ended. @returns false: there is no such destination, or it is not laid out yet */
export async function pauseDestination(db: Db, name: string, paused: boolean, actor: Actor): Promise<boolean> {
  return db.transaction(async (tx) => {
    const found = await lockDestination(tx, name)
    if (!found || found.disabled_reason === beingFilled) return false
    const after = { paused, disabled_reason: paused ? found.disabled_reason : null }
    await tx.update(destinations).set(after).where(eq(destinations.id, found.id))
    const before = { paused: found.paused, disabled_reason: found.disabled_reason }
    await record(tx, actor, paused ? "destination.pause" : "destination.resume", name, before, after)
    return true
  })
}

/** Removes it with all that waits for it; receipts stay. @returns how many events it will not get; null: there is no such destination */
export async function removeDestination(db: Db, name: string, actor: Actor): Promise<number | null> {
  return db.transaction(async (tx) => {
    await lockWriters(tx)
    const found = await lockDestination(tx, name)
    if (!found) return null
    await tx.delete(destinations).where(eq(destinations.id, found.id))
    const [flowing] = await tx.execute(sql`
      WITH gone AS (DELETE FROM ${outboxDelivery} d WHERE d.destination_id = ${found.id} RETURNING 1) SELECT count(*)::int AS n FROM gone`)
    const [held] = await tx.execute(sql`
      WITH gone AS (DELETE FROM ${outboxHeld} w WHERE w.destination_id = ${found.id} RETURNING 1) SELECT count(*)::int AS n FROM gone`)
    await tx.delete(deliveryHolds).where(eq(deliveryHolds.destination_id, found.id))
    const undelivered = Number(flowing?.n) + Number(held?.n)
    await record(tx, actor, "destination.remove", name, { kind: found.kind }, { undelivered })
    return undelivered
  })
}

/** The receiver wants nothing any more. */
export async function disableDestination(db: Db, id: number, reason: string): Promise<void> {
  await db.update(destinations).set({ disabled_reason: reason }).where(eq(destinations.id, id))
}

/** Waits for the writers under way and keeps new ones waiting, no longer than they may wait. */
async function lockWriters(tx: Tx): Promise<void> {
  await tx.execute(sql.raw(`SET LOCAL lock_timeout = '${limits.destinationLockMs}ms'`))
  await tx.execute(sql`LOCK TABLE ${outbox} IN SHARE ROW EXCLUSIVE MODE`)
}

async function lockDestination(tx: Tx, name: string) {
  const [found] = await tx.select().from(destinations).where(eq(destinations.name, name)).for("update")
  return found
}

async function record(
  tx: Tx,
  actor: Actor,
  action: "destination.add" | "destination.pause" | "destination.resume" | "destination.remove",
  subject: string,
  before: object | null,
  after: object | null,
): Promise<void> {
  await recordActions(tx, actor, [{ id: newId(), action, subject, before, after, reason: null }])
}
