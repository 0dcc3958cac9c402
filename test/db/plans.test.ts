/**
 * Reads stay fast however large the ledger is: what a page costs is measured in the lines that Postgres looks at, on a ledger with statistics as
 * they are in the field (a portal with half of it, an award with a quarter, portals and awards with next to nothing).
 */
import { sql } from "drizzle-orm"
import { drizzle } from "drizzle-orm/postgres-js"
import postgres from "postgres"
import t from "tap"
import type { Db } from "../../src/db/client.js"
import { readBalance } from "../../src/ledger/account.js"
import { listAwards, readAward } from "../../src/ledger/award-reads.js"
import { readLines } from "../../src/ledger/disbursement-reads.js"
import { findDuplicates } from "../../src/ledger/duplicates.js"
import type { LedgerFilters } from "../../src/ledger/ledger-range.js"
import { readOriginals } from "../../src/ledger/original.js"
import { readTotals, type TotalsFilters } from "../../src/ledger/period-totals.js"
import { limits } from "../../src/limits.js"
import { createDatabase } from "../support/database.js"

const LINES = 200_000
const portal = (n: number) => `00000000-0000-7000-8001-${String(n).padStart(12, "0")}`
const [big, small, absent] = [portal(0), portal(9), portal(99)]

/** Portal 0 has half of the lines, 9 has 10 of them; award A-0 a quarter; the rest is spread over 5,000 awards. */
async function fill(sql: postgres.Sql): Promise<void> {
  await sql`INSERT INTO portals (id, name, role)
    SELECT ('00000000-0000-7000-8001-' || lpad(i::text, 12, '0'))::uuid, 'portal-' || i, 'portal' FROM generate_series(0, 9) i`
  await sql`INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, submission_id, invoice_ref, recorded_at)
    SELECT gen_random_uuid(), 'disbursement', ('00000000-0000-7000-8001-' || lpad(p::text, 12, '0'))::uuid, 'key-' || i, award, award, 1 + i * 7919 % 100000, 'USD', at, 'S-' || i % 150000, CASE WHEN i % 3 = 0 THEN 'INV-' || i % 40000 END, at
    FROM (SELECT i, CASE WHEN i % 2 = 0 THEN 0 WHEN i % 20000 = 1 THEN 9 ELSE i % 8 + 1 END AS p,
        CASE WHEN i % 4 = 1 THEN 'A-0' ELSE 'A-' || i * 31337 % 5000 END AS award,
        '2024-01-01T00:00:00Z'::timestamptz + i * interval '5 minutes' AS at
      FROM generate_series(1, ${LINES}::bigint) i) l`
  await sql`INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, disbursement_id, reason, recorded_at)
    SELECT gen_random_uuid(), 'return', portal_id, 'back-' || idempotency_key, award_key, award_id, -1, currency, submission_timestamp, id, 'unused', recorded_at + interval '1 day'
    FROM disbursements WHERE amount_cents % 50 = 0`
  await sql`INSERT INTO awards (award_key, award_id, currency, disbursed_cents) SELECT DISTINCT award_key, award_key, 'USD', 1 FROM disbursements`
  await sql`VACUUM ANALYZE`
}

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Name"?: string
  readonly "Actual Rows": number
  readonly "Actual Loops": number
  readonly "Rows Removed by Filter"?: number
  readonly "Rows Removed by Index Recheck"?: number
  readonly Plans?: readonly Node[]
}

function nodesOf(node: Node): Node[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)]
}

