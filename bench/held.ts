/**
 * One award and one key held by another session, and what the others notice. A few callers keep asking for what is held, in both halves of the
 * comparison; the load itself never does. Throughput and p99 of the load, with and without the locks.
 */
import postgres from "postgres"
import { type Bench, type Cell, loadOf, withProduct } from "./cells.js"
import { countRows } from "./database.js"
import type { Figure } from "./figure.js"
import { generate } from "./load.js"
import type { Product } from "./product.js"

const heldAward = "A-2025-HELD"
const heldKey = "the-held-key"
const connections = 32
/** Callers of what is held, and the least time between two calls of one of them. */
const callers = 8
const pauseMs = 500

export const heldCells: readonly Cell[] = [cell("free", false), cell("held", true)]

function cell(key: string, held: boolean): Cell {
  return {
    letter: "h",
    key,
    label: `product, new submissions, ${connections} connections, ${held ? "with an award and a key held by another session" : "nothing held"}`,
    run: (bench) => withProduct(bench, {}, (product, databaseUrl) => measure(bench, product, databaseUrl, held)),
  }
}

async function measure(bench: Bench, product: Product, databaseUrl: string, held: boolean): Promise<Figure> {
  const load = { ...loadOf(bench, product.submissions, product.token), connections }
  await generate({ ...load, seconds: bench.settings.warmUpSeconds })
  await submit(product, `open-${Date.now()}`)
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  const stopped = new AbortController()
  try {
    if (held) {
      // Session's own locks: the row in an open transaction, the key's as the gate spells it.
      await sql.unsafe("BEGIN")
      await sql`SELECT 1 FROM awards WHERE award_key = ${heldAward} FOR UPDATE`
      await sql`SELECT pg_advisory_lock(hashtextextended(${`k:${product.portalId}:${heldKey}`}, 0))`
    }
    const before = (await countRows(databaseUrl)).claims
    const calling = Array.from({ length: callers }, (_, i) => keepCalling(product, i, stopped.signal))
    const serverBefore = await product.cpuSeconds()
    const measured = await generate({ ...loadOf(bench, product.submissions, product.token), connections })
    const serverCpu = (await product.cpuSeconds()) - serverBefore
    stopped.abort()
    const statuses = (await Promise.all(calling)).flat()
    if (held) await sql.unsafe("ROLLBACK")
    const rows = (await countRows(databaseUrl)).claims - before
    const wrong = statuses.filter((status) => (held ? ![409, 503].includes(status) : ![200, 201].includes(status)))
    if (measured.refused + measured.broken > 0 || wrong.length > 0 || statuses.length === 0 || rows < measured.answers)
      throw new Error(
        `held is no figure: ${measured.refused} refused, ${measured.broken} failed; wrong answers: ${wrong}`,
      )
    return {
      perSecond: measured.answers / measured.seconds,
      p50Ms: measured.p50Ms,
      p99Ms: measured.p99Ms,
      maxMs: measured.maxMs,
      answers: measured.answers,
      rows,
      outcomes: Object.fromEntries(
        [...new Set(statuses)].map((s) => [`held ${s}`, statuses.filter((x) => x === s).length]),
      ),
      serverCpuMs: (serverCpu * 1000) / measured.answers,
      postgresCpuMs: null,
      generatorCpuMs: (measured.generatorCpuSeconds * 1000) / measured.answers,
      serverRssMb: (await product.rssBytes()) / 1024 / 1024,
    }
  } finally {
    stopped.abort()
    await sql.end({ timeout: 1 })
  }
}

/** The first caller asks for the held key, the others for the held award. */
async function keepCalling(product: Product, caller: number, stopped: AbortSignal): Promise<number[]> {
  const statuses: number[] = []
  for (let calls = 0; !stopped.aborted; calls++) {
    const pause = new Promise((resolve) => setTimeout(resolve, pauseMs))
    statuses.push(
      await submit(
        product,
        caller === 0 ? heldKey : `caller-${caller}-${calls}`,
        caller === 0 ? "A-2025-KEY" : heldAward,
      ),
    )
    await pause
  }
  return statuses
}

async function submit(product: Product, key: string, award = heldAward): Promise<number> {
  const answer = await fetch(product.submissions, {
    method: "POST",
    headers: { authorization: `Bearer ${product.token}`, "content-type": "application/json", "idempotency-key": key },
    body: JSON.stringify({ award_id: award, submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 100 }),
  })
  await answer.arrayBuffer()
  return answer.status
}
