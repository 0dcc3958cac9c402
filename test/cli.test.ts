/** The executable: starting, stopping, what it says when it cannot, and the commands beside a running server. */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { connect, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import t, { type Test } from "tap"
import { createDatabase } from "./support/database.js"
import { executable } from "./support/server.js"

const root = fileURLToPath(new URL("..", import.meta.url))
/** Long, for a busy machine. */
const startMs = 60_000
t.setTimeout(480_000)

interface Process {
  readonly child: ChildProcess
  readonly ended: Promise<{ code: number | null; signal: string | null }>
  output(): string
  /** Resolves when the output has it. */
  said(pattern: RegExp): Promise<RegExpExecArray>
}

function run(t: Test, args: readonly string[], env: Record<string, string> = {}): Process {
  const child = spawn(process.execPath, [executable, ...args], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, PORT: "0", ...env },
  })
  let output = ""
  const waiting = new Set<() => void>()
  const ended = once(child, "close").then(([code, signal]) => ({ code, signal }))
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (chunk) => {
      output += chunk
      for (const look of waiting) look()
    })
  }
  t.teardown(async () => {
    child.kill("SIGKILL")
    await ended
  })
  const said = (pattern: RegExp) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      const look = () => {
        const found = pattern.exec(output)
        if (!found) return
        waiting.delete(look)
        clearTimeout(late)
        resolve(found)
      }
      const late = setTimeout(() => reject(new Error(`it did not say ${pattern}:\n${output}`)), startMs)
      waiting.add(look)
      void ended.then(() => {
        clearTimeout(late)
        reject(new Error(`it ended without saying ${pattern}:\n${output}`))
      })
      look()
    })
  return { child, ended, output: () => output, said }
}

async function finish(t: Test, args: readonly string[], env: Record<string, string> = {}) {
  const process = run(t, args, env)
  const { code } = await process.ended
  return { code, output: process.output() }
}

const listening = /"msg":"listening on (http:[^"]+)"/
const submission = { award_id: "A-1", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 1 }

t.test("what it cannot do is one sentence, and exit code 1", async (t) => {
  const taken = createServer().listen(0, "127.0.0.1")
  await once(taken, "listening")
  t.teardown(() => taken.close())
  const { port } = taken.address() as { port: number }
  const { url } = await createDatabase(t)
  const cases: [string, Record<string, string>, RegExp][] = [
    [
      "the configuration",
      { PORT: "many", GRANTGATE_BOOTSTRAP_TOKEN: "secret" },
      /PORT: must be a whole number.*GRANTGATE_BOOTSTRAP_TOKEN/,
    ],
    ["the database", { DATABASE_URL: "postgres://me:hunter2@127.0.0.1:1/x" }, /database cannot be reached/],
    ["the port", { DATABASE_URL: url, PORT: String(port) }, /port is in use/],
  ]
  await Promise.all(
    cases.map(async ([about, env, sentence]) => {
      const { code, output } = await finish(t, ["serve"], { LOG_LEVEL: "error", ...env })
      t.equal(code, 1, about)
      t.match(output, sentence, about)
      t.equal(output.trim().split("\n").length, 1, `${about}: one line`)
      t.notMatch(output, /hunter2|secret|\bat .*:\d+/, `${about}: no values, no stack`)
    }),
  )
  const old = await createDatabase(t, { migrated: false })
  const refused = await finish(t, ["serve"], { DATABASE_URL: old.url, GRANTGATE_MIGRATE: "false" })
  t.equal(refused.code, 1)
  t.match(refused.output, /older than this grantgate.*grantgate migrate/)
  t.equal((await finish(t, ["migrate"], { DATABASE_URL: old.url })).code, 0)
  t.match((await finish(t, ["portal", "list", "--all"], { DATABASE_URL: old.url })).output, /unknown option/)
})

t.test("SIGTERM finishes what is in flight, and exits 0", async (t) => {
  const { url: databaseUrl } = await createDatabase(t)
  const env = { DATABASE_URL: databaseUrl, GRANTGATE_MIGRATE: "false" }
  const made = await finish(t, ["portal", "create", "east"], env)
  const token = /gg_[\w-]{43}/.exec(made.output)?.[0]
  t.equal(made.code, 0)
  const server = run(t, ["serve"], env)
  const url = new URL((await server.said(listening))[1] ?? "")

  const body = JSON.stringify(submission)
  const head = `POST /v1/submissions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`
  const idle = connect(Number(url.port), url.hostname)
  const busy = connect(Number(url.port), url.hostname)
  await Promise.all([once(idle, "connect"), once(busy, "connect")])
  busy.write(head + body + head + body.slice(0, 10))
  const [first] = await once(busy, "data")
  t.match(String(first), /^HTTP\/1.1 201 /)

  const before = Date.now()
  server.child.kill("SIGTERM")
  await server.said(/"msg":"stopping"/)
  await t.rejects(fetch(url), "nobody new is let in")
  await once(idle.resume(), "close")
  busy.write(body.slice(10))
  const [second] = await once(busy, "data")
  t.match(
    String(second),
    /^HTTP\/1.1 200 [\s\S]*connection: close/i,
    "the request in flight has its answer, and the connection ends",
  )
  const { code } = await server.ended
  t.equal(code, 0)
  t.ok(Date.now() - before < 10_000, "inside 10 s")
})

