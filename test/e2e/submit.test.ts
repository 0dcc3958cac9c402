/** `grantgate submit`: a file goes in whole, whatever happens on the way; what is wrong is said of its line; the exit code tells. */
import { readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import postgres from "postgres"
import t, { type Test } from "tap"
import { createDatabase } from "../support/database.js"
import { exactly } from "../support/gate.js"
import { send } from "../support/http.js"
import { bootstrapToken, type Process, type Server, startProcess, startServer } from "../support/server.js"

t.setTimeout(480_000)
const { url: databaseUrl } = await createDatabase(t)
const sql = postgres(databaseUrl, { max: 2, onnotice: () => {} })
t.teardown(() => sql.end({ timeout: 1 }))
const server = await startServer((work) => t.teardown(work), databaseUrl)

async function newToken(at: Server, name: string): Promise<string> {
  const made = await send(at.url, "POST", "/v1/portals", { token: bootstrapToken, json: { name, role: "portal" } })
  if (made.status !== 201) throw new Error(made.text)
  return made.body.token
}

function submit(t: Test, url: string, token: string, args: readonly string[]): Process {
  const env = { GRANTGATE_URL: url, GRANTGATE_TOKEN: token }
  return startProcess((work) => t.teardown(work), "src/cli.ts", ["submit", ...args], env)
}

async function finish(t: Test, url: string, token: string, args: readonly string[]) {
  const process = submit(t, url, token, args)
  const { code } = await process.ended
  return { code, output: process.output() }
}

const valid = (more: object = {}) => ({
  award_id: "A-2026-014",
  submission_timestamp: "2025-07-01T09:00:00Z",
  amount_cents: 125_000,
  ...more,
})
const claims = async (): Promise<number> => (await sql`SELECT count(*)::int AS n FROM claims`)[0]?.n

t.test("a file whose server is killed in the middle is finished by the command itself, each line once", async (t) => {
  const { url } = await createDatabase(t)
  const own = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => own.end({ timeout: 1 }))
  const first = await startServer((work) => t.teardown(work), url)
  const token = await newToken(first, "east")
  const file = join(t.testdir({}), "july.ndjson")
  const n = 6_000
  // Without keys, too: they are derived, and the same whenever the line is sent again.
  const lines = Array.from({ length: n }, (_, i) =>
    JSON.stringify(valid({ amount_cents: i + 1, ...(i % 2 === 0 ? { idempotency_key: `k-${i}` } : {}) })),
  )
  await writeFile(file, lines.join("\r\n"))
  const command = submit(t, first.url, token, [file])
  const recorded = async (): Promise<number> => (await own`SELECT count(*)::int AS n FROM claims`)[0]?.n
  while ((await recorded()) < 500) await delay(5)
  await first.kill("SIGKILL")
  const before = await recorded()
  t.ok(before < n, `killed with ${before} of ${n} recorded`)
  await startServer((work) => t.teardown(work), url, { PORT: new URL(first.url).port })
  t.same(await command.ended, { code: 0, signal: null }, command.output())
  const [, fresh = "", replayed = ""] =
    /^recorded (\d+), replayed (\d+), conflicting 0, refused 0, invalid 0$/m.exec(command.output()) ?? []
  t.equal(Number(fresh) + Number(replayed), n, command.output())
  await exactly(t, own, n)

  const again = await finish(t, first.url, token, [file])
  t.equal(again.code, 0)
  t.match(
    again.output,
    `recorded 0, replayed ${n}, conflicting 0, refused 0, invalid 0`,
    "run again, it records nothing",
  )
  await exactly(t, own, n)
})

