/** The ledger as files: CSV and NDJSON hold what was recorded, exactly and whole, or are visibly cut off. */
import { once } from "node:events"
import { request as httpRequest, type IncomingMessage } from "node:http"
import { parse } from "csv-parse/sync"
import fc from "fast-check"
import postgres from "postgres"
import t, { type Test } from "tap"
import { readConfig } from "../../src/config.js"
import { type Db, Reads } from "../../src/db/client.js"
import { buildApp } from "../../src/http/app.js"
import type { AppDeps } from "../../src/http/deps.js"
import { type Column, csvHeader, csvRows, restoreText } from "../../src/ledger/csv.js"
import { decimalText } from "../../src/ledger/currency.js"
import { limits } from "../../src/limits.js"
import { createDatabase } from "../support/database.js"
import { type Service, startService } from "../support/service.js"

const bootstrapToken = "bootstrap-token-of-the-tests-0123456789"

/** Lines as a set, each a microsecond after the one before; `columns` are SQL over the number i. */
async function insertLines(
  url: string,
  portalId: string,
  count: number,
  columns: Record<string, string> = {},
): Promise<void> {
  const all = {
    id: "gen_random_uuid()",
    kind: "'disbursement'",
    portal_id: `'${portalId}'`,
    idempotency_key: "'line-' || i",
    award_key: "'A-' || i % 7",
    award_id: "'A-' || i % 7",
    amount_cents: "i",
    currency: "'USD'",
    submission_timestamp: "'2025-07-01T09:00:00Z'",
    // Three lines share each instant.
    recorded_at: "'2025-07-01T09:00:00Z'::timestamptz + (i / 3) * interval '1 microsecond'",
    ...columns,
  }
  const sql = postgres(url, { max: 1 })
  await sql.unsafe(`INSERT INTO disbursements (${Object.keys(all).join(", ")})
    SELECT ${Object.values(all).join(", ")} FROM generate_series(1, ${count}) i`)
  await sql.end()
}

const csvType = { accept: "text/csv" }
const ndjsonType = { accept: "application/x-ndjson" }

async function readCsv(service: Service, query = "", token?: string): Promise<Record<string, string>[]> {
  const { status, text } = await service.call("GET", `/v1/disbursements${query}`, {
    headers: csvType,
    ...(token === undefined ? {} : { token }),
  })
  if (status !== 200) throw new Error(`${status} ${text}`)
  return parse(text, { columns: true, record_delimiter: "\r\n" })
}

t.test("any text comes back from CSV exactly as it was, and none begins like a formula", async (t) => {
  const columns: Column<[string, number | null]>[] = [
    { name: "text", cell: ([text]) => text },
    { name: "number", cell: ([, number]) => number },
  ]
  const hostile = fc.array(
    fc.oneof(
      fc.constantFrom("=", "+", "-", "@", "'", '"', ",", "\t", "\r", "\n", "＝", " ", ";"),
      fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
    ),
    { minLength: 1, maxLength: 8 },
  )
  const row = fc.tuple(
    hostile.map((parts) => parts.join("")),
    fc.option(fc.maxSafeInteger()),
  )
  fc.assert(
    fc.property(fc.array(row, { minLength: 1, maxLength: 5 }), (rows) => {
      const read: string[][] = parse(csvHeader(columns) + csvRows(columns, rows), { record_delimiter: "\r\n" })
      const [head, ...body] = read
      if (String(head) !== "text,number" || body.length !== rows.length) return false
      return body.every(([text = "", number], i) => {
        const safe = !/^[=+\-@\t\r\n＝＋－＠]/.test(text)
        const [was, amount] = rows[i] ?? []
        return safe && restoreText(text) === was && number === String(amount ?? "")
      })
    }),
    { numRuns: 2_000 },
  )
  t.equal(csvRows(columns, [["'s-Hertogenbosch", -5]]), "'s-Hertogenbosch,-5\r\n", "others stay as they are")
})

t.test("an amount in decimals is exact, by its currency's minor units", async (t) => {
  const cases: [number | bigint, string, string | null][] = [
    [500, "JPY", "500"],
    [500, "USD", "5.00"],
    [1500, "KWD", "1.500"],
    [-5, "USD", "-0.05"],
    [-500, "KWD", "-0.500"],
    [7, "UYW", "0.0007"],
    [0, "USD", "0.00"],
    [Number.MAX_SAFE_INTEGER, "USD", "90071992547409.91"],
    [12345678901234567890n, "USD", "123456789012345678.90"],
    [5, "ZZZ", null],
  ]
  for (const [cents, currency, text] of cases) t.equal(decimalText(cents, currency), text, `${cents} ${currency}`)
})

