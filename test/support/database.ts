/**
 * A database of its own for a test: a clone of the migrated template, made in a few milliseconds and dropped when the test has passed.
 * The database of a failed test is kept, and its URL printed.
 */
import { basename } from "node:path"
import postgres from "postgres"
import type { Test } from "tap"
import { readState } from "./postgres.js"

/** How long a clone waits for the template to be free. */
const CLONE_MS = 20_000
let made = 0

/**
 * @param t the test that owns the database, or the file's own `t`
 * @param options.migrated false: an empty database, without the schema
 * @returns the URL of a superuser
 */
export async function createDatabase(
  t: Pick<Test, "teardown" | "passing" | "comment">,
  options: { migrated?: boolean } = {},
): Promise<{ url: string }> {
  const state = await readState()
  const file = basename(process.argv[1] ?? "", ".test.ts")
    .replaceAll(/[^a-z0-9]+/gi, "_")
    .toLowerCase()
  const name = `test_${state.runner.pid}_${file}_${process.pid}_${++made}`.slice(0, 63)
  const url = new URL(state.adminUrl)
  url.pathname = `/${name}`
  const template = options.migrated === false ? "template0" : state.template
  await withAdmin(state.adminUrl, (admin) => clone(admin, name, template))
  t.teardown(async () => {
    if (t.passing())
      await withAdmin(state.adminUrl, (admin) => admin.unsafe(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`))
    else t.comment(`kept the database of this failed test: ${url.href}`)
  })
  return { url: url.href }
}

/** Tries again while the template is in use (55006), by a server's own worker for instance. */
async function clone(admin: postgres.Sql, name: string, template: string): Promise<void> {
  const deadline = Date.now() + CLONE_MS
  for (;;) {
    try {
      await admin.unsafe(`CREATE DATABASE ${name} TEMPLATE ${template}`)
      return
    } catch (error) {
      if ((error as { code?: string }).code !== "55006" || Date.now() > deadline) throw error
      // Postgres itself has waited 5 s before it says 55006.
    }
  }
}

async function withAdmin(url: string, work: (admin: postgres.Sql) => Promise<unknown>): Promise<void> {
  const admin = postgres(url, { max: 1, onnotice: () => {} })
  try {
    await work(admin)
  } finally {
    await admin.end({ timeout: 1 })
  }
}
