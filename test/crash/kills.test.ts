/** A server killed at any point of a request's way: what was committed is replayed, what was not is free at once, and nothing happens twice. */
import postgres from "postgres"
import t from "tap"
import { createDatabase } from "../support/database.js"
import { exactly } from "../support/gate.js"
import { getKey, postSubmission } from "../support/http.js"
import { startServer } from "../support/server.js"
import { startService } from "../support/service.js"
import { killUnderLoad } from "./kill-under-load.js"

const valid = { award_id: "A-1", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 125_000 }
t.setTimeout(480_000)

t.test(
  "killed at each point of the way, a request is recorded whole or not at all, and its retry is right at once",
  async (t) => {
    for (const [point, isRecorded] of [
      ["before-claim", false],
      ["after-claim", false],
      ["after-write", false],
      ["after-commit", true],
      ["before-reply", true],
    ] as const) {
      await t.test(`killed ${point.replace("-", " ")}`, async (t) => {
        // The server that is there afterwards; it has not seen the key.
        const service = await startService(t)
        const sql = postgres(service.databaseUrl, { max: 1, onnotice: () => {} })
        t.teardown(() => sql.end({ timeout: 1 }))
        const { id, token } = await service.portal("east")
        const doomed = await startServer((work) => t.teardown(work), service.databaseUrl, { KILL_AT: point }, [
          "test/crash/server.ts",
        ])
        const lost = await Promise.allSettled(
          ["k", "k", "k-2", "k-3"].map((key) => postSubmission(doomed.url, token, key, valid)),
        )
        t.ok(
          lost.every((one) => one.status === "rejected"),
          "nobody hears an answer",
        )
        t.same(await doomed.ended, { code: null, signal: "SIGKILL" })

        for (const [i, key] of ["k", "k-2", "k-3"].entries()) {
          const rows = await sql`SELECT 1 FROM disbursements WHERE portal_id = ${id} AND idempotency_key = ${key}`
          const { status, body } = await getKey(service.url, token, key)
          if (i === 0) t.equal(rows.length === 1, isRecorded, "recorded exactly when the COMMIT was")
          t.equal(
            body.state ?? body.code,
            rows.length === 1 ? "completed" : "idempotency-key-unknown",
            `${status}: the key's state is the truth`,
          )
          const began = performance.now()
          const retry = await postSubmission(service.url, token, key, valid)
          t.equal(retry.status, rows.length === 1 ? 200 : 201, "a replay exactly when the row exists")
          t.ok(performance.now() - began < 2_000, "at once: nothing is left locked")
          t.equal((await postSubmission(service.url, token, key, valid)).text, retry.text)
        }
        await exactly(t, sql, 3)
      })
    }
  },
)

t.test(
  "killed again and again under load, servers lose nothing that was acknowledged and double nothing",
  async (t) => {
    const { url } = await createDatabase(t)
    const { kept, retries, wrong, faults } = await killUnderLoad((work) => t.teardown(work), url, {
      kills: 3,
      clients: 6,
      onKill: (how) => t.comment(`killed ${how}`),
    })
    t.same(wrong, [], "no answer but success, or to come again with the same key")
    t.same(faults, [], "what was acknowledged is what is recorded, each key once, the totals exact")
    t.ok(kept.length > 20 && retries > 0, `under load: ${kept.length} keys, ${retries} retries`)
  },
)