/** A database client that keeps what it sends, and what Postgres did for it. */
async function open(t: Parameters<typeof createDatabase>[0]) {
  const { url } = await createDatabase(t)
  const sql = postgres(url, { max: 1, fetch_types: false, onnotice: () => {} })
  t.teardown(() => sql.end())
  await fill(sql)
  const sent: [query: string, params: unknown[]][] = []
  const db: Db = drizzle(sql, { logger: { logQuery: (query, params) => sent.push([query, params]) } })
  return {
    db,
    /** Runs `read`, and its statements once more: how many lines were looked at, by which indexes. */
    async cost(read: () => Promise<unknown>): Promise<{ lines: number; scans: string[]; text: string }> {
      sent.length = 0
      await read()
      let lines = 0
      const scans: string[] = []
      const plans: string[] = []
      for (const [query, params] of [...sent].filter(([text]) => /^\s*select/i.test(text))) {
        const [row] = await sql.unsafe<{ "QUERY PLAN": [{ Plan: Node }] }[]>(
          `EXPLAIN (ANALYZE, FORMAT JSON) ${query}`,
          params as never[],
        )
        if (!row) throw new Error("EXPLAIN explains")
        const [{ Plan }] = row["QUERY PLAN"]
        plans.push(JSON.stringify(Plan, null, 1))
        for (const node of nodesOf(Plan)) {
          if (node["Relation Name"] === "disbursements") scans.push(node["Index Name"] ?? node["Node Type"])
          if (!node["Node Type"].endsWith("Scan")) continue
          const removed = (node["Rows Removed by Filter"] ?? 0) + (node["Rows Removed by Index Recheck"] ?? 0)
          lines += (node["Actual Rows"] + removed) * node["Actual Loops"]
        }
      }
      return { lines, scans, text: plans.join("\n") }
    },
  }
}

/** Every combination of the choices. */
function* combinations<T extends Record<string, readonly unknown[]>>(
  choices: T,
): Generator<{ [K in keyof T]: T[K][number] }> {
  const [first, ...rest] = Object.entries(choices)
  if (first === undefined) return void (yield {} as never)
  for (const others of combinations(Object.fromEntries(rest)))
    for (const choice of first[1]) yield { [first[0]]: choice, ...others } as never
}

const { db, cost } = await open(t)

t.test("a page of the ledger looks at a page of lines, by any filters", async (t) => {
  const { db, cost } = await open(t)
  const after = { at: "2024-09-01T00:00:00.000000Z", id: portal(1) }
  const all = combinations({
    awardKey: [null, "A-0", "A-77", "NONE"],
    ownerId: [null, big, small, absent],
    period: [
      [null, null],
      ["2024-10-01T00:00:00Z", null],
      ["2024-10-01T00:00:00Z", "2024-11-01T00:00:00Z"],
    ] as const,
    submissionId: [null, "S-4242"],
    idempotencyKey: [null, "key-4242"],
    after: [null, after],
  })
  const worst: { lines: number; about: string }[] = []
  for (const {
    period: [from, to],
    after,
    ...rest
  } of all) {
    const filters: LedgerFilters = { ...rest, from, to }
    const about = JSON.stringify({ ...filters, after: after !== null })
    const { lines, scans, text } = await cost(() => readLines(db, filters, after, 51))
    worst.push({ lines, about })
    if (scans.includes("Seq Scan")) t.fail(`the whole ledger is read: ${about}`, { text })
    if (lines > 3_000) t.fail(`${lines} lines are looked at: ${about}`, { text })
  }
  const [most] = worst.sort((a, b) => b.lines - a.lines)
  t.equal(worst.length, 384)
  t.comment(`at most ${most?.lines}: ${most?.about}`)
})

t.test("totals by award look at the lines of the awards that they tell of", async (t) => {
  const all = combinations({
    awardKey: [null, "A-77", "NONE"],
    ownerId: [null, big, small, absent],
    period: [
      [null, null],
      ["2024-10-01T00:00:00Z", null],
      ["2024-10-01T00:00:00Z", "2024-11-01T00:00:00Z"],
    ] as const,
    after: ["A-1", "A-4000"],
  })
  for (const {
    period: [from, to],
    after,
    awardKey,
    ownerId,
  } of all) {
    const filters: TotalsFilters = { awardKey, ownerId, from, to, by: "award" }
    const about = JSON.stringify({ ...filters, after })
    const { lines, scans, text } = await cost(() => readTotals(db, filters, awardKey === null ? after : null, 51))
    if (scans.includes("Seq Scan")) t.fail(`the whole ledger is read: ${about}`, { text })
    // Some 30 lines an award; who has hardly any lines is looked for in each award.
    if (lines > 15_000) t.fail(`${lines} lines are looked at: ${about}`, { text })
  }
  for (const by of ["currency", "portal"] as const) {
    const filters: TotalsFilters = { awardKey: "A-77", ownerId: null, from: null, to: "2025-01-01T00:00:00Z", by }
    const { lines, scans } = await cost(() => readTotals(db, filters, null, 51))
    t.notOk(scans.includes("Seq Scan"))
    t.ok(lines < 500, `${lines} lines for one award by ${by}`)
  }
})

