/**
 * Events, destinations and relays on a test's database, with a broker in memory whose answers the test decides. What it was given is kept in order,
 * repeats included.
 */
import { randomUUID } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import { sql as raw } from "drizzle-orm"
import postgres from "postgres"
import type { Test } from "tap"
import { uuidv7 } from "uuidv7"
import type { Broker, Message, Outcome } from "../../src/broker/broker.js"
import { type Connection, connect, Reads } from "../../src/db/client.js"
import { commandLine } from "../../src/evidence/operator-actions.js"
import { addDestination } from "../../src/outbox/destinations.js"
import { type OutboxEvent, writeEvents } from "../../src/outbox/outbox.js"
import { Relay } from "../../src/outbox/relay.js"

export interface Received {
  readonly id: string
  readonly subject: string
}

export interface MemoryBroker extends Broker {
  /** Every message that was handed over, in order. */
  readonly got: Received[]
  /** Ids of those that were confirmed, in order; repeats left out. */
  confirmed(): string[]
  answer: (message: Message, nth: number) => Outcome | Promise<Outcome>
}

export const delivered: Outcome = { kind: "delivered" }

export function memoryBroker(inFlightMax = 64): MemoryBroker {
  const got: Received[] = []
  const confirmed = new Set<string>()
  const times = new Map<string, number>()
  const broker: MemoryBroker = {
    inFlightMax,
    got,
    confirmed: () => [...confirmed],
    answer: () => delivered,
    async publish(message) {
      const nth = (times.get(message.id) ?? 0) + 1
      times.set(message.id, nth)
      got.push({ id: message.id, subject: message.subject })
      const outcome = await broker.answer(message, nth)
      if (outcome.kind === "delivered") confirmed.add(message.id)
      return outcome
    },
    check: async () => {},
    close: async () => {},
  }
  return broker
}

export interface World {
  readonly url: string
  readonly sql: postgres.Sql
  readonly connection: Connection
  readonly reads: Reads
  /** What relays noted. */
  readonly notes: string[]
  destination(name: string, fromBeginning?: boolean): Promise<number>
  /** Writes events of an award in one transaction. @returns their ids, in order */
  write(award: string, count: number, options?: { holdMs?: number; rollback?: boolean }): Promise<string[]>
  /** Starts a relay with a broker for each destination's name; stopped when the test ends. */
  relay(brokers: Record<string, Broker>, leaseMs?: number): Relay
}

export function relayWorld(t: Test, url: string): World {
  const sql = postgres(url, { max: 4, onnotice: () => {} })
  const connection = connect(url, { max: 24, preparedStatements: true })
  const reads = new Reads(url, { max: 4, preparedStatements: true })
  const notes: string[] = []
  t.teardown(async () => {
    await Promise.all([sql.end({ timeout: 1 }), connection.discard(), reads.end()])
  })
  return {
    url,
    sql,
    connection,
    reads,
    notes,
    async destination(name, fromBeginning = false) {
      const row = { name, kind: "stdout", config: {}, fromBeginning } as const
      const id = await reads.run((db) => addDestination(db, row, commandLine), 30_000)
      if (id === null) throw new Error("the name is taken")
      return id
    },
    async write(award, count, { holdMs = 0, rollback = false } = {}) {
      const events = Array.from({ length: count }, (): OutboxEvent => event(award))
      await connection.db
        .transaction(async (tx) => {
          // What keeps an award's events in the order of their commits: its row's lock.
          await tx.execute(raw`SELECT pg_advisory_xact_lock(hashtext(${award}))`)
          await Promise.all(writeEvents(tx, events, new Date().toISOString()))
          if (holdMs > 0) await delay(holdMs)
          if (rollback) throw new RollBack()
        })
        .catch((error: unknown) => {
          if (!(error instanceof RollBack)) throw error
        })
      return rollback ? [] : events.map(({ id }) => id)
    },
    relay(brokers, leaseMs) {
      const own = new Reads(url, { max: 4, preparedStatements: true })
      const relay = new Relay({
        reads: own,
        open: async ({ name }) => {
          const broker = brokers[name]
          if (!broker) throw new Error(`no broker for ${name}`)
          return broker
        },
        source: "urn:test",
        observer: {
          published: () => {},
          note: (_level, facts, message) => notes.push(`${facts.destination}: ${message}`),
        },
        ...(leaseMs === undefined ? {} : { leaseMs }),
      })
      relay.start()
      t.teardown(async () => {
        await relay.stop()
        await own.end()
      })
      return relay
    },
  }
}

class RollBack extends Error {}

function event(award: string): OutboxEvent {
  const id = uuidv7()
  return {
    id,
    aggregatetype: "award",
    aggregateid: award,
    type: "disbursement.recorded",
    eventKey: `disbursement.recorded:${randomUUID()}`,
    payload: { id, amount_cents: 9007199254740991, note: "Zuwendung für Köln 🏛" },
  }
}

/** Waits until it holds. @throws with what it found last */
export async function until(what: string, holds: () => boolean | Promise<boolean>, ms = 20_000): Promise<void> {
  const deadline = performance.now() + ms
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not within ${ms} ms: ${what}`)
    await delay(5)
  }
}

/** An award's events as first received: repeats left out. */
export function firstTimes(got: readonly Received[], award: string): string[] {
  return [...new Set(got.filter(({ subject }) => subject === award).map(({ id }) => id))]
}
