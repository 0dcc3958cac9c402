/**
 * One destination's way out: leases events, publishes them outside any transaction (awards side by side, an award's events one by one), settles what
 * it hears as sets. Each turn settles first and leases then. What was leased is never published after its lease may have ended; who is to blame
 * for a failure, the event or the destination, is judged here and nowhere else.
 */
import { randomUUID } from "node:crypto"
import type { Broker, Outcome } from "../broker/broker.js"
import type { Reads } from "../db/client.js"
import { limits } from "../limits.js"
import { Breaker, backOffMs } from "./breaker.js"
import { messageOf } from "./cloud-event.js"
import { type Leased, leaseBatch } from "./deliveries.js"
import { disableDestination } from "./destinations.js"
import { leaseHolds, setAside } from "./holds.js"
import { type FailedItem, type LeasedItem, settle } from "./settle.js"

/** Where the relay says what happens. Never an event's payload. */
export interface RelayObserver {
  published(destination: string, result: Outcome["kind"], latencyMs: number | null): void
  note(level: "info" | "warn", facts: Record<string, string | number>, message: string): void
}

export interface FlowOptions {
  readonly destinationId: number
  readonly name: string
  readonly broker: Broker
  readonly reads: Pick<Reads, "run">
  /** Of the CloudEvents. */
  readonly source: string
  readonly observer: RelayObserver
  /** For tests. */
  readonly leaseMs?: number
}

/** What one turn did. */
export interface Turn {
  readonly leased: number
  readonly delivered: number
  readonly failed: number
  readonly released: number
  readonly setAside: number
}

interface Item extends LeasedItem {
  /** By `performance.now()`: nothing is published after it. */
  readonly publishUntil: number
}

interface Heard {
  readonly item: Item
  /** null: not tried. */
  readonly outcome: Outcome | null
}

export class Flow {
  readonly breaker = new Breaker()
  readonly #o: FlowOptions
  readonly #awards = new Set<string>()
  readonly #pumps = new Set<Promise<void>>()
  readonly #waiting: (() => void)[] = []
  #heard: Heard[] = []
  #leased = 0
  #suspects = 0
  #publishing = 0
  #delivered = 0
  /** Deliveries of others as they stood when an event was first tried: whether any came since says who is to blame. */
  readonly #triedAt = new Map<string, number>()
  #windowRows: number = limits.windowRowsMin
  #holdsAt = 0
  #stopping = false
  #wake: () => void = () => {}

  constructor(options: FlowOptions) {
    this.#o = options
  }

  get stopping(): boolean {
    return this.#stopping
  }

  /** Events that are leased and not settled. */
  get leased(): number {
    return this.#leased
  }

  /** Settles what was heard, then leases what there is room for and starts it. @throws when the database does not answer; nothing heard is lost */
  async runOnce(): Promise<Turn> {
    const settled = await this.#settle()
    const started = this.#stopping ? { leased: 0, setAside: 0 } : await this.#lease()
    return { ...settled, ...started }
  }

