/** Awards from a file: every faulty line named and nothing half-applied; and, by the command itself, new, changed and unchanged ones counted. */
import { execFile } from "node:child_process"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import postgres from "postgres"
import t from "tap"
import { readAwardFile } from "../../src/commands/award-file.js"
import { Reads } from "../../src/db/client.js"
import { commandLine } from "../../src/evidence/operator-actions.js"
import { importAwards } from "../../src/ledger/award-import.js"
import { createPortal } from "../../src/portals/portals.js"
import { createDatabase } from "../support/database.js"
import { executable } from "../support/server.js"

t.setTimeout(480_000)

const bytes = (text: string) => Buffer.from(text)
/** Faults as `line: detail`. */
const faultsOf = (file: Buffer | string): string[] =>
  readAwardFile(typeof file === "string" ? bytes(file) : file).faults.map(({ line, detail }) => `${line}: ${detail}`)

t.test("a file in every form that a spreadsheet saves is read alike", (t) => {
  const plain = 'award_id,currency,obligated_cents,portals\nA-1,USD,100,east;west\n"B, ""2""",,,\n'
  const { awards, faults } = readAwardFile(bytes(plain))
  t.same(faults, [])
  t.same(awards, [
    {
      line: 2,
      awardId: "A-1",
      awardKey: "A-1",
      sent: { currency: "USD", obligated_cents: 100, portals: ["east", "west"] },
    },
    { line: 3, awardId: 'B, "2"', awardKey: 'B, "2"', sent: { obligated_cents: null, portals: null } },
  ])
  for (const [about, text] of [
    ["CRLF", plain.replaceAll("\n", "\r\n")],
    ["BOM", `\uFEFF${plain}`],
    ["no last newline", plain.trimEnd()],
    [
      "every cell quoted",
      'award_id,currency,obligated_cents,portals\n"A-1","USD","100","east;west"\n"B, ""2""","","",""',
    ],
  ] as const) {
    t.same(readAwardFile(bytes(text)), { awards, faults: [] }, about)
  }
  t.match(
    readAwardFile(bytes("portals,award_id\n,é\n\n,B\n")).awards,
    [{ line: 2 }, { line: 4 }],
    "columns in any order, blank lines between",
  )
  t.end()
})

t.test("what is wrong with a file is said of each line", (t) => {
  const cases: [about: string, file: string | Buffer, faults: RegExp[]][] = [
    ["empty", "", [/^1: is missing: the file is empty/]],
    ["only a BOM", "\uFEFF", [/^1: .*empty/]],
    ["only a header", "award_id,currency\n", [/^1: .*no award follows/]],
    ["no header", "A-1,USD\n", [/^1: is not a header: it has no column award_id/, /^1: has the column "A-1"/, /"USD"/]],
    [
      "a column unknown",
      "award_id,ceiling\nA,1\n",
      [/^1: has the column "ceiling", which is none of award_id, currency/],
    ],
    ["a column twice", "award_id,status,status\nA,,\n", [/^1: has the column status twice/]],
    [
      "semicolons for commas",
      "award_id;currency\nA;USD\n",
      [/^1: .*award_id/, /^1: has the column "award_id;currency"/],
    ],
    ["UTF-16", Buffer.from("\uFEFFaward_id\nA\n", "utf16le"), [/^1: begins as UTF-16; save the file as CSV in UTF-8/]],
    ["Latin-1", Buffer.from("award_id\nA\nCaf\xe9\nB\n\xfc\n", "latin1"), [/^3: is not UTF-8/, /^5: is not UTF-8/]],
    ["NUL", "award_id\nA\0\n", [/^2: holds a NUL/]],
    ["a stray quote", 'award_id,status\nA,active\nB "x,active\n', [/^3: has a quote inside a cell/]],
    ["text after a quote", 'award_id,status\n"A"b,active\n', [/^2: has something after a closing quote/]],
    [
      "a quote left open",
      'award_id,status\nA,active\n"B,active\nC,active\n',
      [/^3: opens a quote that is never closed/],
    ],
    ["a line without end", `award_id\n${"x".repeat(70_000)}\n`, [/^2: is longer than/]],
    [
      "cells missing, cells too many",
      "award_id,status\nA\nB,active,x\n",
      [/^2: has 1 cells where the header has 2/, /^3: has 3 cells/],
    ],
    ["one award twice", "award_id\nA-1\nB\na-1\n", [/^4: names the award of line 2 again/]],
    ["ids", "award_id,status\n,active\n A,active\n", [/^2: award_id must have 1 to 100/, /^3: award_id must have/]],
    [
      "amounts",
      'award_id,obligated_cents\nA,1.5\nB,"1,000"\nC,-1\nD,$5\nE,9007199254740992\nF,007\nG,1e3\n',
      [
        /^2: obligated_cents must be an integer/,
        /^3: /,
        /^4: obligated_cents must be at least 0/,
        /^5: /,
        /^6: /,
        /^7: /,
        /^8: /,
      ],
    ],
    [
      "dates, days, zones, names",
      "award_id,period_start,period_end,time_zone,portals\nA,2025-02-30,,,\nB,2025-02-02,2025-02-01,,\nC,,01/31/2025,,\nD,,,Nowhere,\nE,,,,east;east\n",
      [
        /^2: period_start must be a real date/,
        /^3: period_end must not be before/,
        /^4: period_end/,
        /^5: time_zone/,
        /^6: portals must not name a portal twice/,
      ],
    ],
    [
      "two faults of one line",
      "award_id,status,currency\nA,open,usd\n",
      [/^2: (?:currency|status)/, /^2: (?:currency|status)/],
    ],
    ["a fault before what cannot be read", 'award_id,status\nA,open\n"B\n', [/^2: status/, /^3: opens a quote/]],
  ]
  for (const [about, file, patterns] of cases) {
    const faults = faultsOf(file)
    t.equal(faults.length, patterns.length, `${about}: ${faults.join(" | ")}`)
    for (const [i, pattern] of patterns.entries()) t.match(faults[i], pattern, about)
  }
  t.end()
})

