/** Totals are the sums of the ledger's lines, per currency, as of any instant, and exact whatever their size. */
import { parse } from "csv-parse/sync"
import fc from "fast-check"
import { parse as parseExactly } from "lossless-json"
import postgres from "postgres"
import t from "tap"
import { uuidv7 } from "uuidv7"
import { decimalText } from "../../src/ledger/currency.js"
import { type Service, startService } from "../support/service.js"

interface Line {
  readonly id: string
  readonly kind: "disbursement" | "return" | "reversal"
  readonly portal: string
  readonly award: string
  readonly currency: string
  readonly cents: number
  /** Seconds after the epoch of these tests. */
  readonly at: number
  readonly original: string | null
}

const epoch = Date.parse("2025-01-01T00:00:00Z")
const instant = (seconds: number) => new Date(epoch + seconds * 1000).toISOString().replace(".000Z", "Z")

async function insert(service: Service, portals: Record<string, string>, lines: readonly Line[]): Promise<void> {
  const sql = postgres(service.databaseUrl, { max: 1 })
  const rows = lines.map((line) => ({
    ...line,
    portal_id: portals[line.portal],
    key: line.award.toUpperCase(),
    at: instant(line.at),
  }))
  await sql`INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, disbursement_id, reason, recorded_at)
    SELECT id, kind, portal_id, id::text, key, award, cents, currency, at, original, CASE WHEN original IS NOT NULL THEN 'not used' END, at
    FROM json_to_recordset(${JSON.stringify(rows)}::text::json) AS l(id uuid, kind text, portal_id uuid, key text, award text, cents bigint, currency text, at timestamptz, original uuid)`
  await sql`INSERT INTO awards (award_key, award_id, currency, disbursed_cents)
    SELECT DISTINCT ON (award_key) award_key, award_id, currency, 1 FROM disbursements ON CONFLICT DO NOTHING`
  await sql.end()
}

const awards = [
  ["a-1", "USD"],
  ["A/2 %&", "JPY"],
  ["b-1", "KWD"],
  ["Ä-1", "USD"],
] as const

/** Disbursements, and what came back of some of them. */
const ledger = fc
  .array(
    fc.record({
      portal: fc.constantFrom("east", "west"),
      award: fc.constantFrom<(readonly [string, string])[]>(...awards),
      cents: fc.integer({ min: 3, max: 1_000_000 }),
      at: fc.integer({ min: 0, max: 100 }),
      back: fc.option(fc.record({ part: fc.boolean(), after: fc.integer({ min: 0, max: 50 }), whole: fc.boolean() })),
    }),
    { minLength: 150, maxLength: 150 },
  )
  .map((all) =>
    all.flatMap(({ portal, award: [award, currency], cents, at, back }): Line[] => {
      const line = { id: uuidv7(), kind: "disbursement", portal, award, currency, cents, at, original: null } as const
      if (back === null) return [line]
      const undo = { ...line, original: line.id, at: at + back.after }
      const part: Line = { ...undo, id: uuidv7(), kind: "return", cents: -1 }
      const rest: Line = { ...undo, id: uuidv7(), kind: "reversal", cents: -cents + (back.part ? 1 : 0) }
      return [line, ...(back.part ? [part] : []), ...(back.whole ? [rest] : [])]
    }),
  )

function sumsOf(lines: readonly Line[], currency: string) {
  const sum = (some: readonly Line[]) => some.reduce((total, { cents }) => total + cents, 0)
  const gross = sum(lines.filter(({ kind }) => kind === "disbursement"))
  const net = sum(lines)
  const count = (kind: Line["kind"]) => lines.filter((line) => line.kind === kind).length
  return {
    gross_cents: gross,
    gross: decimalText(gross, currency),
    returned_cents: gross - net,
    returned: decimalText(gross - net, currency),
    net_cents: net,
    net: decimalText(net, currency),
    disbursements: count("disbursement"),
    returns: count("return"),
    reversals: count("reversal"),
  }
}

type By = "award" | "currency" | "portal"

interface Item {
  readonly award_id?: string
  readonly portal?: string
  readonly currency: string
  readonly period: ReturnType<typeof sumsOf>
  readonly cumulative: ReturnType<typeof sumsOf>
}

function expected(lines: readonly Line[], by: By, from: number | null, to: number | null): Item[] {
  const before = lines.filter((line) => to === null || line.at < to)
  const groups = new Map<string, Line[]>()
  for (const line of before) {
    const key = JSON.stringify([by === "currency" ? "" : line[by], line.currency])
    groups.set(key, [...(groups.get(key) ?? []), line])
  }
  return [...groups].map(([key, group]) => {
    const [name, currency] = JSON.parse(key)
    return {
      ...(by === "award" ? { award_id: name } : by === "portal" ? { portal: name } : {}),
      currency,
      period: sumsOf(
        group.filter((line) => from === null || line.at >= from),
        currency,
      ),
      cumulative: sumsOf(group, currency),
    }
  })
}

const sorted = (items: readonly object[]) => items.map((item) => JSON.stringify(item)).sort()

