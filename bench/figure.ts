/** One measured cell, and the check that what was measured is what was recorded: a fast refusal is never a figure. */
import type { Measured } from "./load.js"

export interface Figure {
  readonly perSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly maxMs: number
  readonly answers: number
  /** Rows that appeared while it was measured. */
  readonly rows: number
  /** How the product says the requests ended. */
  readonly outcomes: Readonly<Record<string, number>>
  /** CPU milliseconds a request; null where it cannot be known. */
  readonly serverCpuMs: number | null
  readonly postgresCpuMs: number | null
  readonly generatorCpuMs: number
  readonly serverRssMb: number | null
}

export interface Expected {
  /** Rows of `claims` before and after. */
  readonly before: number
  readonly after: number
  /** All tables agree with each other and with the totals. */
  readonly inOrder: boolean
  /** Whether each answer stands for a new row, for none, or nothing is recorded at all. */
  readonly each: "new" | "known" | "nothing"
  /** Requests that may have been under way when the generator stopped listening. */
  readonly underWay: number
}

/** @throws Error when answers, rows and outcomes do not agree */
export function check(name: string, measured: Measured, expected: Expected): void {
  const { answers, refused, broken } = measured
  const rows = expected.after - expected.before
  const fail = (why: string): never => {
    throw new Error(`${name} is no figure: ${why} (${answers} answers, ${rows} rows)`)
  }
  if (answers === 0) fail("nothing was answered")
  if (refused > 0 || broken > 0) fail(`${refused} requests were refused and ${broken} connections or requests failed`)
  if (!expected.inOrder) fail("the tables do not agree")
  const added = expected.each === "new" ? answers : 0
  if (rows < added || rows > added + expected.underWay) fail(`${added} new rows were expected`)
}

export function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b)
  const middle = sorted.length / 2
  if (sorted.length === 0) return Number.NaN
  return Number.isInteger(middle)
    ? ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2
    : (sorted[Math.floor(middle)] as number)
}
