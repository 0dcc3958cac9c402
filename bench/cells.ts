/**
 * The rows of the table. Each cell has a database and a server of its own, is warmed up, measured, and checked against the rows it left.
 * `letter` is what `--only` names; `key` names the row in ratios and in the JSON.
 */
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { type BenchPostgres, countRows } from "./database.js"
import { check, type Expected, type Figure } from "./figure.js"
import { type Generator, generate, type Load, type Measured, wrk } from "./load.js"
import { pgbench, runPgbench } from "./pgbench.js"
import { type Server, startServer } from "./processes.js"
import { type Product, startProduct } from "./product.js"
import type { Settings } from "./settings.js"

export interface Bench {
  readonly settings: Settings
  readonly postgres: BenchPostgres
  /** The folder of the built product. */
  readonly root: string
  /** Where this run keeps its files. */
  readonly folder: string
}

export interface Cell {
  readonly letter: string
  readonly key: string
  readonly label: string
  run(bench: Bench): Promise<Figure>
}

/** Keys that are sent again and again: fewer than a server remembers as recorded lately, and more than it does. */
const recentKeys = 4_000
const forgottenKeys = 21_000
let seeds = 0

export const cells: readonly Cell[] = [
  ...[1, 32, 128, 256].map((connections) => submissions("a", connections)),
  ...(wrk === null ? [] : [submissions("a", 128, {}, "autocannon")]),
  replays(recentKeys, "replays", "replays of keys recorded lately, 128 connections"),
  replays(forgottenKeys, "replays-forgotten", "replays of keys the server no longer remembers, 128 connections"),
  ...[1, 128].map((connections) => submissions("c", connections, { GRANTGATE_GROUP_MAX: "1" })),
  hotAward("hot", "every one to one award, 128 connections", null),
  hotAward("hot-ceiling", "every one to one award with a ceiling, 128 connections", Number.MAX_SAFE_INTEGER),
  other("d", "textbook", "textbook server, 128 connections", "textbook-server.ts"),
  other("e", "bare", "bare Fastify POST, 128 connections", "bare-server.ts"),
  ...(pgbench === null
    ? []
    : [
        sql("pgbench", "pgbench, one transaction a request, 8 clients", "one-row.sql", 1, 8),
        sql("pgbench-sets", "pgbench, 64 rows a transaction, 2 clients", "sixty-four-rows.sql", 64, 2),
      ]),
]

function submissions(
  letter: string,
  connections: number,
  env: Record<string, string> = {},
  generator?: Generator,
): Cell {
  const alone = env.GRANTGATE_GROUP_MAX === "1"
  const shape = alone ? "product, a transaction per request" : "product"
  return {
    letter,
    key: `${alone ? "group-1" : "product"}-${connections}${generator === "autocannon" ? "-autocannon" : ""}`,
    label: `${shape}, new submissions, ${plural(connections)}${generator ? `, ${generator}` : ""}`,
    run: (bench) =>
      withProduct(bench, env, async (product, databaseUrl) => {
        const load = { ...loadOf(bench, product.submissions, product.token), connections }
        await generate({ ...load, seconds: bench.settings.warmUpSeconds })
        const measure = () => generate({ ...load, seed: ++seeds }, generator)
        return measureRows(
          bench,
          `${letter} at ${plural(connections)}`,
          databaseUrl,
          product,
          measure,
          "new",
          connections,
        )
      }),
  }
}

/** @param ceilingCents of the one award; null: it has no rules */
function hotAward(key: string, label: string, ceilingCents: number | null): Cell {
  return {
    letter: "i",
    key,
    label: `product, new submissions, ${label}`,
    run: (bench) =>
      withProduct(bench, {}, async (product, databaseUrl) => {
        if (ceilingCents !== null) await product.putAward("A-2025-0001", ceilingCents)
        const load = { ...loadOf(bench, product.submissions, product.token), connections: 128, awards: 1 }
        await generate({ ...load, seconds: bench.settings.warmUpSeconds })
        const measure = () => generate({ ...load, seed: ++seeds })
        return measureRows(bench, key, databaseUrl, product, measure, "new", 128)
      }),
  }
}

function replays(keys: number, key: string, label: string): Cell {
  return {
    letter: "b",
    key,
    label: `product, ${label}`,
    run: (bench) =>
      withProduct(bench, {}, async (product, databaseUrl) => {
        const load = { ...loadOf(bench, product.submissions, product.token), connections: 128 }
        const cycle = bench.settings.short ? 1_000 : keys
        // Recorded first, a stretch at a time; what was under way at the end of one is sent again in the next.
        for (let tries = 0, from = 0; from < cycle; tries++) {
          if (tries === 60) throw new Error("the keys to replay could not be recorded")
          await generate({ ...load, cycle, from, seconds: 2 })
          from = (await countRows(databaseUrl)).claims
        }
        await generate({ ...load, cycle, seconds: bench.settings.warmUpSeconds })
        return measureRows(bench, key, databaseUrl, product, () => generate({ ...load, cycle }), "known", 128)
      }),
  }
}