t.test("what is wrong in a CSV file is said of its line, and every other line is recorded", async (t) => {
  const token = await newToken(server, "csv")
  const before = await claims()
  const rows = [
    "award_id,submission_timestamp,amount_cents,currency,idempotency_key,invoice_ref,details",
    "A-1,2025-07-01T09:00:00Z,125000,USD,c-1,,",
    'A-1,2025-07-01T09:00:00Z,500,,c-2,"Invoice ""7"", part 2","{""payee"": ""x""}"',
    "A-1,2025-07-01T09:00:00Z,12.50,USD,c-3,,",
    'A-1,2025-07-01T09:00:00Z,1,USD,c-4,"never closed,',
    'A-1,2025-07-01T09:00:00Z,1,USD,c-5,stray " quote,',
    "A-1,2025-07-01T09:00:00Z,1,USD",
    "",
    "A-1,2025-07-01,1,USD,c-6,,",
    "A-1,2025-07-01T09:00:00Z,1,USD,c-1,,",
    "A-1,2025-07-01T09:00:00Z,1,EUR,c-7,,",
    "A-1,2025-07-01T09:00:00Z,1,USD,c-8,,{not json}",
    `A-1,2025-07-01T09:00:00Z,1,USD,c-9,${"x".repeat(70_000)},`,
    "A-1,2025-07-01T09:00:00Z,7,USD,,,",
  ]
  const folder = t.testdir({})
  const file = join(folder, "july.csv")
  // As a spreadsheet saves it: with the mark of UTF-8, and CRLF.
  await writeFile(file, `\ufeff${rows.join("\r\n")}\r\n`)
  await writeFile(file, Buffer.from([0x41, 0x2d, 0xff, 0x0a]), { flag: "a" })
  const exceptions = join(folder, "exceptions.ndjson")
  const first = await finish(t, server.url, token, [file, "--exceptions", exceptions])
  t.equal(first.code, 1, first.output)
  t.match(first.output, "recorded 3, replayed 0, conflicting 1, refused 1, invalid 8")
  const told = (await readFile(exceptions, "utf8"))
    .trim()
    .split("\n")
    .map((text) => JSON.parse(text))
  t.same(told.map(({ line, code }) => `${line} ${code}`).sort(), [
    "10 idempotency-key-reused",
    "11 currency-mismatch",
    "12 not-sent",
    "13 not-sent",
    "15 not-sent",
    "4 not-sent",
    "5 not-sent",
    "6 not-sent",
    "7 not-sent",
    "9 invalid-request",
  ])
  t.match(told.find(({ line }) => line === 4).detail, /amount_cents/)
  t.match(told.find(({ line }) => line === 7).detail, /4 fields.*7/)
  t.match(told.find(({ line }) => line === 9).errors, [{ pointer: "/submission_timestamp" }])
  t.equal((await claims()) - before, 3)
  const [kept] = await sql`SELECT request FROM answers WHERE request LIKE '%c-2%'`
  t.match(JSON.parse(kept?.request), { amount_cents: 500, invoice_ref: 'Invoice "7", part 2', details: { payee: "x" } })

  const table = join(folder, "exceptions.csv")
  const second = await finish(t, server.url, token, [file, "--exceptions", table])
  t.match(second.output, "recorded 0, replayed 3, conflicting 1, refused 1, invalid 8")
  t.match(
    await readFile(table, "utf8"),
    /^line,status,code,detail,disbursement_id\n[\s\S]*^10,422,idempotency-key-reused,/m,
  )
  const shown = await finish(t, server.url, token, [file])
  t.match(shown.output, /^line 10: idempotency-key-reused: .*\/amount_cents$/m, "without a file they are shown")
})

t.test("what cannot be begun or finished is one sentence, and exit code 2", async (t) => {
  const token = await newToken(server, "broken")
  const folder = t.testdir({
    "empty.csv": "",
    "empty.ndjson": "",
    "blank.csv": "\r\n\r\n",
    "no-header.csv": "A-1,2025-07-01T09:00:00Z,125000\n",
    "unknown.csv": "award_id,submission_timestamp,amount_cents,amount\n",
    "twice.csv": "award_id,submission_timestamp,amount_cents,award_id\n",
    "semicolons.csv": "award_id;submission_timestamp;amount_cents\n",
    "quote.csv": 'award_id,"submission_timestamp,amount_cents\n',
    "utf16.csv": Buffer.from("\ufeffaward_id,submission_timestamp,amount_cents\n", "utf16le"),
    "good.ndjson": JSON.stringify(valid({ award_id: "GOOD" })),
    "header-only.csv": "award_id,submission_timestamp,amount_cents\n",
    "bom.ndjson": `\ufeff${JSON.stringify(valid({ award_id: "BOM" }))}`,
  })
  const file = (name: string) => join(folder, name)
  const before = await claims()
  const nowhere = "http://127.0.0.1:1"
  const cases: [string[], RegExp, number, { url?: string; token?: string }?][] = [
    [["nothing.csv"], /There is no file/, 2],
    [[file("empty.csv")], /empty\.csv is empty\. Nothing was sent/, 2],
    [[file("empty.ndjson")], /is empty/, 2],
    [[file("blank.csv")], /has no header line/, 2],
    [[file("no-header.csv")], /line 1: the header has no column award_id, submission_timestamp, amount_cents\./, 2],
    [[file("unknown.csv")], /line 1: column 4 of the header is not a member/, 2],
    [[file("twice.csv")], /line 1: the header has the column award_id twice/, 2],
    [[file("semicolons.csv")], /line 1: the header has no column.*separated by commas/, 2],
    [[file("quote.csv")], /line 1: the header cannot be read.*quote/, 2],
    [[file("utf16.csv")], /line 1: the header cannot be read. The line is not UTF-8/, 2],
    [[file("good.ndjson")], /There is no token/, 2, { token: "" }],
    [[file("good.ndjson")], /refused the batch. The token is not known/, 2, { token: `gg_${"x".repeat(43)}` }],
    [[file("good.ndjson"), "--patience", "1"], /no connection|connection.*lost.*given up/, 2, { url: nowhere }],
    [[file("good.ndjson"), "--url", "ftp://x"], /--url is not/, 2],
    [[file("header-only.csv")], /^recorded 0, replayed 0, conflicting 0, refused 0, invalid 0$/m, 0],
    [[file("bom.ndjson")], /line 1: malformed-json: The line begins with a byte order mark/, 1],
  ]
  for (let at = 0; at < cases.length; at += 4) {
    await Promise.all(
      cases.slice(at, at + 4).map(async ([args, sentence, code, change = {}]) => {
        const about = args.join(" ")
        const ended = await finish(t, change.url ?? server.url, change.token ?? token, args)
        t.equal(ended.code, code, `${about}: ${ended.output}`)
        t.match(ended.output, sentence, about)
        t.notMatch(ended.output, /\bat .*:\d+:\d+|unexpected/, `${about}: no stack`)
      }),
    )
  }
  t.equal(await claims(), before, "nothing was recorded")
})
