/**
 * The relay put together, for a process of its own or inside a server: its connections, its secrets by name, its figures and its log.
 */
import type { Logger } from "pino"
import type { Registry } from "prom-client"
import { type Config, readDestinationSecret } from "./config.js"
import { Reads } from "./db/client.js"
import { relayObserver } from "./http/relay-metrics.js"
import { limits } from "./limits.js"
import { openBroker } from "./outbox/destination-config.js"
import { Relay } from "./outbox/relay.js"

interface RelayDeps {
  readonly config: Config
  readonly databaseUrl: string
  readonly log: Logger
  readonly registry: Registry
  readonly version: string
}

/** Starts a relay with connections of its own. */
export function startRelay({ config, databaseUrl, log, registry, version }: RelayDeps): {
  relay: Relay
  stop(): Promise<void>
} {
  const reads = new Reads(databaseUrl, {
    max: limits.relayConnectionsMax,
    preparedStatements: config.preparedStatements,
  })
  const settings = { secret: readDestinationSecret, allowPrivate: config.webhookPrivate, version }
  const relay: Relay = new Relay({
    reads,
    open: ({ kind, config: its }) => openBroker(kind, its, settings),
    source: config.eventSource,
    observer: relayObserver(
      registry,
      () => relay.states(),
      (level, facts, message) => log[level](facts, message),
    ),
  })
  relay.start()
  return {
    relay,
    async stop() {
      await relay.stop()
      await reads.end()
    },
  }
}
