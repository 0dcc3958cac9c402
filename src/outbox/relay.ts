/**
 * The relay: a flow for each destination that is there and not paused, each with its own loop, backlog and breaker, so that none waits for another.
 * Any number of relays share the work by leases. Watches the destinations' rows; keeps no events.
 */
import { setTimeout as delay } from "node:timers/promises"
import type { Broker, Outcome } from "../broker/broker.js"
import type { Reads } from "../db/client.js"
import { limits } from "../limits.js"
import { jitter } from "./breaker.js"
import { type Destination, listDestinations } from "./destinations.js"
import { Flow, type RelayObserver } from "./flow.js"

export interface RelayOptions {
  readonly reads: Pick<Reads, "run">
  /** Makes a destination's broker when its first event goes out. @throws BrokerError */
  readonly open: (destination: Destination) => Promise<Broker>
  readonly source: string
  readonly observer: RelayObserver
  /** For tests. */
  readonly leaseMs?: number
}

interface Running {
  readonly destination: Destination
  readonly flow: Flow
  readonly ended: Promise<void>
  turnAt: number
}

/** A destination's state in this process. */
export interface FlowState {
  readonly destination: string
  readonly leased: number
  readonly breakerOpen: boolean
  readonly turnAgeMs: number
}

export class Relay {
  readonly #o: RelayOptions
  readonly #running = new Map<number, Running>()
  #turnAt = performance.now()
  #ended: Promise<void> | null = null
  readonly #stop = new AbortController()

  constructor(options: RelayOptions) {
    this.#o = options
  }

  /** Starts; returns at once. */
  start(): void {
    this.#ended ??= this.#watch()
  }

  /** Every loop has had its turn lately: also those that found nothing, or a destination that is down. */
  isReady(): boolean {
    const ages = [performance.now() - this.#turnAt, ...this.states().map(({ turnAgeMs }) => turnAgeMs)]
    return !this.#stop.signal.aborted && ages.every((age) => age < limits.turnAgeMsMax)
  }

  states(): FlowState[] {
    return [...this.#running.values()].map(({ destination, flow, turnAt }) => ({
      destination: destination.name,
      leased: flow.leased,
      breakerOpen: flow.breaker.mode !== "closed",
      turnAgeMs: performance.now() - turnAt,
    }))
  }

  /** Leases nothing more, finishes what is on its way, gives the rest back. Repeatable; never rejects. */
  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#ended
    await Promise.all([...this.#running.values()].map((one) => this.#end(one)))
  }

  async #watch(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#follow(await this.#o.reads.run(listDestinations, limits.relayStatementMs))
        this.#turnAt = performance.now()
      } catch {
        // The loops say so; the destinations known go on.
      }
      await this.#pause(limits.destinationsReadMs)
    }
  }

  async #follow(wanted: readonly Destination[]): Promise<void> {
    const active = new Map(
      wanted.filter((one) => !one.paused && one.disabled_reason === null).map((one) => [one.id, one]),
    )
    for (const one of this.#running.values()) {
      const now = active.get(one.destination.id)
      // Not awaited: what is on its way to one must not keep another from being followed.
      if (now === undefined) void this.#end(one)
    }
    for (const destination of active.values()) {
      if (!this.#running.has(destination.id)) this.#running.set(destination.id, this.#begin(destination))
    }
  }

  #begin(destination: Destination): Running {
    const { reads, open, source, observer, leaseMs } = this.#o
    const flow = new Flow({
      destinationId: destination.id,
      name: destination.name,
      broker: lazyBroker(() => open(destination)),
      reads,
      source,
      observer,
      ...(leaseMs === undefined ? {} : { leaseMs }),
    })
    const running: Running = { destination, flow, ended: Promise.resolve(), turnAt: performance.now() }
    return Object.assign(running, { ended: this.#run(running) })
  }

  /** Turns as long as there is something to do; looks again, less and less often, when there is not. */
  async #run(one: Running): Promise<void> {
    const { flow, destination } = one
    let idleTurns = 0
    while (!flow.stopping) {
      try {
        const turn = await flow.runOnce()
        one.turnAt = performance.now()
        const busy = turn.leased + turn.delivered + turn.setAside > 0
        idleTurns = busy ? 0 : idleTurns + 1
        await flow.idle(turn.setAside > 0 ? 0 : Math.min(limits.relayIdleMs, 5 * 2 ** idleTurns))
      } catch (error) {
        const code = String((error as { code?: unknown }).code ?? "")
        this.#o.observer.note(
          "warn",
          { destination: destination.name, code },
          "a turn of the relay failed; it tries again",
        )
        await flow.idle(0)
        await this.#pause(jitter(limits.relayIdleMs))
      }
    }
  }

  async #end(one: Running): Promise<void> {
    await one.flow.stop()
    await one.ended
    if (this.#running.get(one.destination.id) === one) this.#running.delete(one.destination.id)
  }

  async #pause(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stop.signal }).catch(() => {})
  }
}

/** Opened by the first message; where that fails, tried again with the next. */
function lazyBroker(open: () => Promise<Broker>): Broker {
  let opening: Promise<Broker> | null = null
  let opened: Broker | null = null
  const get = () => {
    opening ??= open().then(
      (broker) => {
        opened = broker
        return broker
      },
      (error: unknown) => {
        opening = null
        throw error
      },
    )
    return opening
  }
  return {
    get inFlightMax() {
      return opened?.inFlightMax ?? limits.webhookConnectionsMax
    },
    async publish(message, ms): Promise<Outcome> {
      try {
        return await (opened ?? (await get())).publish(message, ms)
      } catch (error) {
        return { kind: "unreachable", reason: error instanceof Error ? error.message : "it could not be opened" }
      }
    },
    check: async (ms) => (await get()).check(ms),
    close: async () => opened?.close(),
  }
}
