/**
 * One settlement of a turn: everything that was heard since the last, as sets, each fenced by its lease. Its statements stand alone, and may all be said
 * again: what was settled already is no longer owned.
 */
import type { Db } from "../db/client.js"
import { limits } from "../limits.js"
import { type Leased, type Owned, releaseLeases, settleDelivered, settleFailed } from "./deliveries.js"
import { endHold, keepHold } from "./holds.js"

/** An event under a lease of ours. */
export interface LeasedItem extends Leased, Owned {
  /** The event of a hold that is tried again. */
  readonly hold: boolean
}

export interface FailedItem {
  readonly item: LeasedItem
  /** For people: no payload. */
  readonly reason: string
  /** null: parked. */
  readonly retryMs: number | null
}

interface Heard {
  readonly delivered: readonly LeasedItem[]
  /** For a reason of their own. */
  readonly failed: readonly FailedItem[]
  /** Not tried, or nobody is to blame. */
  readonly released: readonly LeasedItem[]
}

export async function settle(db: Db, destinationId: number, { delivered, failed, released }: Heard): Promise<void> {
  const work: Promise<unknown>[] = []
  const flowing = delivered.filter(isFlowing)
  if (flowing.length > 0) work.push(settleDelivered(db, destinationId, flowing.map(owned)))
  const failures = failed
    .filter(({ item }) => isFlowing(item))
    .map(({ item, reason, retryMs }) => ({ ...owned(item), reason, retryMs }))
  if (failures.length > 0) work.push(settleFailed(db, destinationId, failures))
  const back = released.filter(isFlowing)
  if (back.length > 0) work.push(releaseLeases(db, destinationId, back.map(owned)))

  const hold = ({ token, aggregateid }: LeasedItem) => ({ destinationId, token, aggregateid })
  for (const item of delivered) if (item.hold) work.push(endHold(db, hold(item)))
  for (const { item, reason, retryMs } of failed)
    if (item.hold) work.push(keepHold(db, hold(item), { reason, retryMs, spent: true }))
  for (const item of released)
    if (item.hold) work.push(keepHold(db, hold(item), { reason: null, retryMs: limits.retryMsMin, spent: false }))
  await Promise.all(work)
}

const isFlowing = (item: LeasedItem): boolean => !item.hold
const owned = ({ seq, token }: LeasedItem): Owned => ({ seq, token })
