/**
 * The schema: migrated by any number of processes at once, refused when it is not this version's, in step with the tables in code, and
 * append-only where it says so.
 */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import postgres from "postgres"
import t, { type Test } from "tap"
import { checkSchema, migrateDatabase, requireCurrentSchema } from "../../src/db/migrate.js"
import { createDatabase } from "../support/database.js"

const root = fileURLToPath(new URL("../..", import.meta.url))
/** Enough for several processes to reach the lock while another holds it. */
const PROCESSES = 4

interface Journal {
  entries: { idx: number; version: string; when: number; tag: string; breakpoints: boolean }[]
}

t.test("twenty that migrate an empty database at once all succeed, and one of them applies everything", async (t) => {
  const { url } = await createDatabase(t, { migrated: false })
  const results = await Promise.all(Array.from({ length: 20 }, () => migrateDatabase(url)))
  const journal = await readJournal(join(root, "drizzle"))
  t.same(
    results.map((result) => result.applied).filter((applied) => applied > 0),
    [journal.entries.length],
  )
  t.equal(await checkSchema(url), "current")
})

t.test("processes of their own that migrate at once all succeed", async (t) => {
  const { url } = await createDatabase(t, { migrated: false })
  const module = new URL("../../src/db/migrate.ts", import.meta.url).href
  const script = `const { migrateDatabase } = await import(${JSON.stringify(module)}); await migrateDatabase(process.argv[1])`
  const exits = Array.from({ length: PROCESSES }, async () => {
    const args = ["--import", import.meta.resolve("tsx"), "--input-type=module", "-e", script, url]
    const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] })
    return (await once(child, "exit"))[0]
  })
  t.same(await Promise.all(exits), Array(PROCESSES).fill(0))
  t.equal(await checkSchema(url), "current")
})

t.test("a schema from a newer grantgate is refused, whether or not this one may migrate", async (t) => {
  const { url } = await createDatabase(t)
  await query(url, "INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES ('newer', 4102444800000)")
  t.equal(await checkSchema(url), "ahead")
  await t.rejects(requireCurrentSchema(url), { name: "SchemaError", message: /newer grantgate/ })
  await t.rejects(migrateDatabase(url), { name: "SchemaError", message: /newer grantgate/ })
})

t.test(
  "an older schema is refused by name of the remedy where this grantgate may not migrate, and changes nothing",
  async (t) => {
    const { url } = await createDatabase(t, { migrated: false })
    t.equal(await checkSchema(url), "behind")
    await t.rejects(requireCurrentSchema(url), { name: "SchemaError", message: /`grantgate migrate`/ })
    t.same(await query(url, "SELECT 1 FROM pg_namespace WHERE nspname = 'drizzle'"), [])
  },
)

t.test("a role that may create nothing can start on a current schema", async (t) => {
  const { url } = await createDatabase(t)
  const role = `reader_${process.pid}_${Date.now()}`
  await query(url, `CREATE ROLE ${role} LOGIN PASSWORD 'reader'`)
  t.teardown(() => query(url, `DROP OWNED BY ${role}; DROP ROLE ${role}`))
  await query(url, `GRANT USAGE ON SCHEMA drizzle TO ${role}; GRANT SELECT ON drizzle.__drizzle_migrations TO ${role}`)
  const asRole = new URL(url)
  asRole.username = role
  asRole.password = "reader"
  t.same(await migrateDatabase(asRole.href), { applied: 0 })
})

