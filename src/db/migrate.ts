/**
 * Brings a database to this version's schema. Any number of processes may start at once: one migrates while it holds an advisory lock,
 * the others wait and find nothing left to do. The lock belongs to a transaction, so that it also works through a pooler and ends with
 * its connection. What drizzle would pass over in silence (a schema from newer code, a file changed or slipped in later) is refused here.
 * Nothing else changes the schema.
 */
import { existsSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { DrizzleQueryError, sql } from "drizzle-orm"
import { readMigrationFiles } from "drizzle-orm/migrator"
import { migrate } from "drizzle-orm/postgres-js/migrator"
import { type Connection, connect, type Db, errorCode, type Tx } from "./client.js"

/** Every grantgate takes the same lock of a database, whatever its version: the bytes of "grantgat". */
const MIGRATION_LOCK = "7454129988543177076"
/** How long a start waits for another that migrates; a migration that rewrites a large table belongs to `grantgate migrate`. */
const LOCK_WAIT_SECONDS = 300
const SERVER_VERSION_MIN = 14

/** A database that this version cannot or may not run on; `message` is one or two sentences for the person who starts it. */
export class SchemaError extends Error {
  override readonly name = "SchemaError"
}

export type SchemaState = "current" | "behind" | "ahead"

interface Migration {
  /** File name without `.sql`. */
  readonly tag: string
  readonly hash: string
  /** Milliseconds since 1970; drizzle's order of migrations, and its name for them in the database. */
  readonly createdAt: number
  readonly statements: readonly string[]
}

/**
 * Applies what is pending, in one transaction: all of it or nothing.
 * @param folder where the migrations lie; for tests
 * @returns how many files were applied; 0 when there was nothing to do
 * @throws SchemaError
 */
export async function migrateDatabase(url: string, folder: string = migrationsFolder()): Promise<{ applied: number }> {
  const known = readMigrations(folder)
  // Pooled connections may not be prepared on; a migration gains nothing by it.
  const holder = connect(url, { max: 1, preparedStatements: false })
  const migrator = connect(url, { max: 1, preparedStatements: false })
  try {
    return await holder.db.transaction(async (lock) => {
      await requireServer(lock)
      await lock.execute(sql.raw(`SET LOCAL lock_timeout = '${LOCK_WAIT_SECONDS}s'`))
      await lock.execute(sql.raw("SET LOCAL statement_timeout = 0"))
      await lock.execute(sql.raw("SET LOCAL idle_in_transaction_session_timeout = 0"))
      await lock.execute(sql.raw(`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`))
      const pending = pendingMigrations(known, await readApplied(migrator.db))
      if (pending === "ahead") throw ahead()
      // Looked at first, so that a role which may not create anything can start on a schema that is current.
      if (pending.length > 0) await migrate(migrator.db, { migrationsFolder: folder })
      return { applied: pending.length }
    })
  } catch (error) {
    throw explain(error, known)
  } finally {
    await Promise.all([holder.discard(), migrator.discard()])
  }
}

/**
 * Compares the database with this version's migrations and changes nothing.
 * @throws SchemaError when the server is too old or cannot be reached, or a migration was changed after it was applied
 */
export async function checkSchema(url: string, folder: string = migrationsFolder()): Promise<SchemaState> {
  const known = readMigrations(folder)
  const connection: Connection = connect(url, { max: 1, preparedStatements: false })
  try {
    await requireServer(connection.db)
    const pending = pendingMigrations(known, await readApplied(connection.db))
    if (pending === "ahead") return "ahead"
    return pending.length > 0 ? "behind" : "current"
  } catch (error) {
    throw explain(error, known)
  } finally {
    await connection.discard()
  }
}

/**
 * For a start that may not migrate.
 * @throws SchemaError unless the schema is current
 */
export async function requireCurrentSchema(url: string, folder: string = migrationsFolder()): Promise<void> {
  const state = await checkSchema(url, folder)
  if (state === "ahead") throw ahead()
  if (state === "behind")
    throw new SchemaError(
      "The database's schema is older than this grantgate and GRANTGATE_MIGRATE is false. Run `grantgate migrate` first.",
    )
}

function ahead(): SchemaError {
  return new SchemaError(
    "The database's schema was made by a newer grantgate than this one. Start that version, or give this one another database.",
  )
}

/** Lies beside `src` and beside `dist`; this file runs from either. */
function migrationsFolder(): string {
  for (const up of ["../../drizzle", "../../../drizzle"]) {
    const folder = fileURLToPath(new URL(up, import.meta.url))
    if (existsSync(`${folder}/meta/_journal.json`)) return folder
  }
  throw new SchemaError(
    "The folder `drizzle` with the migrations is missing from this installation. Install grantgate again.",
  )
}

function readMigrations(folder: string): Migration[] {
  const { entries } = JSON.parse(readFileSync(`${folder}/meta/_journal.json`, "utf8")) as { entries: { tag: string }[] }
  return readMigrationFiles({ migrationsFolder: folder }).map((file, i) => ({
    tag: entries[i]?.tag ?? String(file.folderMillis),
    hash: file.hash,
    createdAt: file.folderMillis,
    statements: file.sql,
  }))
}

async function requireServer(db: Db | Tx): Promise<void> {
  const [server] = await db.execute<{ version: string; number: number; encoding: string }>(
    sql`SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
               current_setting('server_encoding') AS encoding`,
  )
  if (server === undefined) throw new Error("the server did not say its version")
  if (server.number < SERVER_VERSION_MIN * 10_000)
    throw new SchemaError(
      `The database runs PostgreSQL ${server.version}; grantgate needs ${SERVER_VERSION_MIN} or newer. Upgrade it, or name another in DATABASE_URL.`,
    )
  if (server.encoding !== "UTF8")
    throw new SchemaError(
      `The database's encoding is ${server.encoding}; grantgate needs UTF8. Create one with: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.`,
    )
}

/** What drizzle has written down, by the time that names a migration; empty for a new database. */
async function readApplied(db: Db): Promise<Map<number, string>> {
  const [table] = await db.execute<{ exists: boolean }>(
    sql`SELECT to_regclass('drizzle.__drizzle_migrations') IS NOT NULL AS exists`,
  )
  if (!table?.exists) return new Map()
  const rows = await db.execute<{ hash: string; created_at: string }>(
    sql`SELECT hash, created_at::text AS created_at FROM drizzle.__drizzle_migrations`,
  )
  return new Map(rows.map((row) => [Number(row.created_at), row.hash]))
}

/**
 * drizzle itself looks only at the newest applied: it would run on newer schemas and leave out a file older than that one.
 * @throws SchemaError
 */
function pendingMigrations(known: readonly Migration[], applied: ReadonlyMap<number, string>): Migration[] | "ahead" {
  const newestKnown = Math.max(...known.map((m) => m.createdAt))
  const strangers = [...applied.keys()].filter((at) => !known.some((m) => m.createdAt === at))
  if (strangers.some((at) => at > newestKnown)) return "ahead"
  if (strangers.length > 0)
    throw new SchemaError(
      "The database has migrations that this grantgate does not know, older than its newest. It belongs to another line of development; give this one another database.",
    )
  const changed = known.find((m) => applied.has(m.createdAt) && applied.get(m.createdAt) !== m.hash)
  if (changed)
    throw new SchemaError(
      `The migration ${changed.tag}.sql was changed after it had been applied to this database. Restore the file, and put the change in a new one.`,
    )
  const newestApplied = Math.max(0, ...applied.keys())
  const pending = known.filter((m) => !applied.has(m.createdAt))
  const late = pending.find((m) => m.createdAt < newestApplied)
  if (late)
    throw new SchemaError(
      `The migration ${late.tag}.sql is older than one already applied, and would be left out. Generate it again, so that it comes last.`,
    )
  return pending
}

/** Turns what went wrong into sentences; the statement and its parameters stay out of them, the server's own message goes in. */
function explain(error: unknown, known: readonly Migration[]): SchemaError {
  if (error instanceof SchemaError) return error
  const code = errorCode(error)
  const cause = error instanceof DrizzleQueryError ? error.cause : error
  const said = cause instanceof Error && cause.message !== "" ? cause.message : "no message"
  if (code === null || !/^[0-9A-Z]{5}$/.test(code))
    return new SchemaError(`The database cannot be reached: ${said}${code === null ? "" : ` (${code})`}.`, {
      cause: error,
    })
  if (code === "55P03")
    return new SchemaError(
      `Another process has been migrating this database for ${LOCK_WAIT_SECONDS} s. Wait for it, then start again.`,
      { cause: error },
    )
  const failed =
    error instanceof DrizzleQueryError ? known.find((m) => m.statements.some((s) => s === error.query)) : undefined
  const what = failed ? `The migration ${failed.tag}.sql failed` : "The database refused to be migrated"
  return new SchemaError(`${what}: ${said} (SQLSTATE ${code}). Nothing of it was applied.`, { cause: error })
}
