/**
 * The service as it runs: processes of their own, killed, stopped and started again, on a Postgres that restarts, freezes or is not there. What a
 * client does then is what the README tells it to do, and after it there is exactly one effect a key.
 */
import { randomUUID } from "node:crypto"
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import postgres from "postgres"
import t, { type Test } from "tap"
import { startEmbedded } from "../../src/db/embedded.js"
import { readPidFile } from "../../src/db/embedded-process.js"
import { createDatabase } from "../support/database.js"
import { exactly } from "../support/gate.js"
import { abortAfter, getKey, postSubmission, type Reply, send } from "../support/http.js"
import { bootstrapToken, executable, type Process, type Server, startProcess, startServer } from "../support/server.js"

t.setTimeout(480_000)

/** In every payload, token and key of this file; none of them may come out in a log. */
const marker = "Xyzzy"
const amount = 918_273_645
const longKey = (name: string): string => `${name}-0123456789-${marker}`
/** Every server of this file, for what they wrote. */
const servers: Process[] = []
const tokens: string[] = []

const valid = (award = "A-2026-014", amount_cents = amount) => ({
  award_id: award,
  submission_timestamp: "2025-07-01T09:00:00Z",
  amount_cents,
  invoice_ref: `Invoice ${marker}`,
  details: { payee: marker },
})

async function start(t: Test, databaseUrl: string, env: Record<string, string> = {}): Promise<Server> {
  const server = await startServer((work) => t.teardown(work), databaseUrl, env)
  servers.push(server)
  return server
}

async function newPortal(server: Server): Promise<string> {
  const made = await send(server.url, "POST", "/v1/portals", {
    token: bootstrapToken,
    json: { name: `east-${randomUUID().slice(0, 8)}`, role: "portal" },
  })
  if (made.status !== 201) throw new Error(made.text)
  tokens.push(made.body.token)
  return made.body.token
}

function connectTo(t: Test, url: string): postgres.Sql {
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}

/** What a careful client does: the same request with the same key, until it hears how it ended. */
async function untilSettled(server: Server, token: string, key: string, body: object, ms: number): Promise<Reply> {
  const until = Date.now() + ms
  for (;;) {
    const reply = await postSubmission(server.url, token, key, body).catch((error: Error) => error)
    if (!(reply instanceof Error) && reply.body?.retry !== "same-key") return reply
    if (Date.now() > until)
      throw new Error(
        `not settled within ${ms} ms: ${String(reply instanceof Error ? reply : reply.text)}\n${server.output().slice(-3_000)}`,
      )
    await delay(20)
  }
}

t.test("fifty identical requests at once over two processes are one effect, and fifty equal answers", async (t) => {
  const { url } = await createDatabase(t)
  const sql = connectTo(t, url)
  const one = await start(t, url)
  const two = await start(t, url)
  const token = await newPortal(one)
  for (let round = 0; round < 5; round++) {
    const replies = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        postSubmission(i % 2 === 0 ? one.url : two.url, token, longKey(`fifty-${round}`), valid()),
      ),
    )
    t.equal(replies.filter((reply) => reply.status === 201).length, 1, "one 201")
    const others = replies.filter((reply) => reply.status !== 201)
    t.ok(
      others.every(
        (reply) =>
          reply.status === 200 ||
          (reply.status === 409 && reply.body.code === "request-in-progress" && reply.headers["retry-after"]),
      ),
      "the rest replays, or in progress",
    )
    const bodies = replies.filter((reply) => reply.status < 300).map((reply) => reply.text)
    t.equal(new Set(bodies).size, 1, "equal bytes")
  }
  await exactly(t, sql, 5)

  // Derived keys, both processes, and each request in a spelling of its own.
  const spelled = await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      postSubmission(i % 2 === 0 ? one.url : two.url, token, null, {
        ...valid(i % 3 === 0 ? "a-2026-014" : "A-2026-014"),
        submission_timestamp: i % 4 === 0 ? "2025-07-01T11:00:00+02:00" : "2025-07-01T09:00:00Z",
      }),
    ),
  )
  t.equal(spelled.filter((reply) => reply.status === 201).length, 1, "without keys, too")
  await exactly(t, sql, 6)

  for (const server of [one, two]) t.same(await server.kill("SIGTERM"), { code: 0, signal: null })
})