t.test("a migration that fails says which file and what Postgres said, and leaves nothing behind", async (t) => {
  const { url } = await createDatabase(t)
  const folder = await copyMigrations(t)
  await addMigration(folder, "0900_good", "CREATE TABLE half_done (id int)", 1)
  await addMigration(folder, "0901_bad", "ALTER TABLE claims DROP COLUMN no_such_column", 2)
  const error = await migrateDatabase(url, folder).then(
    () => null,
    (error: Error) => error,
  )
  t.match(error, { name: "SchemaError", message: /0901_bad\.sql failed: column "no_such_column" .* does not exist/ })
  t.notMatch(error?.message, /postgres:\/\//)
  t.same(await query(url, "SELECT to_regclass('half_done') AS found"), [{ found: null }])
  t.equal(await checkSchema(url), "current")
})

t.test("a file that is older than one already applied is refused, not left out", async (t) => {
  const { url } = await createDatabase(t)
  const folder = await copyMigrations(t)
  await addMigration(folder, "0900_late", "CREATE TABLE late (id int)", -1)
  await t.rejects(migrateDatabase(url, folder), { name: "SchemaError", message: /0900_late\.sql is older/ })
})

t.test("a file that was changed after it was applied is refused", async (t) => {
  const { url } = await createDatabase(t)
  const folder = await copyMigrations(t)
  const tag = (await readJournal(folder)).entries[0]?.tag ?? ""
  await writeFile(join(folder, `${tag}.sql`), `${await readFile(join(folder, `${tag}.sql`), "utf8")}\n-- edited`)
  await t.rejects(migrateDatabase(url, folder), {
    name: "SchemaError",
    message: `The migration ${tag}.sql was changed`,
  })
})

t.test("a database that is not there, or is not UTF-8, is refused in a sentence", async (t) => {
  const { url } = await createDatabase(t, { migrated: false })
  const nowhere = new URL(url)
  nowhere.port = "1"
  await t.rejects(migrateDatabase(nowhere.href), { name: "SchemaError", message: /cannot be reached.*ECONNREFUSED/ })
  await query(url, "CREATE DATABASE ascii_only_test ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
  t.teardown(() => query(url, "DROP DATABASE ascii_only_test"))
  const ascii = new URL(url)
  ascii.pathname = "/ascii_only_test"
  await t.rejects(migrateDatabase(ascii.href), { name: "SchemaError", message: /SQL_ASCII.*UTF8/ })
})

t.test("what is recorded cannot be changed, deleted or truncated, not even by a superuser", async (t) => {
  const { url } = await createDatabase(t)
  const tables = {
    ...{ answers: "status = 200", disbursements: "id = id", outbox: "id = id", conflicts: "id = id" },
    ...{
      award_rules: "rules_version = 1",
      operator_actions: "id = id",
      accounts: "currency = 'EUR'",
      balance_events: "id = id",
    },
  }
  for (const [table, change] of Object.entries(tables)) {
    for (const statement of [`UPDATE ${table} SET ${change}`, `DELETE FROM ${table}`, `TRUNCATE ${table}`])
      await t.rejects(query(url, statement), { code: "23001", message: /append-only/ }, statement)
  }
})

t.test("the migrations are those of the tables in code: generating finds nothing new", async (t) => {
  const folder = await copyMigrations(t)
  const before = await readdir(folder)
  const config = join(folder, "..", "drizzle.config.json")
  const schema = join(root, "src", "db", "tables", "*.ts")
  // It takes only a folder relative to where it runs, and ends with 0 when it fails.
  await writeFile(config, JSON.stringify({ dialect: "postgresql", schema, out: "./drizzle" }))
  const kit = join(root, "node_modules", "drizzle-kit", "bin.cjs")
  const child = spawn(
    "/usr/bin/env",
    ["-i", `PATH=${process.env.PATH}`, process.execPath, kit, "generate", `--config=${config}`],
    {
      cwd: join(folder, ".."),
      stdio: ["ignore", "pipe", "pipe"],
    },
  )
  let output = ""
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      output += chunk
    })
  const [code] = await once(child, "close")
  t.equal(code, 0, output)
  t.same(await readdir(folder), before)
  t.match(output, "No schema changes")
})

async function query(url: string, statement: string): Promise<unknown[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    return [...(await sql.unsafe(statement))]
  } finally {
    await sql.end()
  }
}

async function copyMigrations(t: Test): Promise<string> {
  const parent = await mkdtemp(join(tmpdir(), "grantgate-migrations-"))
  t.teardown(() => rm(parent, { recursive: true, force: true }))
  const folder = join(parent, "drizzle")
  await cp(join(root, "drizzle"), folder, { recursive: true })
  return folder
}

async function readJournal(folder: string): Promise<Journal> {
  return JSON.parse(await readFile(join(folder, "meta", "_journal.json"), "utf8")) as Journal
}

/** @param ms when it was made, after the newest of the folder */
async function addMigration(folder: string, tag: string, statement: string, ms: number): Promise<void> {
  const journal = await readJournal(folder)
  const when = Math.max(...journal.entries.map((entry) => entry.when)) + ms
  journal.entries.push({ idx: journal.entries.length, version: "7", when, tag, breakpoints: true })
  await writeFile(join(folder, `${tag}.sql`), statement)
  await writeFile(join(folder, "meta", "_journal.json"), JSON.stringify(journal))
}
