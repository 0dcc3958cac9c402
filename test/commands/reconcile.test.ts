/** `grantgate reconcile`: what the list and the ledger disagree on is counted and written down, and the exit code says whether they do. */
import { execFile } from "node:child_process"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parse } from "csv-parse/sync"
import t from "tap"
import { executable } from "../support/server.js"
import { startService } from "../support/service.js"

const root = fileURLToPath(new URL("../..", import.meta.url))

t.test(
  "a list that agrees ends with 0, one that differs with 2 and all exceptions in a file, one that cannot be read with 1",
  async (t) => {
    const service = await startService(t)
    const { token } = await service.portal("east")
    for (const [number, cents] of [
      ["N-1", 100],
      ["N-2", 250],
      ["N-3", 999],
    ] as const) {
      const json = {
        award_id: "A-1",
        submission_timestamp: "2025-07-01T09:00:00Z",
        amount_cents: cents,
        submission_id: number,
      }
      t.equal((await service.call("POST", "/v1/submissions", { token, json })).status, 201)
    }
    const folder = await mkdtemp(join(tmpdir(), "grantgate-reconcile-"))
    t.teardown(() => rm(folder, { recursive: true }))
    const file = (name: string) => join(folder, name)
    const run = (...args: string[]) =>
      new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
        execFile(
          process.execPath,
          [executable, "reconcile", ...args],
          { cwd: root, env: { PATH: process.env.PATH, HOME: process.env.HOME, DATABASE_URL: service.databaseUrl } },
          (error, stdout, stderr) => resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
        )
      })

    await writeFile(
      file("same.csv"),
      "submission_id,award_id,amount\r\nN-1,A-1,1.00\r\nN-2,a-1,2.50\r\nN-3,A-1,9.99\r\n",
    )
    const same = await run(file("same.csv"), "--portal", "east")
    t.match(same, { code: 0, stdout: /3 lines, 3 agree/, stderr: "" })
    t.match(same.stdout, /USD: listed 13.49, recorded 13.49/)

    await writeFile(
      file("other.ndjson"),
      '{"submission_id":"N-1","award_id":"A-1","amount_cents":101}\n{"submission_id":"N-4","award_id":"A-1","amount_cents":7}\n{"submission_id":"N-2","award_id":"A-1","amount_cents":250}\n',
    )
    const other = await run(file("other.ndjson"), "--portal", "east", "--out", file("exceptions.csv"))
    t.match(other, { code: 2, stdout: /3 lines, 1 agree/ })
    const exceptions = parse(await readFile(file("exceptions.csv")), { columns: true }) as Record<string, string>[]
    t.same(exceptions.map((row) => Object.values(row)[0]).toSorted(), [
      "amount_differs",
      "missing_here",
      "missing_there",
    ])

    await writeFile(
      file("bad.csv"),
      'submission_id,award_id,amount\nN-1,A-1,1.00\nN-2,"A-1"x,2.50\nN-3,A-1,"1,000.00"\n',
    )
    const bad = await run(file("bad.csv"), "--portal", "east")
    t.match(bad, { code: 1, stdout: "", stderr: /line 3/ })
    t.match(await run(file("absent.csv"), "--portal", "east"), { code: 1, stderr: /There is no file/ })
    t.match(await run(file("same.csv"), "--portal", "nobody"), { code: 1, stderr: /There is no portal nobody/ })
  },
)