t.test(
  "a server killed while a request waits leaves nothing locked: after the restart it is recorded at once",
  async (t) => {
    const { url } = await createDatabase(t)
    const sql = connectTo(t, url)
    const first = await start(t, url)
    const token = await newPortal(first)
    t.equal((await postSubmission(first.url, token, longKey("opens"), valid("HELD"))).status, 201)
    const key = longKey("slow")
    let lost: Promise<unknown> = Promise.resolve()
    await sql.begin(async (holder) => {
      await holder`SELECT 1 FROM awards WHERE award_key = 'HELD' FOR UPDATE`
      lost = t.rejects(postSubmission(first.url, token, key, valid("held")), "its client hears nothing")
      await untilInside(first)
      await first.kill("SIGKILL")
    })
    await lost
    const again = await start(t, url)
    t.equal((await getKey(again.url, token, key)).body.code, "idempotency-key-unknown")
    const began = performance.now()
    t.equal((await postSubmission(again.url, token, key, valid("held"))).status, 201)
    t.ok(performance.now() - began < 2_000, "at once: before any lock would have run out")
    t.equal((await postSubmission(again.url, token, key, valid("held"))).status, 200)
    const opened = await postSubmission(again.url, token, longKey("opens"), valid("HELD"))
    t.equal(opened.status, 200, "and what was recorded before is replayed")
    await exactly(t, sql, 2)
  },
)

/** Waits until a request is inside the server's gate. */
async function untilInside(server: Server): Promise<void> {
  const until = Date.now() + 5_000
  for (;;) {
    const { text } = await send(server.url, "GET", "/metrics", { token: bootstrapToken })
    if (/^grantgate_gate_members [1-9]/m.test(text)) return
    if (Date.now() > until) throw new Error("no request came inside")
  }
}

t.test(
  "SIGTERM under load: every request let in is answered, the end comes inside 10 s, and nothing is lost",
  async (t) => {
    const { url } = await createDatabase(t)
    const sql = connectTo(t, url)
    const server = await start(t, url)
    const token = await newPortal(server)
    t.equal((await postSubmission(server.url, token, longKey("opens"), valid("HELD"))).status, 201)
    const acknowledged = new Set<string>([longKey("opens")])
    const sent: string[] = []
    let refused = 0
    const post = async (key: string, award: string) => {
      sent.push(key)
      const reply = await postSubmission(server.url, token, key, valid(award)).catch((error: Error) => error)
      if (reply instanceof Error) {
        // Refused at the door, or closed as idle while this request was on the wire: then it was not let in, which the books show below.
        refused += 1
      } else if (reply.status === 201) acknowledged.add(key)
      else if (reply.body.code === "unavailable" || reply.body.code === "overloaded") refused += 1
      else t.fail(`${reply.status} ${reply.text}`)
    }
    let stopping = false
    const clients = Array.from({ length: 8 }, async (_, c) => {
      for (let i = 0; !stopping; i++) await post(longKey(`c${c}-${i}`), `A-${c % 3}`)
    })
    // Some wait for an award that is held until after the signal.
    let before = 0
    const { waiting } = await sql.begin(async (holder) => {
      await holder`SELECT 1 FROM awards WHERE award_key = 'HELD' FOR UPDATE`
      const waiting = Array.from({ length: 5 }, (_, i) =>
        postSubmission(server.url, token, longKey(`held-${i}`), valid("HELD")),
      )
      await untilInside(server)
      await sql`SELECT pg_sleep(0.3)`
      before = Date.now()
      server.child.kill("SIGTERM")
      await server.said(/"msg":"stopping"/)
      await sql`SELECT pg_sleep(0.3)`
      stopping = true
      return { waiting }
    })
    for (const [i, reply] of (await Promise.all(waiting)).entries()) {
      t.equal(reply.status, 201, "what was inside is finished and answered")
      acknowledged.add(longKey(`held-${i}`))
    }
    t.same(await server.ended, { code: 0, signal: null })
    t.ok(Date.now() - before < 10_000, "inside 10 s")
    await Promise.all(clients)
    t.ok(acknowledged.size > 10 && sent.length > 10, `${acknowledged.size} recorded, ${refused} not let in`)
    const rows = await sql<{ key: string }[]>`SELECT idempotency_key AS key FROM claims`
    t.same(
      rows.map((row) => row.key).toSorted(),
      [...acknowledged].toSorted(),
      "what was let in is recorded and was answered; what was not let in is not recorded",
    )
    await exactly(t, sql, acknowledged.size)
  },
)