async function start() {
  const { url } = await createDatabase(t)
  const reads = new Reads(url, { max: 3, preparedStatements: true })
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  t.teardown(async () => {
    await reads.end()
    await sql.end({ timeout: 1 })
  })
  return { url, reads, sql }
}

t.test("all of a file is written or nothing, also when an award changes while it is", async (t) => {
  const { reads, sql } = await start()
  const importText = (text: string, onProgress = () => {}) => {
    const { awards, faults } = readAwardFile(bytes(text))
    t.same(faults, [])
    return reads.run((db) => importAwards(db, awards, "Fiscal year 2027", commandLine, onProgress), 60_000)
  }
  const rows = async () =>
    sql`SELECT award_id, currency, obligated_cents::int, status, rules_version FROM awards ORDER BY award_key`
  const many = Array.from({ length: 2_500 }, (_, i) => `M-${String(i).padStart(4, "0")},USD,${i}`)
  const file = ["award_id,currency,obligated_cents", ...many].join("\n")
  t.same(await importText(file), { written: true, added: 2_500, changed: 0, unchanged: 0 })
  t.same(
    await importText(file),
    { written: true, added: 0, changed: 0, unchanged: 2_500 },
    "the same again changes nothing",
  )
  t.same(await importText(`${file.replace("M-0001,USD,1\n", "M-0001,USD,5\n")}\nM-9999,EUR,1`), {
    written: true,
    added: 1,
    changed: 1,
    unchanged: 2_499,
  })
  t.equal((await sql`SELECT count(*)::int AS n FROM award_rules`)[0]?.n, 2_502, "a version for each change")
  t.match(
    await sql`SELECT portal_id, reason, before->>'obligated_cents' AS was, after->>'obligated_cents' AS is FROM operator_actions WHERE subject = 'M-0001' ORDER BY occurred_at`,
    [
      { portal_id: null, reason: "Fiscal year 2027", was: null, is: "1" },
      { was: "1", is: "5" },
    ],
  )

  await sql`UPDATE awards SET disbursed_cents = 3, obligated_cents = 5 WHERE award_key = 'M-0003'`
  const before = await rows()
  const refused = await importText(
    "award_id,currency,obligated_cents,status\nNEW,USD,,\nm-0003,USD,2,\nM-0002,USD,2,closed\nM-0004,EUR,4,\nNEWER,,1,\nM-0005,ZZZ,5,\n",
  )
  t.match(refused, {
    written: false,
    refused: [
      { at: 1, problem: { code: "ceiling-below-net" } },
      { at: 4, problem: { code: "invalid-request" } },
      { at: 5, problem: { code: "currency-unknown" } },
    ],
  })
  t.same(await rows(), before, "nothing of it")

  await importText("award_id,status\nM-0002,suspended\n")
  t.match(
    (await rows())[2],
    { award_id: "M-0002", obligated_cents: 2, status: "suspended" },
    "what has no column stays",
  )

  /** Holds what `take` locks until an import waits for it, then lets go. */
  const whileHeld = async (take: (holder: postgres.TransactionSql) => Promise<unknown>, text: string) => {
    const importing = await sql.begin(async (holder) => {
      await take(holder)
      const running = importText(text)
      for (let waiting = 0; waiting === 0; ) {
        const [row] = await sql`SELECT count(*)::int AS n FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`
        waiting = row?.n
      }
      return { running }
    })
    return importing.running
  }
  const spent = await whileHeld(
    (holder) => holder`UPDATE awards SET disbursed_cents = 9, obligated_cents = 10 WHERE award_key = 'M-0006'`,
    "award_id,obligated_cents\nM-0006,8\nM-0007,8\n",
  )
  t.match(spent, { written: false, refused: [{ at: 0, problem: { code: "ceiling-below-net" } }] })
  const opened = await whileHeld(
    (holder) => holder`INSERT INTO awards (award_key, award_id, currency, disbursed_cents) VALUES ('O', 'o', 'USD', 5)`,
    "award_id,currency\nO,EUR\nP,EUR\n",
  )
  t.match(opened, { written: false, refused: [{ at: 0, problem: { code: "currency-mismatch" } }] })
  const taken = await whileHeld(
    (holder) => holder`INSERT INTO awards (award_key, award_id, currency, disbursed_cents) VALUES ('Q', 'q', 'USD', 5)`,
    "award_id,currency\nQ,USD\nR,USD\n",
  )
  t.same(taken, { written: true, added: 1, changed: 1, unchanged: 0 }, "opened meanwhile, and now registered")
  t.match(
    await sql`SELECT award_id, disbursed_cents::int, rules_version FROM awards WHERE award_key IN ('M-0007', 'O', 'P', 'Q', 'R') ORDER BY award_key`,
    [
      { award_id: "M-0007", rules_version: 1 },
      { award_id: "o", rules_version: 0 },
      { award_id: "q", rules_version: 1, disbursed_cents: 5 },
      { award_id: "R", rules_version: 1 },
    ],
  )
  await sql.begin(async (holder) => {
    await holder`SELECT 1 FROM awards WHERE award_key = 'R' FOR UPDATE`
    await t.rejects(importText("award_id,currency\nR,EUR\nS,EUR\n"), { code: "award-busy" })
  })
  t.same([...(await sql`SELECT 1 FROM awards WHERE award_key = 'S'`)], [])
})

