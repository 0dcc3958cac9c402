/**
 * `npm run test:crash`: KILLS servers (20 if absent) killed under load on a Postgres of its own, then the books compared. The last line is
 * `N passed, N failed, N skipped`; the exit code is 1 if anything failed. Ends only what it started.
 */
import { migrateDatabase } from "../../src/db/migrate.js"
import { startCluster, stopCluster } from "../support/postgres.js"
import { killUnderLoad } from "./kill-under-load.js"

const kills = Number(process.env.KILLS ?? "20")
if (!Number.isInteger(kills) || kills < 1) throw new Error("KILLS is a number of kills")
/** A start, a life and some waiting for each kill. */
const wholeMs = 60_000 + kills * 20_000

const undo: (() => Promise<unknown>)[] = []
let passed = 0
let failed = 0
const check = (title: string, faults: readonly string[]): void => {
  if (faults.length === 0) passed += 1
  else failed += 1
  console.log(`${faults.length === 0 ? "ok  " : "FAIL"} ${title}`)
  for (const fault of faults.slice(0, 20)) console.log(`     ${fault}`)
}

async function finish(): Promise<never> {
  for (const step of undo.reverse()) await step().catch((error: unknown) => console.error(error))
  console.log(`${passed} passed, ${failed} failed, 0 skipped`)
  process.exit(failed > 0 ? 1 : 0)
}

const late = setTimeout(() => {
  check(`it ends within ${wholeMs / 1000} s`, ["it did not"])
  void finish()
}, wholeMs)
try {
  const { url, cluster } = await startCluster()
  undo.push(() => stopCluster(cluster))
  await migrateDatabase(url)
  let killed = 0
  const { kept, retries, wrong, faults } = await killUnderLoad((work) => undo.push(work), url, {
    kills,
    clients: 8,
    onKill: (how) => console.log(`     ${++killed}/${kills} killed ${how}`),
  })
  console.log(`     ${kept.length} submissions, ${retries} retries`)
  check("what was acknowledged is what is recorded, each key once, the totals exact", faults)
  check("no answer but success, or to come again with the same key", wrong)
  check("the load was a load", kept.length > kills && retries > 0 ? [] : [`${kept.length} keys, ${retries} retries`])
} catch (error) {
  check("it runs to its end", [String(error)])
}
clearTimeout(late)
await finish()
