/**
 * Runs once after the tests: removes the template and stops the Postgres, unless a failed test kept its database. Then the server stays,
 * to be looked at, until the next run begins.
 */
import postgres from "postgres"
import { readState, removeState, stopCluster } from "./postgres.js"

const state = await readState()
const admin = postgres(state.adminUrl, { max: 1, onnotice: () => {} })
const kept = await admin<{ datname: string }[]>`
  SELECT datname FROM pg_database WHERE datname LIKE ${`test\\_${state.runner.pid}\\_%`} ORDER BY datname`
await admin.unsafe(`DROP DATABASE IF EXISTS ${state.template} WITH (FORCE)`)
await admin.end()
if (state.cluster && (kept.length === 0 || process.env.CI)) {
  await stopCluster(state.cluster)
  await removeState(state)
} else if (state.cluster) {
  console.error(`Kept until the next run, for looking at: ${kept.map((row) => row.datname).join(", ")}`)
} else {
  await removeState(state)
}
