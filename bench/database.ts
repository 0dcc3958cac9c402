/**
 * The Postgres of a run: the embedded one with its product settings (fsync on), or the server that BENCH_DATABASE_ADMIN_URL names. Each cell gets
 * a new database, cloned from a migrated template with one destination, so that each accepted request also writes a row that waits to be delivered.
 */
import { randomBytes } from "node:crypto"
import { readFile, rm } from "node:fs/promises"
import { dirname, join } from "node:path"
import postgres from "postgres"
import { startEmbedded } from "../src/db/embedded.js"
import { migrateDatabase } from "../src/db/migrate.js"
import { cpuSecondsOf, cpuSecondsOfFamily, parentOf } from "./processes.js"

export interface BenchPostgres {
  readonly version: string
  readonly settings: Readonly<Record<string, string>>
  /** A new migrated database. @returns its URL */
  clone(): Promise<string>
  drop(url: string): Promise<void>
  /** CPU time of all its processes so far; null when they are not on this machine. */
  cpuSeconds(): Promise<number | null>
  stop(): Promise<void>
}

/** Rows of each table that one accepted submission writes to; `inOrder` when they agree with each other and the totals with the ledger. */
export interface Rows {
  readonly claims: number
  readonly inOrder: boolean
}

const shown = ["fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "max_connections"]

export async function openPostgres(adminUrl: string | null, folder: string): Promise<BenchPostgres> {
  const embedded = adminUrl === null ? await startOwn(join(folder, "postgres")) : null
  const url = adminUrl ?? (embedded?.url as string)
  const admin = postgres(url, { max: 1, onnotice: () => {}, connection: { application_name: "bench" } })
  const prefix = `bench_${randomBytes(4).toString("hex")}`
  const urlOf = (name: string) => Object.assign(new URL(url), { pathname: `/${name}` }).href
  const drop = (name: string) => admin.unsafe(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
  const template = `${prefix}_template`
  const stop = async () => {
    await drop(template).catch(() => {})
    await admin.end({ timeout: 1 })
    await embedded?.stop()
  }
  try {
    await admin.unsafe(`CREATE DATABASE ${template}`)
    await prepareTemplate(urlOf(template))
    const [backend] = await admin<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`
    const postmaster = backend ? await parentOf(backend.pid, "postgres") : null
    const settings = await admin<{ name: string; value: string }[]>`
      SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY(${shown})`
    const [server] = await admin<{ version: string }[]>`SELECT current_setting('server_version') AS version`
    let clones = 0
    return {
      version: server?.version ?? "unknown",
      settings: Object.fromEntries(settings.map(({ name, value }) => [name, value])),
      async clone() {
        const name = `${prefix}_${++clones}`
        await admin.unsafe(`CREATE DATABASE ${name} TEMPLATE ${template}`)
        await admin.unsafe("CHECKPOINT")
        return urlOf(name)
      },
      drop: async (cloned) => void (await drop(new URL(cloned).pathname.slice(1))),
      cpuSeconds: async () =>
        postmaster === null ? null : (await cpuSecondsOf(postmaster, true)) + (await cpuSecondsOfFamily(postmaster)),
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

/** Counts once nothing moves any more: a load generator leaves requests behind that are still being answered. */
export async function countRows(url: string): Promise<Rows> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    for (let before = -1; ; ) {
      const [row] = await sql<{ claims: number; others: number[]; balanced: boolean }[]>`
        SELECT (SELECT count(*)::int FROM claims) AS claims,
          ARRAY[(SELECT count(*)::int FROM answers), (SELECT count(*)::int FROM disbursements), (SELECT count(*)::int FROM outbox),
            (SELECT count(*)::int FROM outbox_delivery)] AS others,
          (SELECT coalesce(sum(amount_cents), 0) FROM disbursements) = (SELECT coalesce(sum(disbursed_cents), 0) FROM awards) AS balanced`
      if (!row) throw new Error("a count has a row")
      if (row.claims === before)
        return { claims: row.claims, inOrder: row.balanced && row.others.every((n) => n === row.claims) }
      before = row.claims
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
  } finally {
    await sql.end({ timeout: 1 })
  }
}

async function startOwn(dataDir: string): Promise<{ url: string; stop(): Promise<void> }> {
  const started = await startEmbedded({
    dataDir,
    log: { info: () => {}, warn: (text) => process.stderr.write(`${text}\n`) },
  })
  return {
    url: started.url,
    async stop() {
      await started.stop()
      // Where another user runs Postgres, the data may lie elsewhere.
      const elsewhere = await readFile(join(dataDir, "location"), "utf8").catch(() => null)
      if (elsewhere !== null && /\/data-[0-9a-f]+$/.test(elsewhere.trim()))
        await rm(elsewhere.trim(), { recursive: true, force: true })
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

async function prepareTemplate(url: string): Promise<void> {
  await migrateDatabase(url)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  await sql`INSERT INTO destinations (name) VALUES ('bench')`
  await sql.end({ timeout: 1 })
}

/** The folder of one run, out of git's sight. */
export const benchFolder = (root: string): string => join(dirname(`${root}/x`), ".bench", String(process.pid))