t.test("a file is the whole list, by any filter, in the order of the pages and with their members", async (t) => {
  const service = await startService(t)
  const east = await service.portal("east")
  const west = await service.portal("west")
  const count = limits.exportBatchLines * 2 + 345
  await insertLines(service.databaseUrl, east.id, count, {
    submission_id: "'=cmd|''/c calc''!A' || i",
    invoice_ref: "CASE WHEN i % 2 = 0 THEN '-1' || chr(9) || ',\"' || i END",
    currency: "(ARRAY['USD', 'JPY', 'KWD'])[i % 3 + 1]",
  })
  await insertLines(service.databaseUrl, west.id, 3, {
    award_key: "'W'",
    award_id: "'w'",
    recorded_at: "'2025-07-01T09:00:00Z'::timestamptz + (i / 3) * interval '1 microsecond'",
    id: "('00000000-0000-7000-8000-00000000000' || i)::uuid",
  })

  const pages: Record<string, unknown>[] = []
  for (let cursor = ""; ; ) {
    const { body } = await service.call("GET", `/v1/disbursements?limit=200&portal=east${cursor}`)
    pages.push(...body.items)
    if (body.next_cursor === null) break
    cursor = `&cursor=${body.next_cursor}`
  }
  t.equal(pages.length, count)
  const ndjson = await service.call("GET", "/v1/disbursements?portal=east", { headers: ndjsonType })
  t.equal(ndjson.headers.get("content-type"), "application/x-ndjson")
  t.same(
    ndjson.text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line)),
    pages,
    "NDJSON has the items of the pages",
  )

  const whole = await service.call("GET", "/v1/disbursements?portal=east", { headers: csvType })
  t.equal(whole.headers.get("content-type"), "text/csv; charset=utf-8; header=present")
  t.match(whole.headers.get("content-disposition"), /^attachment; filename="disbursements-\d{8}T\d{6}Z\.csv"$/)
  t.equal(whole.headers.get("vary"), "Accept")
  t.equal(whole.text.split("\r\n").length, count + 2, "lines end in CRLF")
  const rows: Record<string, string>[] = parse(whole.text, { columns: true, record_delimiter: "\r\n" })
  const read = rows.map(({ amount: _, ...row }) =>
    Object.fromEntries(Object.entries(row).map(([name, cell]) => [name, restoreText(cell)])),
  )
  const texts = pages.map((page) => {
    const absent = { disbursement_id: null, reason: null, recorded_by: null }
    return Object.fromEntries(Object.entries({ ...absent, ...page }).map(([name, v]) => [name, String(v ?? "")]))
  })
  t.same(read, texts, "CSV has them, too, and the amounts as they are")
  const ofKey = (key: string) => rows.find((row) => row.idempotency_key === key)
  t.match(ofKey("line-1"), { amount_cents: "1", currency: "JPY", amount: "1", invoice_ref: "" })
  t.match(ofKey("line-2"), { amount_cents: "2", currency: "KWD", amount: "0.002", invoice_ref: `'-1\t,"2` })
  t.match(ofKey("line-3"), { currency: "USD", amount: "0.03", submission_id: "'=cmd|'/c calc'!A3" })

  const keys = async (query: string, token?: string) =>
    (await readCsv(service, query, token)).map((row) => `${row.portal}:${row.idempotency_key}`)
  t.equal((await keys("")).length, count + 3, "an operator's holds all")
  t.same((await keys("", west.token)).sort(), ["west:line-1", "west:line-2", "west:line-3"], "a portal's holds its own")
  t.same(await keys("?award_id=W&from=2025-07-01T09:00:00.000001Z"), ["west:line-3"])
  t.same(await keys("?award_id=W&to=2025-07-01T09:00:00.000001Z"), ["west:line-1", "west:line-2"])
  t.same((await keys("?idempotency_key=line-2")).sort(), ["east:line-2", "west:line-2"], "a key in each portal")
  t.same(await keys(`?submission_id=${encodeURIComponent("=cmd|'/c calc'!A5")}`), ["east:line-5"])
  t.same(await keys("?portal=nobody"), [], "nothing but the header")
  t.same(await keys("?portal=west&limit=2"), ["west:line-1", "west:line-2"], "a limit is of lines in all")
  const { body } = await service.call("GET", "/v1/disbursements?portal=west&limit=1")
  t.same(await keys(`?portal=west&cursor=${body.next_cursor}`), ["west:line-2", "west:line-3"], "after a page")
  const refused = await service.call("GET", "/v1/disbursements?cursor=nope", { headers: csvType })
  t.equal(refused.body.code, "invalid-cursor", "a refusal is a problem, whatever was asked for")
})

