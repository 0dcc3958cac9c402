/**
 * `grantgate serve`: the server as a process. What is unhandled ends it, a signal stops it in order, and a newcomer is told what to paste.
 */
import { setFlagsFromString } from "node:v8"
import type { Command } from "commander"
import type { Config } from "../config.js"
import { isUnavailable } from "../db/client.js"
import { makeLogger } from "../http/request-log.js"
import { limits } from "../limits.js"
import { type Running, serve } from "../serve.js"
import { installation, loadConfig, print } from "./command.js"

export function serveCommand(program: Command): void {
  program
    .command("serve")
    .description("Start the HTTP server; without DATABASE_URL on an embedded Postgres")
    .option("--with-relay", "deliver events from this process, too; always so on the embedded Postgres", false)
    .action(async ({ withRelay }: { withRelay: boolean }) => {
      const config = loadConfig()
      await runServer(config, withRelay || config.databaseUrl === null)
    })
}

async function runServer(config: Config, withRelay: boolean): Promise<void> {
  setFlagsFromString(`--heap-growing-percent=${limits.heapGrowthPercent}`)
  const log = makeLogger(config.logLevel)
  const running = await runUntilStopped(log, () =>
    serve(config, log, withRelay ? { version: installation.version } : null),
  )
  if (running !== null && config.databaseUrl === null) printWelcome(running)
}

/**
 * A process that ends in order when it is asked to, and at once when an error reaches nobody.
 * @returns what was started; null: it was asked to stop meanwhile, and has
 */
export async function runUntilStopped<Started extends { stop(): Promise<void> }>(
  log: ReturnType<typeof makeLogger>,
  start: () => Promise<Started>,
): Promise<Started | null> {
  const fatal = (error: unknown) => {
    log.fatal({ err: error }, "an error that nobody handles; the process ends")
    process.exit(1)
  }
  process.on("uncaughtException", fatal)
  process.on("unhandledRejection", (error: unknown) => {
    // A promise of the driver's own about a connection that is gone: whoever used the connection has been told.
    if (isUnavailable(error)) log.warn({ err: error }, "a database connection was lost")
    else fatal(error)
  })
  let running: Started | null = null
  let asked = false
  const stop = (signal: string) => {
    if (asked) process.exit(1)
    asked = true
    log.info({ signal }, "stopping")
    // The last resort: a part that does not end. What it was doing is safe to send again.
    setTimeout(() => process.exit(0), limits.stopMs).unref()
    // Asked during the start: it stops when it has started.
    void running?.stop().then(() => process.exit(0))
  }
  process.on("SIGTERM", stop)
  process.on("SIGINT", stop)

  running = await start()
  if (!asked) return running
  await running.stop()
  process.exit(0)
}

/** For the person who tries it on the embedded database: what to paste. */
function printWelcome({ url, demoToken }: Running): void {
  const cli = installation.command
  print(
    `\ngrantgate listens on ${url}, docs at ${url}/docs. Its embedded Postgres is for trying and small installations.`,
  )
  if (demoToken === null) {
    print(`The portal \`demo\` is there from an earlier start. A new token for it: ${cli} portal token add demo\n`)
    return
  }
  const body = JSON.stringify({
    award_id: "A-2026-014",
    submission_timestamp: new Date().toISOString().replace(/\.\d+Z$/, "Z"),
    amount_cents: 125000,
  })
  print(`Paste this twice: the first records a disbursement, the second is a replay of its answer.

curl -i ${url}/v1/submissions \\
  -H 'Authorization: Bearer ${demoToken}' \\
  -H 'Content-Type: application/json' \\
  -H 'Idempotency-Key: "demo-1"' \\
  -d '${body}'

The token is shown only this once. Another: ${cli} portal token add demo
`)
}