function other(letter: string, key: string, label: string, file: string): Cell {
  return {
    letter,
    key,
    label,
    async run(bench) {
      const databaseUrl = await bench.postgres.clone()
      const server = await startServer(
        ["--import", "tsx", fileURLToPath(new URL(file, import.meta.url))],
        { DATABASE_URL: databaseUrl },
        { readyPath: "/readyz", outputFile: join(bench.folder, "server.log") },
      )
      try {
        const load = { ...loadOf(bench, `${server.url}/v1/submissions`, "none"), connections: 128 }
        await generate({ ...load, seconds: bench.settings.warmUpSeconds })
        const each = key === "bare" ? "nothing" : "new"
        return await measureRows(bench, key, databaseUrl, server, () => generate({ ...load, seed: ++seeds }), each, 128)
      } finally {
        await server.stop()
        await bench.postgres.drop(databaseUrl)
      }
    },
  }
}

function sql(
  key: string,
  label: string,
  script: "one-row.sql" | "sixty-four-rows.sql",
  rows: number,
  clients: number,
): Cell {
  return {
    letter: "f",
    key,
    label,
    async run(bench) {
      const databaseUrl = await bench.postgres.clone()
      try {
        const { awards, seconds, warmUpSeconds } = bench.settings
        const run = { databaseUrl, script, rows, clients, awards }
        await runPgbench({ ...run, seconds: warmUpSeconds })
        return await measureRows(bench, key, databaseUrl, null, () => runPgbench({ ...run, seconds }), "new", 0)
      } finally {
        await bench.postgres.drop(databaseUrl)
      }
    },
  }
}

/** Runs `work` with a product of its own on a database of its own. */
export async function withProduct<T>(
  bench: Bench,
  env: Record<string, string>,
  work: (product: Product, databaseUrl: string) => Promise<T>,
): Promise<T> {
  const databaseUrl = await bench.postgres.clone()
  const product = await startProduct(bench.root, databaseUrl, env, join(bench.folder, "server.log"))
  try {
    return await work(product, databaseUrl)
  } finally {
    product.forgetOutput()
    await product.stop()
    await bench.postgres.drop(databaseUrl)
  }
}

export function loadOf(bench: Bench, url: string, token: string): Load {
  const { seconds, awards } = bench.settings
  return { url, token, connections: 128, seconds, awards, seed: ++seeds, cycle: 0, from: 0 }
}

/** Measures between two counts, and checks one against the other. */
export async function measureRows(
  bench: Bench,
  name: string,
  databaseUrl: string,
  server: Server | Product | null,
  measure: () => Promise<Measured>,
  each: Expected["each"],
  underWay: number,
): Promise<Figure> {
  const product = server !== null && "outcomes" in server ? server : null
  const look = async () => ({
    claims: (await countRows(databaseUrl)).claims,
    outcomes: (await product?.outcomes()) ?? {},
    server: (await server?.cpuSeconds()) ?? null,
    postgres: await bench.postgres.cpuSeconds(),
  })
  const before = await look()
  const measured = await measure()
  const [server_, postgres_] = [(await server?.cpuSeconds()) ?? null, await bench.postgres.cpuSeconds()]
  const rss = (await server?.rssBytes()) ?? null
  const { claims, inOrder } = await countRows(databaseUrl)
  const after = { outcomes: (await product?.outcomes()) ?? {}, server: server_, postgres: postgres_ }
  check(name, measured, { before: before.claims, after: claims, inOrder, each, underWay })
  const perAnswer = (from: number | null, to: number | null) =>
    from === null || to === null ? null : ((to - from) * 1000) / measured.answers
  return {
    perSecond: measured.answers / measured.seconds,
    p50Ms: measured.p50Ms,
    p99Ms: measured.p99Ms,
    maxMs: measured.maxMs,
    answers: measured.answers,
    rows: claims - before.claims,
    outcomes: Object.fromEntries(
      Object.entries(after.outcomes)
        .map(([outcome, count]) => [outcome, count - (before.outcomes[outcome] ?? 0)] as const)
        .filter(([, count]) => count > 0),
    ),
    serverCpuMs: perAnswer(before.server, after.server),
    postgresCpuMs: perAnswer(before.postgres, after.postgres),
    generatorCpuMs: (measured.generatorCpuSeconds * 1000) / measured.answers,
    serverRssMb: rss === null ? null : rss / 1024 / 1024,
  }
}

function plural(connections: number): string {
  return connections === 1 ? "1 connection" : `${connections} connections`
}
