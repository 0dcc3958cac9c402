#!/usr/bin/env node
/**
 * The one executable. Reads the configuration, runs a command, and turns whatever stops it into one sentence on stderr and exit code 1:
 * no stacks, no values. Knows nothing of how things work; the commands do.
 */
import { existsSync, readFileSync } from "node:fs"
import { readFile, writeFile } from "node:fs/promises"
import { relative, sep } from "node:path"
import { fileURLToPath } from "node:url"
import { Command, Option } from "commander"
import { type Config, ConfigError, describeEnvironment, readConfig } from "./config.js"
import { errorCode, isUnavailable, Reads } from "./db/client.js"
import { EmbeddedError, findEmbedded } from "./db/embedded.js"
import { SchemaError } from "./db/migrate.js"
import { renderOpenapi } from "./http/render-openapi.js"
import { describeError, makeLogger } from "./http/request-log.js"
import { limits } from "./limits.js"
import {
  addToken,
  createPortal,
  findPortalByName,
  listPortals,
  portalRequest,
  type Role,
  revokeToken,
  roles,
} from "./portals/portals.js"
import { Problem } from "./problems.js"
import { openDatabase, type Running, serve } from "./serve.js"

/** This file lies in `src` or in `dist/src`. */
const root = ["..", "../.."]
  .map((up) => fileURLToPath(new URL(up, import.meta.url)).replace(/[/\\]$/, ""))
  .find((folder) => existsSync(`${folder}/package.json`))

if (root === undefined) throw new Error("package.json of this installation is missing")

const { version } = JSON.parse(readFileSync(`${root}/package.json`, "utf8")) as { version: string }
/** As a dependency of something else: its folder is replaced at each install, and must hold no data. */
const isDependency = root.split(sep).includes("node_modules")

/** Where this program lies. */
const installation = {
  version,
  /** A checkout keeps its data in itself, so that it does not matter where a command is started; a dependency keeps it where it is started. */
  home: isDependency ? process.cwd() : root,
  /** How to call this program again. */
  command: isDependency ? "npx grantgate" : `node ${relative(process.cwd(), `${root}/dist/src/cli.js`)}`,
} as const

/** A sentence for the person at the terminal. */
class CommandError extends Error {
  override readonly name = "CommandError"
}

const program = new Command("grantgate")
  .description("Records grant award disbursements so that a retry never pays twice and never loses a payment.")
  .version(installation.version)
  .showHelpAfterError("(grantgate --help says more)")
  .addHelpText(
    "after",
    `
Examples:
  grantgate serve                                        an embedded Postgres, for trying it
  DATABASE_URL=postgres://… grantgate serve              on your own Postgres (14 to 18)
  grantgate portal create county-east --role portal      prints the portal's first token
  grantgate portal token add county-east                 one more, to rotate the old one
  grantgate openapi --write openapi/openapi.json

Settings come from the environment: HOST, PORT, DATABASE_URL, GRANTGATE_DATA_DIR, LOG_LEVEL and more; the README lists them.`,
  )

program
  .command("serve")
  .description("Start the HTTP server; without DATABASE_URL on an embedded Postgres")
  .action(async () => runServer(loadConfig()))

program
  .command("migrate")
  .description("Bring the database to this version's schema, and exit")
  .action(async () => {
    await withDatabase({ ...loadConfig(), migrate: true }, async () => print("The schema is current."))
  })

const portal = program.command("portal").description("Portals: who may call, and with which tokens")

portal
  .command("create <name>")
  .description("Register a portal and print its first token, which is shown only this once")
  .addOption(new Option("--role <role>", "what its tokens may do").choices(roles).default("portal"))
  .option("--key-required", "refuse its submissions without an Idempotency-Key", false)
  .action(async (name: string, options: { role: Role; keyRequired: boolean }) => {
    const request = portalRequest.safeParse({ name, role: options.role, key_required: options.keyRequired })
    if (!request.success) throw new CommandError(`The name ${request.error.issues[0]?.message ?? "is not valid"}.`)
    await withReads(async (reads) => {
      const made = await reads.run((db) => createPortal(db, request.data))
      print(`Portal ${made.name} (${made.role}), id ${made.id}. Its token, shown only this once:`)
      print(made.token)
    })
  })

