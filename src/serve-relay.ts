/**
 * The relay as a process: database, loops, figures, listener; and back in reverse, with what is on its way finished first and leases given back.
 */
import type { Logger } from "pino"
import { collectDefaultMetrics, Registry } from "prom-client"
import type { Config } from "./config.js"
import { Reads } from "./db/client.js"
import { findEmbedded } from "./db/embedded.js"
import { buildRelayApp } from "./http/relay-app.js"
import { registerBacklog } from "./http/relay-metrics.js"
import { openDatabase } from "./serve.js"
import { startRelay } from "./start-relay.js"

/** The relay as a process. @throws as `serve` does when it cannot start; nothing is left running */
export async function serveRelay(given: Config, log: Logger, version: string): Promise<{ stop(): Promise<void> }> {
  const config = given.databaseUrl === null ? { ...given, databaseUrl: await findEmbedded(given.dataDir) } : given
  const database = await openDatabase(config, log)
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const { relay, stop } = startRelay({ config, databaseUrl: database.url, log, registry, version })
  const probes = new Reads(database.url, { max: 1, preparedStatements: config.preparedStatements })
  registerBacklog(registry, probes)
  const app = buildRelayApp(registry, () => relay.isReady())
  const down = async () => {
    await stop()
    await app.close()
    await probes.end()
    await database.stop()
  }
  try {
    const address = await app.listen({ host: config.host, port: config.relayPort })
    log.info(`relay listening on ${address}`)
  } catch (error) {
    await down()
    throw error
  }
  return { stop: down }
}
