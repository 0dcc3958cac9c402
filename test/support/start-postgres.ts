/**
 * Runs once before the tests: builds the executable that some of them start, stops what a killed run left behind, starts a Postgres (or takes the one it is told to) and migrates the
 * database that each test file clones. Ends with an exit code; the server goes on.
 */
import { execFileSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import postgres from "postgres"
import { migrateDatabase } from "../../src/db/migrate.js"
import { processStart, startCluster, stopCluster, sweep, writeState } from "./postgres.js"

// Once, and only what has changed: from the sources each start of a process would take seconds.
const root = fileURLToPath(new URL("../..", import.meta.url))
execFileSync("npm", ["run", "--silent", "build"], { cwd: root, stdio: "inherit" })

await sweep()
const given = process.env.GRANTGATE_TEST_DATABASE_URL
const started = given ? { url: given, cluster: null } : await startCluster()
const runner = { pid: process.ppid, startedAt: (await processStart(process.ppid)) ?? "" }
const template = `grantgate_template_${runner.pid}`
const admin = postgres(started.url, { max: 1, onnotice: () => {} })
try {
  // Written first: a run that is killed here is still cleaned up by the next.
  await writeState({ runner, adminUrl: started.url, template, cluster: started.cluster })
  await admin.unsafe(`DROP DATABASE IF EXISTS ${template} WITH (FORCE)`)
  await admin.unsafe(`CREATE DATABASE ${template} TEMPLATE template0 ENCODING 'UTF8'`)
  const url = new URL(started.url)
  url.pathname = `/${template}`
  await migrateDatabase(url.href)
  // Nobody can connect to it any more, so that a clone never finds it in use.
  await admin.unsafe(`ALTER DATABASE ${template} ALLOW_CONNECTIONS false`)
} catch (error) {
  console.error(error)
  if (started.cluster) await stopCluster(started.cluster)
  process.exitCode = 1
} finally {
  await admin.end()
}