portal
  .command("list")
  .description("All portals and their tokens' ids")
  .action(async () => {
    await withReads(async (reads) => {
      for (const row of await reads.run(listPortals)) {
        print(`${row.name}  ${row.role}${row.key_required ? "  key required" : ""}  ${row.id}`)
        for (const token of row.tokens) print(`  token ${token.id}  since ${token.created_at}`)
      }
    })
  })

const token = portal.command("token").description("Tokens of a portal")

token
  .command("add <portal>")
  .description("Print a new token, beside those the portal has")
  .action(async (name: string) => {
    await withReads(async (reads) => {
      const made = await reads.run(async (db) => addToken(db, (await portalNamed(db, name)).id))
      if (!made) throw new CommandError(`There is no portal ${name} to add a token to.`)
      print(`Token ${made.id}, shown only this once:`)
      print(made.token)
    })
  })

token
  .command("revoke <portal> <token-id>")
  .description("Revoke a token for good; `portal list` shows the ids")
  .action(async (name: string, tokenId: string) => {
    await withReads(async (reads) => {
      const isId = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(tokenId)
      const found = isId && (await reads.run(async (db) => revokeToken(db, (await portalNamed(db, name)).id, tokenId)))
      if (!found) throw new CommandError(`Portal ${name} has no token with this id.`)
      print(`Revoked. Running servers follow within ${limits.tokenCacheMs / 1000} s.`)
    })
  })

program
  .command("openapi")
  .description("Print the OpenAPI document")
  .addOption(new Option("--write <file>", "write it to a file instead").conflicts("check"))
  .option("--check <file>", "exit 1 unless the file holds exactly this document")
  .action(async (options: { write?: string; check?: string }) => {
    const text = await renderOpenapi()
    if (options.check !== undefined) {
      const kept = await readFile(options.check, "utf8").catch(() => null)
      if (kept !== text)
        throw new CommandError(`${options.check} is stale. Run: grantgate openapi --write ${options.check}`)
    } else if (options.write !== undefined) await writeFile(options.write, text)
    else process.stdout.write(text)
  })

program
  .command("config")
  .description("Print every setting with its meaning and default, as an env file")
  .action(() => {
    process.stdout.write(describeEnvironment())
  })

await program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`grantgate: ${sentenceOf(error)}\n`)
  process.exitCode = 1
})

async function runServer(config: Config): Promise<void> {
  const log = makeLogger(config.logLevel)
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
  let running: Running | null = null
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

  running = await serve(config, log)
  if (asked) {
    await running.stop()
    process.exit(0)
  }
  if (config.databaseUrl === null) printWelcome(running)
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

function loadConfig(): Config {
  return readConfig(undefined, installation.home)
}

async function withReads(work: (reads: Reads) => Promise<void>): Promise<void> {
  await withDatabase(loadConfig(), work)
}

/** Runs a command on the database and closes it: DATABASE_URL's, or the embedded one, beside the server that runs it or alone. */
async function withDatabase(given: Config, work: (reads: Reads) => Promise<void>): Promise<void> {
  const config = given.databaseUrl === null ? { ...given, databaseUrl: await findEmbedded(given.dataDir) } : given
  const database = await openDatabase(config, makeLogger("silent"))
  const reads = new Reads(database.url, { max: 1, preparedStatements: config.preparedStatements })
  try {
    await work(reads)
  } finally {
    await reads.end()
    await database.stop()
  }
}

async function portalNamed(db: Parameters<typeof findPortalByName>[0], name: string): Promise<{ id: string }> {
  const found = await findPortalByName(db, name)
  if (!found) throw new CommandError(`There is no portal ${name}.`)
  return found
}

/** What went wrong, for a person. Errors that are not ours may hold values, so their text stays out. */
function sentenceOf(error: unknown): string {
  if (error instanceof CommandError || error instanceof ConfigError) return error.message
  if (error instanceof Problem) return error.detail
  if (error instanceof SchemaError || error instanceof EmbeddedError) return error.message
  const code = errorCode(error)
  if (code === "EADDRINUSE")
    return "The port is in use. Stop what uses it, or set PORT to another (0 takes a free one)."
  if (code === "EACCES") return "The address may not be used, or a file may not be written: permission denied."
  if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND") return "HOST is not an address of this machine."
  if (isUnavailable(error)) return `The database cannot be reached (${code}).`
  return `It failed in a way it did not expect: ${JSON.stringify(describeError(error))}`
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}