t.test("what could only find nothing is refused, so that no empty file looks like a whole one", async (t) => {
  const service = await startService(t)
  const swapped = "from=2025-12-01T00:00:00Z&to=2025-11-01T00:00:00Z"
  for (const path of ["/v1/disbursements", "/v1/totals", "/v1/possible-duplicates"])
    for (const [query, pointer] of [
      [swapped, "/to"],
      ["award_id=", "/award_id"],
      ["portal=", "/portal"],
    ]) {
      const { status, body } = await service.call("GET", `${path}?${query}`, { headers: csvType })
      t.match({ status, ...body }, { status: 400, errors: [{ pointer }] }, `${path}?${query}`)
    }
})

t.test("Accept decides, and who names nothing that there is gets JSON", async (t) => {
  const service = await startService(t)
  const typeFor = async (accept: string) => {
    const { headers, status } = await service.call("GET", "/v1/disbursements", { headers: { accept } })
    t.equal(status, 200)
    return headers.get("content-type")?.split(";")[0]
  }
  const wanted: Record<string, string> = {
    "*/*": "application/json",
    "text/html,application/xhtml+xml,*/*;q=0.8": "application/json",
    "application/xml": "application/json",
    "text/*": "text/csv",
    "TEXT/CSV": "text/csv",
    "text/csv; charset=utf-8": "text/csv",
    'application/json;q=0.1, text/csv; charset="utf-8"; header=present;q=0.9': "text/csv",
    "application/x-ndjson;charset=utf-8;q=0.2, text/csv;q=0.1": "application/x-ndjson",
    "text/csv;q=0.5, application/json": "application/json",
    "text/csv, application/json;q=0.5": "text/csv",
    "application/x-ndjson, text/csv;q=0": "application/x-ndjson",
  }
  for (const [accept, type] of Object.entries(wanted)) t.equal(await typeFor(accept), type, accept)
})

t.test("returns and reversals are lines with plain negative amounts", async (t) => {
  const service = await startService(t)
  const { id: portalId, token } = await service.portal("east")
  await insertLines(service.databaseUrl, portalId, 1, { amount_cents: "12345" })
  const sql = postgres(service.databaseUrl, { max: 1 })
  await sql`INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, disbursement_id, reason, recorded_at)
    SELECT gen_random_uuid(), 'return', portal_id, '-back', award_key, award_id, -500, currency, submission_timestamp, id, '+1', now() FROM disbursements`
  await sql.end()
  const [first, second] = await readCsv(service, "", token)
  t.match(first, { kind: "disbursement", amount: "123.45", returned_cents: "500", net_cents: "11845", reason: "" })
  t.match(second, { kind: "return", amount_cents: "-500", amount: "-5.00", idempotency_key: "'-back", reason: "'+1" })
  t.equal(second?.disbursement_id, first?.id)
})

/** The app with a pool whose reads can be counted and made to fail. */
async function startCounted(t: Test, lines: number) {
  const { url } = await createDatabase(t)
  const portalId = "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90"
  await insertLines(url, portalId, lines)
  const pool = new Reads(url, { max: 2, preparedStatements: true })
  t.teardown(() => pool.end())
  const state = { runs: 0, failAt: Number.POSITIVE_INFINITY }
  const reports = {
    run<T>(work: (db: Db) => Promise<T>, ms?: number): Promise<T> {
      state.runs += 1
      if (state.runs >= state.failAt) {
        return Promise.reject(Object.assign(new Error("lost"), { code: "CONNECTION_CLOSED" }))
      }
      return pool.run(work, ms)
    },
  } as unknown as Reads
  const app = buildApp({
    config: { ...readConfig({}), bootstrapToken },
    reads: pool,
    reports,
    gate: {} as AppDeps["gate"],
  })
  await app.listen({ port: 0 })
  t.teardown(() => app.close())
  const open = (accept: string, method = "GET") =>
    new Promise<IncomingMessage>((resolve, reject) => {
      const headers = { accept, authorization: `Bearer ${bootstrapToken}` }
      httpRequest(`${app.publicUrl()}/v1/disbursements`, { method, headers, agent: false })
        .on("response", resolve)
        .on("error", reject)
        .end()
    })
  return { state, open, url, portalId }
}