  /** Resolves when something was heard, or after `ms`. */
  async idle(ms: number): Promise<void> {
    if (this.#heard.length > 0 || this.#stopping) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#wake = () => {
        clearTimeout(timer)
        // What is heard in the same turn of the event loop is settled together.
        setImmediate(resolve)
      }
    })
    this.#wake = () => {}
  }

  /** Starts nothing more, waits for what is on its way, settles it and gives the rest back. Never rejects. */
  async stop(): Promise<void> {
    this.#stopping = true
    this.#wake()
    while (this.#waiting.length > 0) this.#letIn()
    const late = new Promise((resolve) => setTimeout(resolve, limits.relayFinishMs).unref())
    await Promise.race([Promise.all(this.#pumps), late])
    // Cut off here: whether it arrived is not known, and it goes again with the same id.
    await this.#o.broker.close().catch(() => {})
    await Promise.all(this.#pumps)
    await this.#settle().catch(() => {})
  }

  async #lease(): Promise<Pick<Turn, "leased" | "setAside">> {
    const { mode } = this.breaker
    const trial = mode === "trial"
    const room = limits.leasedMax - this.#leased
    // By halves: a statement for each event that leaves would cost more than it brings.
    if (mode === "open" || (trial ? this.#leased > 0 : room < limits.leasedMax / 2)) return { leased: 0, setAside: 0 }
    const { destinationId, reads, leaseMs = limits.leaseMs } = this.#o
    const ask = { destinationId, token: randomUUID(), leaseMs, rowsMax: room, windowRows: this.#windowRows, trial }
    const publishUntil = performance.now() + leaseMs - Math.min(limits.publishMs, leaseMs / 2)

    const suspects = this.#suspects === 0
    const lease = await reads.run((db) => leaseBatch(db, { ...ask, suspects }), limits.relayStatementMs)
    let rows: Leased[] = [...lease.rows]
    this.#start(rows, ask.token, publishUntil, false)
    const moved =
      lease.held > 0 ? await reads.run((db) => setAside(db, destinationId, ask.windowRows), limits.relayStatementMs) : 0
    // All that was looked at is held back by others: look further, until there is something to do again.
    const stuck = lease.scanned === ask.windowRows && rows.length < room / 4 && moved === 0 && !trial
    this.#windowRows = stuck ? Math.min(limits.windowRowsMax, this.#windowRows * 4) : limits.windowRowsMin

    const now = performance.now()
    if (trial ? rows.length === 0 : now - this.#holdsAt >= limits.relayIdleMs) {
      this.#holdsAt = now
      const holdsAsk = { ...ask, rowsMax: trial ? 1 : limits.holdsLeasedMax }
      const due = await reads.run((db) => leaseHolds(db, holdsAsk), limits.relayStatementMs)
      this.#start(due, ask.token, publishUntil, true)
      rows = [...rows, ...due]
    }
    return { leased: rows.length, setAside: moved }
  }

  /** Publishes each award's rows in their order. */
  #start(rows: readonly Leased[], token: string, publishUntil: number, hold: boolean): void {
    const byAward = new Map<string, Item[]>()
    for (const row of rows) {
      const items = byAward.get(row.aggregateid) ?? []
      items.push({ ...row, token, hold, publishUntil })
      byAward.set(row.aggregateid, items)
    }
    this.#leased += rows.length
    for (const items of byAward.values()) {
      this.#suspects += items.filter(isSuspect).length
      const pump = this.#pump(items).finally(() => this.#pumps.delete(pump))
      this.#pumps.add(pump)
    }
  }

  async #pump(items: readonly Item[]): Promise<void> {
    const award = items[0]?.aggregateid ?? ""
    // A lease of our own that we lost and took again: the first pump has not ended.
    let blocked = this.#awards.has(award)
    const mine = !blocked
    this.#awards.add(award)
    for (const item of items) {
      let outcome: Outcome | null = null
      if (!blocked) outcome = await this.#publish(item)
      blocked = outcome?.kind !== "delivered"
      this.#hear({ item, outcome })
    }
    if (mine) this.#awards.delete(award)
  }

  /** null: not tried, because it must not be any more. */
  async #publish(item: Item): Promise<Outcome | null> {
    if (this.#publishing < this.#o.broker.inFlightMax) this.#publishing += 1
    else await new Promise<void>((go) => this.#waiting.push(go))
    try {
      if (this.#stopping || this.breaker.mode === "open" || performance.now() >= item.publishUntil) return null
      const lost = item.hold ? item.attempts > limits.failedAttemptsMax : item.attempts > limits.leasesLostMax
      if (lost) return { kind: "refused", reason: lostReason }
      if (!this.#triedAt.has(item.seq)) this.#triedAt.set(item.seq, this.#delivered)
      const outcome = await this.#o.broker.publish(messageOf(item, this.#o.source), limits.publishMs)
      if (outcome.kind === "delivered") this.#hearDelivered(item)
      this.#o.observer.published(
        this.#o.name,
        outcome.kind,
        outcome.kind === "delivered" ? Date.now() - Date.parse(item.at) : null,
      )
      return outcome
    } finally {
      this.#publishing -= 1
      while (this.#waiting.length > 0 && this.#publishing < this.#o.broker.inFlightMax) this.#letIn()
    }
  }

  /** Hands a place to the next who waits for one. */
  #letIn(): void {
    this.#publishing += 1
    this.#waiting.shift()?.()
  }

  #hearDelivered(item: Item): void {
    this.#delivered += 1
    this.#triedAt.delete(item.seq)
    if (this.breaker.close()) this.#note("info", {}, "a destination is back")
  }

  #hear(heard: Heard): void {
    this.#heard.push(heard)
    // At once: what is still to be published must know.
    const { outcome } = heard
    if (outcome?.kind === "unreachable") this.#open(outcome.reason)
    else if (outcome?.kind === "throttled") this.breaker.wait(outcome.ms, outcome.reason)
    else if (outcome?.kind === "gone") this.breaker.wait(limits.breakerMsMax, outcome.reason)
    this.#wake()
  }

  #open(reason: string): void {
    if (this.breaker.open(reason)) this.#note("warn", { reason }, "a destination is down")
  }

  async #settle(): Promise<Pick<Turn, "delivered" | "failed" | "released">> {
    const all = this.#heard
    if (all.length === 0) return { delivered: 0, failed: 0, released: 0 }
    this.#heard = []
    const delivered: Item[] = []
    const released: Item[] = []
    const failed: FailedItem[] = []
    const { destinationId } = this.#o
    for (const { item, outcome } of all) {
      if (outcome?.kind === "delivered") delivered.push(item)
      else if (outcome?.kind === "refused" || (outcome?.kind === "failed" && this.#isEventsOwn(item)))
        failed.push(this.#failure(item, outcome))
      else {
        if (outcome?.kind === "failed") this.#open(outcome.reason)
        released.push(item)
      }
    }
    try {
      await this.#o.reads.run(async (db) => {
        await settle(db, destinationId, { delivered, failed, released })
        if (all.some(({ outcome }) => outcome?.kind === "gone"))
          await disableDestination(db, destinationId, "The receiver answered that it wants nothing any more.")
      }, limits.relayStatementMs)
    } catch (error) {
      // To be said again: what was settled already is settled, and saying it again changes nothing.
      this.#heard = [...all, ...this.#heard]
      throw error
    }
    this.#leased -= all.length
    this.#suspects -= all.filter(({ item }) => isSuspect(item)).length
    for (const { item, reason, retryMs } of failed) {
      this.#triedAt.delete(item.seq)
      if (retryMs === null) this.#note("warn", { event_id: item.id, reason }, "an event is parked")
    }
    if (this.#triedAt.size > 10 * limits.leasedMax) this.#triedAt.clear()
    return { delivered: delivered.length, failed: failed.length, released: released.length }
  }

  /** Others were delivered since it was first tried: then the destination works, and it is this event that does not. */
  #isEventsOwn(item: Item): boolean {
    return this.#delivered > (this.#triedAt.get(item.seq) ?? this.#delivered)
  }

  #failure(item: Item, { kind, reason }: Outcome & { reason: string }): FailedItem {
    const attemptsMax = kind === "refused" ? limits.refusedAttemptsMax : limits.failedAttemptsMax
    const parked = reason === lostReason || item.attempts >= attemptsMax
    const retryMs = parked ? null : backOffMs(item.attempts, limits.retryMsMin, limits.retryMsMax)
    return { item, reason, retryMs }
  }

  #note(level: "info" | "warn", facts: Record<string, string>, message: string): void {
    this.#o.observer.note(level, { destination: this.#o.name, ...facts }, message)
  }
}

const lostReason = "each process that took it ended before it could say how it went"

const isSuspect = (item: Item): boolean => !item.hold && item.attempts > limits.leasesLostInCompanyMax