t.test("totals are the sums of the lines, for any period, grouping and reader", async (t) => {
  const service = await startService(t)
  const east = await service.portal("east")
  const west = await service.portal("west")
  const [lines = []] = fc.sample(ledger, 1)
  await insert(service, { east: east.id, west: west.id }, lines)
  const bound = fc.option(fc.integer({ min: -1, max: 151 }))
  const asked = fc.record({
    by: fc.constantFrom<By>("award", "currency", "portal"),
    bounds: fc.tuple(bound, bound),
    reader: fc.constantFrom("east", "operator"),
    award: fc.option(fc.constantFrom(...awards)),
    portal: fc.option(fc.constantFrom("east", "west")),
  })
  await fc.assert(
    fc.asyncProperty(asked, async ({ by, bounds, reader, award, portal }) => {
      const [from, to] = bounds.every((one) => one !== null)
        ? [...bounds].sort((a, b) => Number(a) - Number(b))
        : bounds
      const query = new URLSearchParams({ by, limit: "3" })
      if (from != null) query.set("from", instant(from))
      if (to != null) query.set("to", instant(to))
      if (award) query.set("award_id", award[0].toLowerCase())
      if (portal) query.set("portal", portal)
      const items = []
      for (let cursor: string | null = ""; cursor !== null; ) {
        const { status, body } = await service.call("GET", `/v1/totals?${query}${cursor && `&cursor=${cursor}`}`, {
          ...(reader === "east" ? { token: east.token } : {}),
        })
        if (status !== 200) throw new Error(JSON.stringify(body))
        items.push(...body.items)
        cursor = body.next_cursor
      }
      const seen = lines.filter(
        (line) =>
          (reader === "operator" || line.portal === "east") &&
          (!portal || line.portal === portal) &&
          (!award || line.award === award[0]),
      )
      const want = expected(seen, by, from ?? null, to ?? null)
      return JSON.stringify(sorted(items)) === JSON.stringify(sorted(want))
    }),
    { numRuns: 60 },
  )

  const { text } = await service.call("GET", "/v1/totals?by=award&to=2025-01-01T00:00:50Z", {
    headers: { accept: "text/csv" },
  })
  const rows: Record<string, string>[] = parse(text, { columns: true })
  t.same(
    rows.map(({ award_id }) => award_id),
    ["a-1", "A/2 %&", "b-1", "Ä-1"].filter((id) => rows.some((row) => row.award_id === id)),
    "by award in their order",
  )
  for (const item of expected(lines, "award", null, 50)) {
    const row = rows.find(({ award_id }) => award_id === item.award_id)
    t.equal(row?.cumulative_net, item.cumulative.net)
    t.equal(row?.gross_cents, String(item.period.gross_cents))
  }
  const ndjson = await service.call("GET", "/v1/totals?by=portal", { headers: { accept: "application/x-ndjson" } })
  t.same(
    sorted(
      ndjson.text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ),
    sorted(expected(lines, "portal", null, null)),
  )
})

t.test("sums beyond 2^53 are exact, as integers and as decimal text", async (t) => {
  const service = await startService(t)
  const { id } = await service.portal("east")
  const max = Number.MAX_SAFE_INTEGER
  const line = { kind: "disbursement", portal: "east", currency: "USD", cents: max, at: 0, original: null } as const
  const lines: Line[] = ["X", "Y", "Z"].map((award) => ({ ...line, id: uuidv7(), award }))
  await insert(service, { east: id }, lines)
  const { text, headers } = await service.call("GET", "/v1/totals")
  t.match(headers.get("content-type"), /^application\/json/)
  const exact = parseExactly(text, undefined, BigInt) as { items: { period: { gross_cents: bigint } }[] }
  t.equal(exact.items[0]?.period.gross_cents, BigInt(max) * 3n)
  t.equal(JSON.parse(text).items[0].period.gross, "270215977642229.73", "for readers that round")
  const csv = await service.call("GET", "/v1/totals", { headers: { accept: "text/csv" } })
  t.match(csv.text, /\r\nUSD,27021597764222973,270215977642229\.73,0,0\.00,/)
})

t.test("what cannot be meant is refused, and nothing recorded has no totals", async (t) => {
  const service = await startService(t)
  t.same((await service.call("GET", "/v1/totals?by=award")).body, {
    by: "award",
    from: null,
    to: null,
    items: [],
    next_cursor: null,
  })
  const refused: [string, object][] = [
    ["by=month", { errors: [{ pointer: "/by" }] }],
    ["from=2025-01-02T00:00:00Z&to=2025-01-01T00:00:00Z", { errors: [{ pointer: "/to" }] }],
    ["from=2025-01-01", { errors: [{ pointer: "/from" }] }],
    ["cursor=nope", { code: "invalid-cursor" }],
    ["by=award&cursor=WzIsIkEiLCJub3BlIl0", { code: "invalid-cursor" }],
  ]
  for (const [query, problem] of refused) {
    t.match((await service.call("GET", `/v1/totals?${query}`)).body, { status: 400, ...problem }, query)
  }
  const { body } = await service.call("GET", "/v1/totals?from=2025-01-01T02:00:00%2B02:00")
  t.equal(body.from, "2025-01-01T00:00:00Z", "the period is answered in UTC")
})
