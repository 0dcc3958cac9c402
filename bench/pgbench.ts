/** pgbench beside the product: the same rows in the same tables, without a server in between. Only where it is installed. */
import { randomUUID } from "node:crypto"
import { readdirSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { Measured } from "./load.js"
import { findProgram } from "./load.js"
import { runProgram } from "./processes.js"

const debian = "/usr/lib/postgresql"
export const pgbench = findProgram("pgbench", debianFolders())

/** Newest first. */
function debianFolders(): string[] {
  try {
    return readdirSync(debian)
      .sort((a, b) => Number(b) - Number(a))
      .map((version) => `${debian}/${version}/bin`)
  } catch {
    return []
  }
}

export interface PgbenchRun {
  readonly databaseUrl: string
  readonly script: "one-row.sql" | "sixty-four-rows.sql"
  /** Submissions that one transaction of the script writes. */
  readonly rows: number
  readonly clients: number
  readonly seconds: number
  readonly awards: number
}

export async function runPgbench(run: PgbenchRun): Promise<Measured> {
  if (pgbench === null) throw new Error("pgbench is not installed")
  const { hostname, port, username, password, pathname } = new URL(run.databaseUrl)
  const { stdout, cpuSeconds } = await runProgram(
    pgbench,
    [
      ...["-n", "-M", "prepared", "-c", String(run.clients), "-j", "1", "-T", String(run.seconds)],
      ...["-D", `portal=${randomUUID()}`, "-D", `awards=${run.awards}`, "--random-seed=rand"],
      ...["-f", fileURLToPath(new URL(run.script, import.meta.url))],
      ...["-h", hostname, "-p", port || "5432", "-U", decodeURIComponent(username), pathname.slice(1)],
    ],
    { ms: (run.seconds + 30) * 1000, env: { PGPASSWORD: decodeURIComponent(password) } },
  )
  const number = (pattern: RegExp) => Number(pattern.exec(stdout)?.[1] ?? Number.NaN)
  const transactions = number(/transactions actually processed: (\d+)/)
  const perSecond = number(/tps = ([\d.]+)/)
  if (!(transactions > 0 && perSecond > 0)) throw new Error("pgbench gave no result")
  const averageMs = number(/latency average = ([\d.]+)/)
  return {
    answers: transactions * run.rows,
    seconds: transactions / perSecond,
    refused: number(/number of failed transactions: (\d+)/) || 0,
    broken: 0,
    // It says averages only.
    p50Ms: averageMs,
    p99Ms: Number.NaN,
    maxMs: Number.NaN,
    generatorCpuSeconds: cpuSeconds,
  }
}