t.test("a client that goes away right after sending can ask what became of its key, and may send again", async (t) => {
  const { url } = await createDatabase(t)
  const sql = connectTo(t, url)
  const server = await start(t, url)
  const token = await newPortal(server)
  const body = JSON.stringify(valid())
  let recorded = 0
  for (let i = 0; i < 20; i++) {
    const key = longKey(`gone-${i}`)
    const head = `POST /v1/submissions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nIdempotency-Key: ${key}\r\nContent-Length: ${body.length}\r\n\r\n`
    await abortAfter(server.url, head + body)
    const { status, body: state } = await getKey(server.url, token, key)
    if (status === 404) t.equal(state.code, "idempotency-key-unknown")
    else t.match(state.state, /^(completed|in_progress)$/)
    const retry = await postSubmission(server.url, token, key, valid())
    t.ok(retry.status === 200 || retry.status === 201, `the retry is safe: ${retry.status}`)
    if (state.state === "completed") {
      recorded += 1
      t.equal(retry.status, 200, "what was said to be recorded is replayed")
      t.equal(retry.body.id, state.disbursement_id)
    }
    t.equal((await getKey(server.url, token, key)).body.disbursement_id, retry.body.id)
  }
  t.comment(`${recorded} of 20 were recorded when asked`)
  await exactly(t, sql, 20)
})

t.test("without its database it says so in a sentence and exits 1", async (t) => {
  for (const url of ["postgres://me:hunter2@127.0.0.1:1/x", "postgres://me:hunter2@database.invalid/x"]) {
    const server = startProcess((work) => t.teardown(work), executable, ["serve"], {
      DATABASE_URL: url,
      LOG_LEVEL: "error",
    })
    t.same(await server.ended, { code: 1, signal: null })
    t.match(server.output(), /^grantgate: The database cannot be reached[^\n]*\.\n$/)
    t.notMatch(server.output(), /hunter2/)
  }
})

t.test("a Postgres that restarts or freezes under load costs time, and no request its truth", async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "grantgate-e2e-"))
  t.teardown(() => rm(dataDir, { recursive: true, force: true }))
  const embedded = await startEmbedded({ dataDir, log: { info: () => {}, warn: () => {} } })
  t.teardown(() => embedded.stop())
  const location = await readFile(join(dataDir, "location"), "utf8").catch(() => dataDir)
  const cluster = join(location.trim(), "postgres")
  const postmaster = async () => (await readPidFile(cluster))?.pid as number
  const server = await start(t, embedded.url)
  const token = await newPortal(server)

  await t.test(
    "restarted under load, the same server process is back within 5 s; nothing lost, nothing doubled",
    async (t) => {
      const answered = new Map<string, Reply>()
      const times: number[] = []
      let over = false
      const clients = Array.from({ length: 6 }, async (_, c) => {
        for (let i = 0; !over; i++) {
          const key = longKey(`c${c}-${i}`)
          answered.set(key, await untilSettled(server, token, key, valid(`A-${c % 3}`, 7), 20_000))
          times.push(performance.now())
        }
      })
      const untilServed = async (since: number) => {
        while (!times.some((at) => at > since)) await delay(10)
      }
      await untilServed(0)
      for (const signal of ["SIGINT", "SIGQUIT", "SIGKILL"] as const) {
        const pid = await postmaster()
        process.kill(pid, signal)
        while ((await processState(pid)) !== null) await delay(5)
        const down = performance.now()
        await untilServed(down + 1)
        const ms = Math.round(Math.min(...times.filter((at) => at > down + 1)) - down)
        t.ok(ms < 5_000, `${signal}: served again after ${ms} ms`)
      }
      over = true
      await Promise.all(clients)
      t.same(
        [...new Set([...answered.values()].map((reply) => reply.status))].filter(
          (status) => status !== 200 && status !== 201,
        ),
        [],
        "each ended in success",
      )
      const sql = connectTo(t, embedded.url)
      const rows = await sql<{ key: string; id: string }[]>`SELECT idempotency_key AS key, id FROM disbursements`
      const ids = new Map(rows.map((row) => [row.key, row.id]))
      t.ok(
        [...answered].every(([key, reply]) => ids.get(key) === reply.body.id),
        "acknowledged is recorded",
      )
      await exactly(t, sql, answered.size)
    },
  )

  await t.test(
    "frozen, it leaves no request without an answer for 8 s; thawed, the retry gives exactly one effect",
    async (t) => {
      const sql = connectTo(t, embedded.url)
      const [{ n: before = 0 } = {}] = await sql<{ n: number }[]>`SELECT count(*)::int AS n FROM disbursements`
      await sql.end()
      t.equal((await postSubmission(server.url, token, longKey("warm"), valid("WARM"))).status, 201)
      const keys = Array.from({ length: 10 }, (_, i) => longKey(`frozen-${i}`))
      // Some are on their way when it freezes, some come after.
      const early = keys.slice(0, 5).map((key) => timed(() => postSubmission(server.url, token, key, valid("COLD"))))
      const frozen = await freeze(await postmaster())
      try {
        const late = keys.slice(5).map((key) => timed(() => postSubmission(server.url, token, key, valid("COLD"))))
        const reads = ["/v1/me", `/v1/idempotency-keys/${keys[0]}`, "/v1/disbursements", "/readyz"].map((path) =>
          timed(() => send(server.url, "GET", path, { token })),
        )
        for (const { reply, ms } of await Promise.all([...early, ...late, ...reads])) {
          t.ok(ms < 8_000, `answered after ${Math.round(ms)} ms`)
          if (reply.status < 300) continue
          t.match(reply.body, { status: 503, retry: "same-key", outcome: /^(not_applied|unknown)$/ })
          t.equal(reply.headers["retry-after"], "1")
        }
      } finally {
        frozen.thaw()
      }
      const settled = await Promise.all(keys.map((key) => untilSettled(server, token, key, valid("COLD"), 5_000)))
      t.ok(
        settled.every((reply) => reply.status === 200 || reply.status === 201),
        "thawed: recorded",
      )
      const again = await Promise.all(keys.map((key) => postSubmission(server.url, token, key, valid("COLD"))))
      t.same(
        again.map((reply) => reply.text),
        settled.map((reply) => reply.text),
        "and replayed",
      )
      await exactly(t, connectTo(t, embedded.url), before + 11)
    },
  )
})

