/**
 * What is counted of announcing: how publishing went, how long it took, and what waits, by destination. Labels are destinations' names, of which an
 * operator gives few; never an award or an id.
 */
import { Counter, Gauge, Histogram, type Registry } from "prom-client"
import type { Reads } from "../db/client.js"
import { readBacklog } from "../outbox/backlog.js"
import type { RelayObserver } from "../outbox/flow.js"
import type { FlowState } from "../outbox/relay.js"

/** Figures of what waits, read when they are scraped. */
export function registerBacklog(registry: Registry, reads: Pick<Reads, "run">): void {
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `grantgate_outbox_${name}`, help, labelNames: ["destination"], registers: [registry] })
  const pending = gauge("pending", "Events that wait for the destination, those held back included")
  const parked = gauge("parked", "Events parked until an operator redrives or skips them")
  const blocked = gauge("blocked_awards", "Awards and accounts whose events wait behind one that was not taken")
  new Gauge({
    name: "grantgate_outbox_oldest_age_seconds",
    help: "Age of the oldest event that waits for the destination; 0 when none does",
    labelNames: ["destination"],
    registers: [registry],
    async collect() {
      const rows = await reads.run(readBacklog).catch(() => null)
      if (rows === null) return
      for (const one of [this, pending, parked, blocked]) one.reset()
      for (const row of rows) {
        const labels = { destination: row.destination }
        this.set(labels, row.oldest_age_seconds ?? 0)
        pending.set(labels, row.pending)
        parked.set(labels, row.parked)
        blocked.set(labels, row.blocked_awards)
      }
    },
  })
}

/** Counts what a relay does. `states` is asked at each scrape. */
export function relayObserver(
  registry: Registry,
  states: () => readonly FlowState[],
  note: RelayObserver["note"],
): RelayObserver {
  const published = new Counter({
    name: "grantgate_relay_published_total",
    help: "Attempts to publish, by destination and result",
    labelNames: ["destination", "result"],
    registers: [registry],
  })
  const latency = new Histogram({
    name: "grantgate_relay_delivery_seconds",
    help: "From an event's recording to the destination's confirmation",
    labelNames: ["destination"],
    buckets: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600],
    registers: [registry],
  })
  const gauge = (name: string, help: string, read: (state: FlowState) => number) =>
    new Gauge({
      name: `grantgate_relay_${name}`,
      help,
      labelNames: ["destination"],
      registers: [registry],
      collect() {
        this.reset()
        for (const state of states()) this.set({ destination: state.destination }, read(state))
      },
    })
  gauge("leased", "Events that this relay has leased and not settled", (state) => state.leased)
  gauge("breaker_open", "1 while the destination is down or asks to wait", (state) => (state.breakerOpen ? 1 : 0))
  gauge("last_turn_age_seconds", "Time since the loop's last whole turn", (state) => state.turnAgeMs / 1000)
  return {
    published(destination, result, latencyMs) {
      published.inc({ destination, result })
      if (latencyMs !== null) latency.observe({ destination }, latencyMs / 1000)
    },
    note,
  }
}
