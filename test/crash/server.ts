/**
 * A server that kills itself: put together as `serve` does, it ends by SIGKILL, with nothing cleaned up, at a named point of a submission's way.
 * KILL_AT names the point: a stage of the gate, or `before-reply`. KILL_AFTER says how many times the point is passed before that.
 */
import { readConfig } from "../../src/config.js"
import { Reads } from "../../src/db/client.js"
import { Gate } from "../../src/gate/gate.js"
import { buildApp } from "../../src/http/app.js"
import { makeLogger } from "../../src/http/request-log.js"
import { createLedger } from "../../src/ledger/book.js"

const killAt = process.env.KILL_AT ?? ""
let passes = Number(process.env.KILL_AFTER ?? "0")

function pass(point: string): void {
  if (point !== killAt || passes-- > 0) return
  process.kill(process.pid, "SIGKILL")
  // The signal is on its way; nothing more of this process may happen before it is there.
  for (;;);
}

const config = readConfig()
if (config.databaseUrl === null) throw new Error("DATABASE_URL names the database")
const logger = makeLogger("info")
const reads = new Reads(config.databaseUrl, { max: 2, preparedStatements: true })
const gate = new Gate({
  url: config.databaseUrl,
  reads,
  preparedStatements: true,
  lanes: config.lanes,
  groupMembersMax: config.groupMembersMax,
  ledger: createLedger("open"),
  recordConflict: () => Promise.reject(new Error("this server records no conflicts")),
  onStage: pass,
})
const app = buildApp({ config, reads, gate, logger })
app.addHook("onSend", async (request) => {
  if (request.routeOptions.url === "/v1/submissions") pass("before-reply")
})
await app.listen({ host: config.host, port: config.port, listenTextResolver: (address) => `listening on ${address}` })