t.test("the command names what is wrong, exits 1, and when all is right imports, lists and shows", async (t) => {
  const { url, reads, sql } = await start()
  await reads.run((db) => createPortal(db, { name: "east", role: "portal" }, commandLine))
  const folder = await mkdtemp(join(tmpdir(), "grantgate-awards-"))
  t.teardown(() => rm(folder, { recursive: true }))
  const root = fileURLToPath(new URL("../..", import.meta.url))
  const run = (...args: string[]) =>
    new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
      execFile(
        process.execPath,
        [executable, "award", ...args],
        {
          cwd: root,
          env: { PATH: process.env.PATH, HOME: process.env.HOME, DATABASE_URL: url },
        },
        (error, stdout, stderr) => resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
      )
    })
  await writeFile(join(folder, "bad.csv"), "award_id,currency,portals\nA,USD,east;nobody\nB,,\nC,usd,\n")
  await writeFile(
    join(folder, "good.csv"),
    "award_id,currency,obligated_cents,portals\r\nA/1,USD,1000,east\r\nB,KWD,,\r\n",
  )

  t.match(await run("import", join(folder, "missing.csv")), { code: 1, stderr: /There is no file .*missing\.csv/ })
  t.match(await run("import", join(folder, "bad.csv")), {
    code: 1,
    stdout: "",
    stderr:
      /bad\.csv has 3 faults; nothing was changed\.\n {2}line 2: portals: there is no portal "nobody"\n {2}line 3: currency is required.*\n {2}line 4: currency must be/,
  })
  t.same([...(await sql`SELECT 1 FROM awards`)], [])
  t.match(await run("import", join(folder, "good.csv"), "--reason", "FY 2027"), {
    code: 0,
    stdout: /good\.csv: 2 new, 0 changed, 0 unchanged\.\n$/,
    stderr: "",
  })
  t.match(await run("list"), {
    code: 0,
    stdout:
      "A/1  USD  active  net 0  obligated 1000  available 1000  version 1\nB  KWD  active  net 0  no ceiling  version 1\n",
  })
  t.match(await run("show", "a/1"), {
    code: 0,
    stdout: /obligated_cents +1000[\s\S]*portals +\["east"\][\s\S]*version 1 .* command line {2}FY 2027\n$/,
  })
  t.match(await run("show", "C"), { code: 1, stderr: /There is no award C/ })
})