t.test("a client that dawdles does not keep it from stopping; a second signal ends it at once", async (t) => {
  const { url: databaseUrl } = await createDatabase(t)
  const env = { DATABASE_URL: databaseUrl, GRANTGATE_BOOTSTRAP_TOKEN: "b".repeat(32) }
  const server = run(t, ["serve"], env)
  const other = run(t, ["serve"], env)
  const dawdle = async (server: Process) => {
    const url = new URL((await server.said(listening))[1] ?? "")
    const socket = connect(Number(url.port), url.hostname)
    socket.on("error", () => {})
    socket.write(
      `POST /v1/portals HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${"b".repeat(32)}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{`,
    )
    // The answer to a later request says that the first one has been read.
    await fetch(url)
  }
  await Promise.all([dawdle(server), dawdle(other)])
  const before = Date.now()
  server.child.kill("SIGTERM")
  other.child.kill("SIGINT")
  await other.said(/"msg":"stopping"/)
  other.child.kill("SIGINT")
  t.equal((await other.ended).code, 1)
  t.ok(Date.now() - before < 5_000, "at once")
  t.equal((await server.ended).code, 0)
  t.ok(Date.now() - before < 10_000, "inside 10 s")
})

t.test("without a database of your own it brings one, and what to paste", async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "grantgate-cli-"))
  t.teardown(() => rm(dataDir, { recursive: true, force: true }))
  const env = { GRANTGATE_DATA_DIR: dataDir }
  const first = run(t, ["serve"], env)
  const [, url = "", token = "", body = ""] = await first.said(
    /curl -i (\S+)\/v1\/submissions[\s\S]+Bearer (gg_[\w-]{43})'[\s\S]+-d '([^']+)'[\s\S]+token add demo/,
  )
  const paste = () =>
    fetch(`${url}/v1/submissions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", "idempotency-key": '"demo-1"' },
      body,
    })
  t.equal((await paste()).status, 201)
  t.equal((await paste()).status, 200)

  const added = await finish(t, ["portal", "token", "add", "demo"], env)
  t.equal(added.code, 0, "beside the running server")
  const second = /gg_[\w-]{43}/.exec(added.output)?.[0]
  t.equal((await fetch(`${url}/v1/me`, { headers: { authorization: `Bearer ${second}` } })).status, 200)
  const list = await finish(t, ["portal", "list"], env)
  t.match(list.output, /^demo {2}portal {2}/m)
  const [id] = /(?<=token )\S+/.exec(list.output) ?? []
  t.equal((await finish(t, ["portal", "token", "revoke", "demo", id ?? ""], env)).code, 0)
  t.match(
    (await finish(t, ["portal", "token", "add", "nobody"], env)).output,
    /^grantgate: There is no portal nobody\.$/m,
  )
  first.child.kill("SIGTERM")
  t.equal((await first.ended).code, 0)
  t.notMatch(first.output().replace(/curl[\s\S]+?token add demo/, ""), /gg_/, "the token is nowhere else")

  const again = run(t, ["serve"], env)
  await again.said(/`demo` is there from an earlier start/)
  t.notMatch(again.output(), /gg_/, "a token is shown once")
  again.child.kill("SIGTERM")
  t.equal((await again.ended).code, 0)
})

t.test("the OpenAPI document is written, and checked for staleness", async (t) => {
  const folder = t.testdir({})
  const file = join(folder, "openapi.json")
  t.equal((await finish(t, ["openapi", "--write", file])).code, 0)
  t.equal(JSON.parse(await readFile(file, "utf8")).openapi, "3.1.0")
  t.equal((await finish(t, ["openapi", "--check", file])).code, 0)
  await writeFile(file, "{}\n")
  const stale = await finish(t, ["openapi", "--check", file])
  t.equal(stale.code, 1)
  t.match(stale.output, /is stale. Run: grantgate openapi --write/)
})