t.test(
  "a database that fails in the middle cuts the file off, and one that fails before it is a problem",
  async (t) => {
    const { state, open } = await startCounted(t, limits.exportBatchLines * 3)
    for (const accept of ["text/csv", "application/x-ndjson"]) {
      state.runs = 0
      // The end, then the second batch.
      state.failAt = 3
      const answer = await open(accept)
      t.equal(answer.statusCode, 200)
      let bytes = 0
      answer.on("data", (chunk: Buffer) => {
        bytes += chunk.length
      })
      const [error] = await once(answer, "error")
      t.match(error, { code: "ECONNRESET" }, "no reader takes it for the whole")
      t.equal(answer.complete, false)
      t.ok(bytes > 0)

      state.runs = 0
      state.failAt = 2
      const refused = await open(accept)
      t.equal(refused.statusCode, 503)
      t.equal(refused.headers["content-disposition"], undefined)
      t.equal(refused.headers["content-type"], "application/problem+json")
      refused.resume()
      await once(refused, "end")
    }
  },
)

t.test("a slow reader slows the reading, one that goes away ends it, and HEAD reads nothing", async (t) => {
  const batches = 60
  const { state, open } = await startCounted(t, limits.exportBatchLines * batches)
  const head = await open("text/csv", "HEAD")
  head.resume()
  await once(head, "end")
  t.equal(head.headers["content-type"], "text/csv; charset=utf-8; header=present")
  t.equal(state.runs, 0)

  // More than there are places, one after the other: each is given back.
  for (let i = 0; i <= limits.exportsMax; i++) {
    state.runs = 0
    const answer = await open("application/x-ndjson")
    t.equal(answer.statusCode, 200)
    // Nothing is taken from it while another reads the whole.
    if (i === 0) {
      const before = state.runs
      const other = await open("text/csv")
      let lines = 0
      other.on("data", (chunk: Buffer) => {
        for (const byte of chunk) if (byte === 0x0a) lines += 1
      })
      await once(other, "end")
      t.equal(lines, limits.exportBatchLines * batches + 1)
      t.ok(state.runs - before < batches * 2, "who does not read is not read for")
    }
    answer.destroy()
    await once(answer, "close")
  }
})

t.test("more exports at once than there are places are refused, and the rest go on", async (t) => {
  const { open } = await startCounted(t, limits.exportBatchLines * 12)
  const answers = await Promise.all(Array.from({ length: limits.exportsMax }, () => open("text/csv")))
  t.ok(answers.every(({ statusCode }) => statusCode === 200))
  const refused = await open("text/csv")
  t.equal(refused.statusCode, 503)
  t.ok(refused.headers["retry-after"])
  refused.resume()
  const [kept, ...others] = answers
  for (const answer of others) answer.destroy()
  kept?.resume()
  await once(kept as IncomingMessage, "end")
  const after = await open("text/csv")
  t.equal(after.statusCode, 200, "a place is free again")
  after.resume()
  await once(after, "end")
})

t.test("what is recorded while a file is being read neither repeats a line nor keeps it from ending", async (t) => {
  const { open, url, portalId } = await startCounted(t, limits.exportBatchLines * 12)
  const answer = await open("application/x-ndjson")
  // Before the end, in the middle of what is still unread, and after it.
  await insertLines(url, portalId, 500, { idempotency_key: "'late-' || i" })
  await insertLines(url, portalId, 500, { idempotency_key: "'later-' || i", recorded_at: "now()" })
  let text = ""
  answer.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk
  })
  await once(answer, "end")
  const keys = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line).idempotency_key as string)
  t.equal(new Set(keys).size, keys.length, "no line twice")
  t.equal(keys.filter((key) => key.startsWith("line-")).length, limits.exportBatchLines * 12, "each that was there")
  t.equal(keys.filter((key) => key.startsWith("later-")).length, 0, "it ends where the ledger ended")
})
