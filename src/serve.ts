/**
 * The server's way up and down: database, schema, gate, app, listen; and back in reverse when asked to stop, with what is in flight finished first.
 * A start that fails takes down what it had started. The only place where the parts are put together.
 */
import type { Socket } from "node:net"
import type { Logger } from "pino"
import type { Config } from "./config.js"
import { Reads } from "./db/client.js"
import { startEmbedded } from "./db/embedded.js"
import { migrateDatabase, requireCurrentSchema } from "./db/migrate.js"
import { recordConflict } from "./evidence/conflicts.js"
import { commandLine } from "./evidence/operator-actions.js"
import { Gate } from "./gate/gate.js"
import { buildApp } from "./http/app.js"
import type { App } from "./http/deps.js"
import { Metrics } from "./http/metrics.js"
import { registerBacklog } from "./http/relay-metrics.js"
import { newId } from "./ids.js"
import { createLedger } from "./ledger/book.js"
import { limits } from "./limits.js"
import { createPortal, findPortalByName } from "./portals/portals.js"
import { startRelay } from "./start-relay.js"

/** What is in flight may go on until then; the rest of `stopMs` is for closing down. */
const finishMs = limits.stopMs - 2_000

export interface Running {
  /** What it listens on. */
  readonly url: string
  /** On the embedded database's first start: the token of the portal made to try it with. */
  readonly demoToken: string | null
  /** Stops accepting, finishes what is in flight, closes everything. Repeatable; never rejects. */
  stop(): Promise<void>
}

/**
 * @param withRelay events are delivered from this process, too
 * @throws SchemaError, the embedded database's error, or node's own (EADDRINUSE …) when it cannot start; nothing is left running
 */
export async function serve(
  config: Config,
  log: Logger,
  withRelay: { version: string } | null = null,
): Promise<Running> {
  const undo: (() => Promise<unknown>)[] = []
  const down = async () => {
    for (let step = undo.pop(); step; step = undo.pop()) {
      await step().catch((error: unknown) => log.warn({ err: error }, "a part did not stop cleanly"))
    }
  }
  try {
    const { url: databaseUrl, stop: stopDatabase } = await openDatabase(config, log)
    undo.push(stopDatabase)
    const pool = (max: number) => {
      const made = new Reads(databaseUrl, { max, preparedStatements: config.preparedStatements })
      undo.push(() => made.end())
      return made
    }
    const reads = pool(limits.readConnectionsMax)
    const reports = pool(limits.reportConnectionsMax)
    const changes = pool(limits.changeConnectionsMax)
    const demoToken = config.databaseUrl === null ? await makeDemoPortal(reads) : null
    const metrics = new Metrics()
    registerBacklog(metrics.registry, reports)
    const gate = makeGate(config, databaseUrl, reads, metrics, log)
    undo.push(() => gate.stop())
    const app = buildApp({ config, reads, reports, changes, gate, metrics, logger: log })
    const close = closer(app)
    const relay = withRelay && startRelay({ config, databaseUrl, log, registry: metrics.registry, ...withRelay })
    // Side by side: each takes its time.
    undo.push(() => Promise.all([close(), relay?.stop()]))
    await app.listen({
      host: config.host,
      port: config.port,
      listenTextResolver: (address) => `listening on ${address}`,
    })
    let stopped: Promise<void> | null = null
    return {
      url: app.publicUrl(),
      demoToken,
      stop: () => {
        stopped ??= down()
        return stopped
      },
    }
  } catch (error) {
    await down()
    throw error
  }
}

/**
 * The database that the configuration names, or the embedded one, with this version's schema on it.
 * @throws SchemaError, or the embedded database's error
 */
export async function openDatabase(config: Config, log: Logger): Promise<{ url: string; stop(): Promise<unknown> }> {
  const database =
    config.databaseUrl === null
      ? await startEmbedded({ dataDir: config.dataDir, log })
      : { url: config.databaseUrl, stop: async () => {} }
  try {
    if (config.migrate) {
      const { applied } = await migrateDatabase(database.url)
      if (applied > 0) log.info({ applied }, "migrations applied")
    } else {
      await requireCurrentSchema(database.url)
    }
    return database
  } catch (error) {
    await database.stop()
    throw error
  }
}

function makeGate(config: Config, url: string, reads: Reads, metrics: Metrics, log: Logger) {
  const gate = new Gate({
    url,
    reads,
    preparedStatements: config.preparedStatements,
    lanes: config.lanes,
    groupMembersMax: config.groupMembersMax,
    ledger: createLedger(config.awards),
    recordConflict: ({ ask, originalOperation, originalFingerprint, resourceId, differs }) =>
      reads.run((db) =>
        recordConflict(db, {
          id: newId(),
          portal_id: ask.portalId,
          idempotency_key: ask.key,
          operation: ask.operation,
          fingerprint: ask.fingerprint,
          original_operation: originalOperation,
          original_fingerprint: originalFingerprint,
          differs: [...differs],
          disbursement_id: resourceId,
          request_id: ask.requestId,
        }),
      ),
    onFailure: (error) => log.error({ err: error }, "a request failed inside the gate"),
    onRetry: (reason) => metrics.databaseRetry(reason),
    onGroup: (members) => metrics.group(members),
  })
  metrics.gauge("gate_members", "Requests inside the gate, waiting or under way", () => gate.members)
  return gate
}

/** Once in an embedded database's life: a portal to try the service with. */
async function makeDemoPortal(reads: Reads): Promise<string | null> {
  return reads.run(async (db) => {
    if (await findPortalByName(db, "demo")) return null
    const { token } = await createPortal(db, { name: "demo", role: "portal" }, commandLine)
    return token
  })
}

/**
 * Watches the app's connections from now on.
 * @returns stops it: what is idle is closed as it becomes idle; what has not ended by `finishMs` is cut off, and is safe to send again
 */
function closer(app: App): () => Promise<void> {
  const sockets = new Set<Socket>()
  app.server.on("connection", (socket) => {
    sockets.add(socket)
    socket.once("close", () => sockets.delete(socket))
  })
  return async () => {
    app.stopping = true
    const sweep = setInterval(() => {
      app.server.closeIdleConnections()
      // Node does not count those as idle that never sent a byte; browsers keep some open.
      for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy()
    }, 50)
    const cut = setTimeout(() => app.server.closeAllConnections(), finishMs)
    try {
      await app.close()
    } finally {
      clearInterval(sweep)
      clearTimeout(cut)
    }
  }
}
