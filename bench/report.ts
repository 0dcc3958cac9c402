/** What a run found, as Markdown for people and JSON for comparison: machine, settings, each round, medians, and the ratios that count. */
import { cpus, totalmem } from "node:os"
import type { Cell } from "./cells.js"
import { type Figure, median } from "./figure.js"

export interface Result {
  readonly cell: Cell
  readonly rounds: readonly Figure[]
}

export interface Ratio {
  readonly name: string
  readonly value: number
  /** The bound, and on which side of it the value should be. */
  readonly goal: string
  readonly met: boolean
}

const perSecond = (figure: Figure) => figure.perSecond

/** Ratios within each round, since rounds differ more than cells; the median of those. */
export function ratiosOf(results: readonly Result[]): Ratio[] {
  const ratio = (name: string, a: string, b: string, bound: number, side: "least" | "below", read = perSecond) => {
    const [over, under] = [a, b].map((key) => results.find(({ cell }) => cell.key === key)?.rounds ?? [])
    const values = (over ?? []).flatMap((figure, i) => (under?.[i] ? [read(figure) / read(under[i])] : []))
    if (values.length === 0) return []
    const value = median(values)
    const met = side === "least" ? value >= bound : value < bound
    return [{ name, value, goal: side === "least" ? `≥ ${bound}` : `< ${bound}`, met }]
  }
  return [
    ...ratio("product / pgbench, one transaction a request", "product-128", "pgbench", 2.2, "least"),
    ...ratio(
      "product / itself with a transaction per request, 128 connections",
      "product-128",
      "group-1-128",
      3,
      "least",
    ),
    ...ratio("product / itself with a transaction per request, 1 connection", "product-1", "group-1-1", 1, "least"),
    ...ratio("product / textbook server", "product-128", "textbook", 8, "least"),
    ...ratio("replays / bare Fastify POST", "replays", "bare", 0.5, "least"),
    ...ratio("batch / set-based SQL alone", "batch", "pgbench-sets", 0.5, "least"),
    ...ratio("batch / a transaction per request, 128 connections", "batch", "group-1-128", 5, "least"),
    ...ratio("one award / a thousand awards", "hot", "product-128", 0.7, "least"),
    ...ratio("one award with a ceiling / a thousand awards", "hot-ceiling", "product-128", 0.7, "least"),
    ...ratio("throughput, nothing held / an award and a key held", "free", "held", 2, "below"),
    ...ratio("p99, an award and a key held / nothing held", "held", "free", 2, "below", (figure) => figure.p99Ms),
  ]
}

export function describeMachine(versions: Record<string, string>): Record<string, string> {
  const [cpu] = cpus()
  return {
    cores: String(cpus().length),
    cpu: cpu?.model.trim() ?? "unknown",
    memory: `${Math.round(totalmem() / 1024 ** 3)} GB`,
    system: `${process.platform} ${process.arch}`,
    node: process.version,
    ...versions,
  }
}

export function renderMarkdown(
  machine: Record<string, string>,
  settings: Record<string, unknown>,
  results: readonly Result[],
): string {
  const list = (record: Record<string, unknown>) =>
    Object.entries(record)
      .map(([name, value]) => `${name} ${String(value)}`)
      .join(" · ")
  const rows = results.map(({ cell, rounds }) => {
    const middle = (read: (figure: Figure) => number | null, digits = 0) => {
      const value = median(rounds.flatMap((figure) => read(figure) ?? []))
      return Number.isNaN(value) ? "–" : value.toFixed(digits)
    }
    return [
      `${cell.letter}. ${cell.label}`,
      `**${middle(perSecond)}**`,
      rounds.map((figure) => Math.round(figure.perSecond)).join(", "),
      middle((f) => f.p50Ms, 1),
      middle((f) => f.p99Ms, 1),
      middle((f) => f.serverCpuMs, 2),
      middle((f) => f.postgresCpuMs, 2),
      middle((f) => f.generatorCpuMs, 2),
      middle((f) => f.serverRssMb),
    ]
  })
  const head = [
    "row",
    "a second",
    "rounds",
    "p50 ms",
    "p99 ms",
    "server CPU ms",
    "Postgres CPU ms",
    "load CPU ms",
    "server MB",
  ]
  const table = (lines: readonly (readonly string[])[]) => lines.map((line) => `| ${line.join(" | ")} |`)
  return [
    "# The last run",
    "",
    `Machine: ${list(machine)}`,
    "",
    `Settings: ${list(settings)}`,
    "",
    "Medians over the rounds; CPU is per request (for pgbench's sets, per row). What each row is: see [the README](../README.md).",
    "",
    ...table([head, head.map((_, i) => (i === 0 ? "---" : "---:")), ...rows]),
    "",
    ...table([
      ["ratio", "value", "goal", ""],
      ["---", "---:", "---:", "---"],
      ...ratiosOf(results).map(({ name, value, goal, met }) => [
        name,
        value.toFixed(2),
        goal,
        met ? "met" : "**missed**",
      ]),
    ]),
    "",
  ].join("\n")
}
