/** What a run may be told, and its defaults. The only reader of the command line and the environment in this folder. */
import { parseArgs } from "node:util"

export interface Settings {
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly rounds: number
  /** Letters or keys of the rows to run; null: all. */
  readonly only: readonly string[] | null
  readonly short: boolean
  /** Run for this many minutes and watch memory; null: the table. */
  readonly soakMinutes: number | null
  readonly adminUrl: string | null
  readonly awards: number
}

/** @throws Error when an option is not known or not a number */
export function readSettings(args: readonly string[], env: NodeJS.ProcessEnv): Settings {
  const { values } = parseArgs({
    args: [...args],
    options: { only: { type: "string" }, short: { type: "boolean", default: false }, soak: { type: "string" } },
  })
  const { short } = values
  return {
    seconds: number("BENCH_SECONDS", env.BENCH_SECONDS, short ? 2 : 8),
    warmUpSeconds: number("BENCH_WARM_UP_SECONDS", env.BENCH_WARM_UP_SECONDS, short ? 1 : 3),
    rounds: number("BENCH_ROUNDS", env.BENCH_ROUNDS, short ? 1 : 3),
    only: values.only?.split(",").map((letter) => letter.trim()) ?? null,
    short,
    soakMinutes: values.soak === undefined ? null : number("--soak", values.soak, 10),
    adminUrl: env.BENCH_DATABASE_ADMIN_URL || null,
    awards: 1_000,
  }
}

function number(name: string, text: string | undefined, fallback: number): number {
  if (text === undefined || text === "") return fallback
  const value = Number(text)
  if (!(value > 0 && value < 10_000)) throw new Error(`${name} must be a number above 0`)
  return value
}