t.test("a page of possible duplicates looks at its stretch, and at a few lines for each of it", async (t) => {
  const all = combinations({
    awardKey: [null, "A-0", "A-77", "NONE"],
    ownerId: [null, big, small, absent],
    after: [null, { at: "2024-09-01T00:00:00.000000Z", id: portal(1) }],
  })
  for (const { awardKey, ownerId, after } of all) {
    const filters = { awardKey, ownerId, from: null, to: null, days: 90 }
    const about = JSON.stringify({ ...filters, after: after !== null })
    const { lines, scans, text } = await cost(() => findDuplicates(db, filters, after, 51))
    if (scans.includes("Seq Scan")) t.fail(`the whole ledger is read: ${about}`, { text })
    if (lines > 15 * limits.duplicatesStretchLines) t.fail(`${lines} lines are looked at: ${about}`, { text })
  }
  t.ok((await findDuplicates(db, { awardKey: null, ownerId: null, from: null, to: null, days: 90 }, null, 51)).lookedAt)
})

t.test("the line that is undone and the balance of an account are looked up, never searched for", async (t) => {
  const [undone] = await db.execute<{ id: string }>(
    sql`SELECT disbursement_id AS id FROM disbursements WHERE kind = 'return' LIMIT 1`,
  )
  const original = await cost(() => readOriginals(db, [undone?.id ?? ""]))
  t.notOk(original.scans.includes("Seq Scan"), original.text)
  t.ok(original.lines < 30, `${original.lines} lines for a line and what came back of it`)

  await db.execute(sql`INSERT INTO balance_events (portal_id, source, source_event_id, id, account_key, currency, balance, source_event_time, recorded_at)
    SELECT ${big}::uuid, 's', i::text, gen_random_uuid(), 'ACC-' || i % 3, 'USD', i, '2024-01-01T00:00:00Z'::timestamptz + i * interval '1 minute', now()
    FROM generate_series(1, 30000::bigint) i`)
  await db.execute(sql`ANALYZE balance_events`)
  for (const account of ["ACC-0", "NONE"]) {
    const balance = await cost(() => readBalance(db, big, account))
    t.ok(balance.lines < 10, `${balance.lines} events for the balance of ${account}`)
  }
})

t.test(
  "a page of awards looks at a page of awards, for a portal too, however many lines and awards there are",
  async (t) => {
    await db.execute(sql`INSERT INTO awards (award_key, award_id, currency, disbursed_cents, portals)
    SELECT 'B-' || i, 'B-' || i, 'USD', 0, CASE WHEN i % 10000 = 0 THEN '{portal-9}' WHEN i % 3 = 0 THEN '{portal-0,portal-1}' END::text[]
    FROM generate_series(1, 100000) i`)
    await db.execute(sql`ANALYZE awards`)
    const all = combinations({
      scope: [
        null,
        { portalId: big, portal: "portal-0" },
        { portalId: small, portal: "portal-9" },
        { portalId: absent, portal: "none" },
      ],
      after: [null, "A-1", "A-4000", "B-5"],
    })
    const worst: number[] = []
    for (const { scope, after } of all) {
      const { lines, scans, text } = await cost(() => listAwards(db, scope, after, 51))
      worst.push(lines)
      const about = JSON.stringify({ scope, after })
      if (scans.includes("Seq Scan")) t.fail(`the whole ledger is read: ${about}`, { text })
      // Awards that name a portal lie anywhere in the order: where many do, those before the first are passed by, 4,000 here.
      if (lines > (scope?.portalId === big ? 5_000 : 1_000)) t.fail(`${lines} rows are looked at: ${about}`, { text })
    }
    for (const portalId of [big, small, absent]) {
      const { lines, text } = await cost(() => readAward(db, "A-0", { portalId, portal: "none" }))
      if (lines > 20) t.fail(`${lines} rows are looked at for one award`, { text })
    }
    t.equal(worst.length, 16)
    t.comment(`at most ${Math.max(...worst)}`)
  },
)
