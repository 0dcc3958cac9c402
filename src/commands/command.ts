/**
 * What every command stands on: where this program lies, its configuration, a database to work on, and how a failure becomes one sentence on
 * stderr: no stacks, no values.
 */
import { existsSync, readFileSync } from "node:fs"
import { relative, sep } from "node:path"
import { fileURLToPath } from "node:url"
import { type Config, ConfigError, readConfig } from "../config.js"
import { errorCode, isUnavailable, Reads } from "../db/client.js"
import { EmbeddedError, findEmbedded } from "../db/embedded.js"
import { SchemaError } from "../db/migrate.js"
import { describeError, makeLogger } from "../http/request-log.js"
import { Problem } from "../problems.js"
import { openDatabase } from "../serve.js"

/** This file lies in `src/commands` or in `dist/src/commands`. */
const root = ["../..", "../../.."]
  .map((up) => fileURLToPath(new URL(up, import.meta.url)).replace(/[/\\]$/, ""))
  .find((folder) => existsSync(`${folder}/package.json`))

if (root === undefined) throw new Error("package.json of this installation is missing")

const { version } = JSON.parse(readFileSync(`${root}/package.json`, "utf8")) as { version: string }
/** As a dependency of something else: its folder is replaced at each install, and must hold no data. */
const isDependency = root.split(sep).includes("node_modules")

/** Where this program lies. */
export const installation = {
  version,
  /** A checkout keeps its data in itself, so that it does not matter where a command is started; a dependency keeps it where it is started. */
  home: isDependency ? process.cwd() : root,
  /** How to call this program again. */
  command: isDependency ? "npx grantgate" : `node ${relative(process.cwd(), `${root}/dist/src/cli.js`)}`,
} as const

/** A sentence for the person at the terminal. */
export class CommandError extends Error {
  override readonly name = "CommandError"
  constructor(
    message: string,
    readonly exitCode = 1,
  ) {
    super(message)
  }
}

export function loadConfig(): Config {
  return readConfig(undefined, installation.home)
}

export async function withReads(work: (reads: Reads) => Promise<void>): Promise<void> {
  await withDatabase(loadConfig(), work)
}

/** Runs a command on the database and closes it: DATABASE_URL's, or the embedded one, beside the server that runs it or alone. */
export async function withDatabase(given: Config, work: (reads: Reads) => Promise<void>): Promise<void> {
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

/** What went wrong, for a person. Errors that are not ours may hold values, so their text stays out. */
export function sentenceOf(error: unknown): string {
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

export function print(text: string): void {
  process.stdout.write(`${text}\n`)
}