async function timed(work: () => Promise<Reply>): Promise<{ reply: Reply; ms: number }> {
  const began = performance.now()
  return { reply: await work(), ms: performance.now() - began }
}

/** State and parent of a process; null when there is none. */
async function processState(pid: number): Promise<{ state: string; parent: number } | null> {
  const text = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => null)
  if (text === null) return null
  const [state = "", parent = ""] = text.slice(text.lastIndexOf(")") + 2).split(" ")
  return state === "Z" ? null : { state, parent: Number(parent) }
}

/** Stops a postmaster and then its backends, each by its id. */
async function freeze(pid: number): Promise<{ thaw(): void }> {
  process.kill(pid, "SIGSTOP")
  const pids = [pid]
  for (const name of await readdir("/proc")) {
    if (/^\d+$/.test(name) && (await processState(Number(name)))?.parent === pid) pids.push(Number(name))
  }
  const signal = (name: NodeJS.Signals) => {
    for (const one of pids) {
      try {
        process.kill(one, name)
      } catch {
        // It has ended by itself.
      }
    }
  }
  signal("SIGSTOP")
  return { thaw: () => signal("SIGCONT") }
}

t.test("the logs of all these servers tell each submission by key and award, and give nothing away", async (t) => {
  t.ok(servers.length > 5, "there were servers")
  const lines = servers.flatMap((server) =>
    server
      .output()
      .split("\n")
      .filter((line) => line !== ""),
  )
  const text = lines.join("\n")
  for (const secret of [
    marker,
    String(amount),
    bootstrapToken,
    "gg_",
    ...tokens.map((token) => token.slice(3)),
    "0123456789-",
  ])
    t.notOk(text.includes(secret), `no ${secret.slice(0, 6)}…`)
  t.notMatch(text, /\bselect\b|\binsert\b|hunter2/i, "no SQL, no password")
  const entries = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
  t.same(
    entries.filter((entry) => entry.level === "error" || entry.level === "fatal"),
    [],
    "nothing failed inside",
  )
  const audits = entries.filter((entry) => entry.msg === "recorded" || entry.msg === "replayed")
  t.ok(audits.every(({ key, award_id }) => typeof key === "string" && key.length <= 12 && typeof award_id === "string"))

  const fifty = audits.filter((entry) => entry.key === longKey("fifty-0").slice(0, 12))
  t.equal(fifty.filter((entry) => entry.msg === "recorded").length, 1, "one line for the submission")
  t.equal(fifty.filter((entry) => entry.msg === "replayed").length, 49, "and one for each suppressed duplicate")
  t.match(fifty[0], {
    level: "info",
    award_id: "A-2026-014",
    route: "/v1/submissions",
    status: Number,
    request_id: String,
  })
})
