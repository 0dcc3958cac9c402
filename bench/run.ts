/**
 * `npm run bench`: every row in one run, round by round, so that whatever else the machine does falls on all of them alike. Prints the table and
 * writes it to results/ (a short or partial run only prints). Takes down what it started, however it ends; asserts rows, never speed.
 */
import { cp, mkdir, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { batchCells } from "./batch.js"
import { type Bench, type Cell, cells } from "./cells.js"
import { type BenchPostgres, benchFolder, openPostgres } from "./database.js"
import type { Figure } from "./figure.js"
import { heldCells } from "./held.js"
import { wrk } from "./load.js"
import { pgbench } from "./pgbench.js"
import { runProgram, stopAll } from "./processes.js"
import { describeMachine, type Result, ratiosOf, renderMarkdown } from "./report.js"
import { readSettings, type Settings } from "./settings.js"
import { runSoak } from "./soak.js"

const root = fileURLToPath(new URL("..", import.meta.url))
const folder = benchFolder(root)
let postgres: BenchPostgres | null = null

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void takeDown().finally(() => process.exit(130)))
}
try {
  await main(readSettings(process.argv.slice(2), process.env))
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 1
} finally {
  await takeDown()
}

async function main(settings: Settings): Promise<void> {
  const all = [...cells, ...batchCells, ...heldCells]
  const wanted = all.filter(
    ({ letter, key }) => settings.only === null || settings.only.includes(letter) || settings.only.includes(key),
  )
  if (wanted.length === 0) throw new Error(`--only names no row: a to h, or ${all.map(({ key }) => key).join(", ")}`)
  await mkdir(folder, { recursive: true })
  // A copy, so that a build in the middle of a run changes nothing.
  for (const part of ["dist", "drizzle", "package.json"])
    await cp(join(root, part), join(folder, part), { recursive: true })
  postgres = await openPostgres(settings.adminUrl, folder)
  const bench: Bench = { settings, postgres, root: folder, folder }
  const machine = describeMachine(await versions(postgres))
  if (settings.soakMinutes !== null) {
    await runSoak(bench, settings.soakMinutes, print)
    return
  }
  const results = await runRounds(bench, wanted)
  const shown = {
    rounds: settings.rounds,
    "seconds a cell": settings.seconds,
    "warm-up": settings.warmUpSeconds,
    awards: settings.awards,
    destinations: 1,
    LOG_LEVEL: "info, to a file",
    "the product's other settings": "defaults",
    load: wrk === null ? "autocannon, requests made ahead" : "wrk, one thread, on the same machine",
  }
  const markdown = renderMarkdown(machine, shown, results)
  print(markdown)
  if (settings.short || settings.only !== null) return
  const json = {
    at: new Date().toISOString(),
    machine,
    settings: shown,
    results: results.map(({ cell: { letter, key, label }, rounds }) => ({ letter, key, label, rounds })),
    ratios: ratiosOf(results),
  }
  await mkdir(join(root, "bench/results"), { recursive: true })
  await writeFile(join(root, "bench/results/latest.md"), markdown)
  await writeFile(join(root, "bench/results/latest.json"), `${JSON.stringify(json, null, 2)}\n`)
}

async function runRounds(bench: Bench, wanted: readonly Cell[]): Promise<Result[]> {
  const figures = new Map<Cell, Figure[]>(wanted.map((cell) => [cell, []]))
  for (let round = 1; round <= bench.settings.rounds; round++) {
    for (const cell of wanted) {
      const figure = await cell.run(bench)
      figures.get(cell)?.push(figure)
      const at = `round ${round}: ${Math.round(figure.perSecond)}/s`
      process.stderr.write(`${at}, p99 ${figure.p99Ms.toFixed(1)} ms: ${cell.letter}. ${cell.label}\n`)
    }
  }
  return wanted.map((cell) => ({ cell, rounds: figures.get(cell) ?? [] }))
}

async function versions(server: BenchPostgres): Promise<Record<string, string>> {
  const tool = pgbench === null ? null : await runProgram(pgbench, ["--version"], { ms: 5_000 })
  return {
    PostgreSQL: server.version,
    ...server.settings,
    pgbench: /[\d.]+/.exec(tool?.stdout ?? "")?.[0] ?? "not installed",
  }
}

async function takeDown(): Promise<void> {
  await stopAll()
  const started = postgres
  postgres = null
  await started?.stop()
  await rm(folder, { recursive: true, force: true })
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}
