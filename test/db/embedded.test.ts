/**
 * The embedded Postgres against what happens to it: kills of it, of its server and of both, folders it may not use, root and ordinary
 * users. Only processes that a test itself started are killed, by their number.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { EventEmitter, once } from "node:events"
import { chmod, chown, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import postgres from "postgres"
import t, { type Test } from "tap"
import { EmbeddedError, findEmbedded, startEmbedded } from "../../src/db/embedded.js"

/** Measured at 1.3 s and 0.2 s; the rest is for a machine that is busy with other tests. */
const FIRST_START_MS = 30_000
const LATER_START_MS = 10_000
const isRoot = process.getuid?.() === 0
const program = fileURLToPath(new URL("../support/embedded-server.ts", import.meta.url))

t.test("the first start makes the data, a later one finds it", async (t) => {
  const dataDir = await makeFolder(t)
  const log: string[] = []
  const began = Date.now()
  const first = await startIn(t, dataDir, log)
  t.ok(Date.now() - began < FIRST_START_MS, `first start within ${FIRST_START_MS} ms`)
  await query(first.url, "CREATE TABLE kept AS SELECT 42 AS answer")
  await first.stop()
  await first.stop()

  const again = Date.now()
  const second = await startIn(t, dataDir, log)
  t.ok(Date.now() - again < LATER_START_MS, `later start within ${LATER_START_MS} ms`)
  t.same(await query(second.url, "SELECT answer FROM kept"), [{ answer: 42 }])
  t.equal(log.filter((line) => line.startsWith("Making")).length, 1)
  t.notOk(log.join().includes(new URL(first.url).password), "no password in the log")
})

t.test("it is durable, UTF-8, sorted alike everywhere, on loopback only and behind a password", async (t) => {
  const dataDir = await makeFolder(t)
  const { url } = await startIn(t, dataDir)
  const [settings] = await query(
    url,
    `SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages,
            current_setting('synchronous_commit') AS commit, current_setting('listen_addresses') AS listen,
            current_setting('unix_socket_directories') AS sockets, current_setting('server_encoding') AS encoding,
            (SELECT datlocprovider::text || ' ' || datlocale FROM pg_database WHERE datname = current_database()) AS locale`,
  )
  t.same(settings, {
    fsync: "on",
    pages: "on",
    commit: "on",
    listen: "127.0.0.1",
    sockets: "",
    encoding: "UTF8",
    locale: "b C.UTF-8",
  })
  t.equal((await stat(join(dataDir, "password"))).mode & 0o777, 0o600)
  const wrong = new URL(url)
  wrong.password = "wrong"
  await t.rejects(query(wrong.href, "SELECT 1"), { code: "28P01" })
})

t.test("a second start on the same folder is refused in a sentence that names the first", async (t) => {
  const dataDir = await makeFolder(t)
  const first = await startServer(t, dataDir)
  const refused = await startIn(t, dataDir).then(
    () => null,
    (error: unknown) => error,
  )
  t.type(refused, EmbeddedError)
  t.match((refused as Error).message, `process ${first.child.pid}`)
  t.same(await query(first.url, "SELECT 1 AS one"), [{ one: 1 }], "the first goes on")
  t.equal(await findEmbedded(dataDir), first.url, "a command beside it finds it")
})

t.test("nothing is found on a folder where no server runs", async (t) => {
  const dataDir = await makeFolder(t)
  t.equal(await findEmbedded(dataDir), null)
  t.equal(await findEmbedded(join(dataDir, "not there")), null)
})

t.test("when Postgres is killed it comes back on the same URL with all that was committed", async (t) => {
  const dataDir = await makeFolder(t)
  const log: string[] = []
  const back = new EventEmitter()
  const { url } = await startIn(t, dataDir, log, back)
  await query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
  const said = within(LATER_START_MS, once(back, "The embedded Postgres is back."))
  process.kill(await postmasterPid(dataDir), "SIGKILL")
  await said
  t.same(await query(url, "SELECT answer FROM kept"), [{ answer: 42 }])
  t.ok(log.some((line) => line.includes("SIGKILL")))
})

t.test("stopping in the middle of a restart leaves no Postgres behind", async (t) => {
  const dataDir = await makeFolder(t)
  const embedded = await startIn(t, dataDir)
  process.kill(await postmasterPid(dataDir), "SIGKILL")
  await embedded.stop()
  await t.rejects(query(embedded.url, "SELECT 1"), { code: "ECONNREFUSED" })
  const next = await startIn(t, dataDir)
  t.same(await query(next.url, "SELECT 1 AS one"), [{ one: 1 }])
})

t.test("the Postgres of a killed server is stopped by the next start, and its data served", async (t) => {
  const dataDir = await makeFolder(t)
  const server = await startServer(t, dataDir)
  await query(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
  const orphan = await postmasterPid(dataDir)
  await kill(server.child)
  t.ok(await isAlive(orphan), "Postgres outlived its server")

  const began = Date.now()
  const next = await startIn(t, dataDir)
  t.ok(Date.now() - began < LATER_START_MS)
  t.notOk(await isAlive(orphan))
  t.same(await query(next.url, "SELECT answer FROM kept"), [{ answer: 42 }])
})

t.test("after a kill of server and Postgres both, the next start serves what was committed", async (t) => {
  const dataDir = await makeFolder(t)
  const server = await startServer(t, dataDir)
  await query(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
  const orphan = await postmasterPid(dataDir)
  await kill(server.child)
  process.kill(orphan, "SIGKILL")
  const next = await startIn(t, dataDir)
  t.same(await query(next.url, "SELECT answer FROM kept"), [{ answer: 42 }])
})

t.test(
  "a stale pid file whose number now belongs to a stranger neither blocks a start nor harms the stranger",
  async (t) => {
    const dataDir = await makeFolder(t)
    const server = await startServer(t, dataDir)
    const orphan = await postmasterPid(dataDir)
    await kill(server.child)
    process.kill(orphan, "SIGKILL")
    const stranger = spawn("sleep", ["600"], { stdio: "ignore" })
    t.teardown(() => kill(stranger))
    const file = join(dataDir, "postgres", "postmaster.pid")
    await writeFile(file, (await readFile(file, "utf8")).replace(/^\d+/, String(stranger.pid)))
    const next = await startIn(t, dataDir)
    t.same(await query(next.url, "SELECT 1 AS one"), [{ one: 1 }])
    t.ok(await isAlive(stranger.pid as number))
  },
)

t.test("a folder that cannot be used is refused in a sentence that names it and GRANTGATE_DATA_DIR", async (t) => {
  const file = join(await makeFolder(t), "file")
  await writeFile(file, "")
  // No user makes folders under /proc, root included.
  for (const dataDir of [file, join(file, "below"), "/proc/grantgate"]) {
    const refused = await startIn(t, dataDir).catch((error: unknown) => error)
    t.type(refused, EmbeddedError, dataDir)
    t.match((refused as Error).message, "GRANTGATE_DATA_DIR", dataDir)
    t.match((refused as Error).message, dataDir, dataDir)
  }
})

t.test("data whose password is lost is not replaced", async (t) => {
  const dataDir = await makeFolder(t)
  await (await startIn(t, dataDir)).stop()
  await rm(join(dataDir, "password"))
  await t.rejects(startIn(t, dataDir), { name: "EmbeddedError", message: /password/ })
  t.ok(await stat(join(dataDir, "postgres")))
})

t.test("data of another PostgreSQL is refused, and left as it is", async (t) => {
  const dataDir = await makeFolder(t)
  await (await startIn(t, dataDir)).stop()
  await writeFile(join(dataDir, "postgres", "PG_VERSION"), "13\n")
  await t.rejects(startIn(t, dataDir), { name: "EmbeddedError", message: /made by PostgreSQL 13/ })
})

t.test(
  "root's folder that Postgres's user cannot enter is served from a place it can, and kept",
  { skip: isRoot ? false : "needs root" },
  async (t) => {
    const dataDir = join(await makeFolder(t, 0o700), "data")
    const first = await startIn(t, dataDir)
    const place = (await readFile(join(dataDir, "location"), "utf8")).trim()
    t.teardown(() => rm(place, { recursive: true, force: true }))
    await query(first.url, "CREATE TABLE kept AS SELECT 42 AS answer")
    await first.stop()
    const second = await startIn(t, dataDir)
    t.same(await query(second.url, "SELECT answer FROM kept"), [{ answer: 42 }])
    await second.stop()
  },
)

t.test("an ordinary user runs it, and is told which folder is not theirs", { skip: asNobody() }, async (t) => {
  const folder = await makeFolder(t)
  await chown(folder, NOBODY, NOBODY)
  const own = await startServer(t, join(folder, "own"), NOBODY)
  t.same(await query(own.url, "SELECT 1 AS one"), [{ one: 1 }])
  t.equal((await stat(join(folder, "own", "postgres"))).uid, NOBODY)

  const foreign = join(folder, "foreign")
  await mkdir(foreign, { mode: 0o755 })
  const { refused } = await spawnServer(t, foreign, NOBODY)
  t.match(refused, `may not read and write ${foreign}`)
})

/** The number that every Linux gives to `nobody`. */
const NOBODY = 65_534

/** Only root can become somebody else, and only in a checkout that somebody else may read. */
function asNobody(): string | false {
  if (!isRoot) return "needs root, to become somebody else"
  return program.startsWith("/root/") ? "needs a checkout that others may read" : false
}

async function makeFolder(t: Test, mode = 0o755): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "grantgate-embedded-"))
  await chmod(folder, mode)
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** Teardowns run last in, first out: it is stopped before its folder is removed. */
async function startIn(t: Test, dataDir: string, log: string[] = [], lines?: EventEmitter) {
  const add = (text: string) => {
    log.push(text)
    lines?.emit(text)
  }
  const embedded = await startEmbedded({ dataDir, log: { info: add, warn: add } })
  t.teardown(() => embedded.stop())
  return embedded
}

async function startServer(t: Test, dataDir: string, uid?: number): Promise<{ url: string; child: ChildProcess }> {
  const { url, refused, child } = await spawnServer(t, dataDir, uid)
  if (url === undefined) throw new Error(refused)
  return { url, child }
}

/** A server of its own process, stopped in order at the end if it still lives. */
async function spawnServer(t: Test, dataDir: string, uid?: number) {
  // Without our environment, in which tap has every Node process write where only we may.
  const node = ["-i", "PATH=/usr/bin:/bin", process.execPath, "--import", import.meta.resolve("tsx"), program, dataDir]
  const child = spawn("/usr/bin/env", node, {
    stdio: ["pipe", "pipe", "inherit"],
    ...(uid === undefined ? {} : { uid, gid: uid }),
  })
  const exited = once(child, "exit")
  t.teardown(async () => {
    child.stdin?.end()
    await exited
  })
  child.stdin?.on("error", () => {})
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
  const line = await Promise.race([once(lines, "line"), exited.then(() => null)])
  if (line === null) throw new Error("the server ended without a word")
  return { ...(JSON.parse(line[0] as string) as { url?: string; refused?: string }), child }
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, "exit")
  child.kill("SIGKILL")
  await exited
}

async function postmasterPid(dataDir: string): Promise<number> {
  const pid = Number((await readFile(join(dataDir, "postgres", "postmaster.pid"), "utf8")).split("\n")[0])
  if (!(pid > 1)) throw new Error("no postmaster")
  return pid
}

/** A process that only waits for its parent to notice its end counts as gone. */
async function isAlive(pid: number): Promise<boolean> {
  return /^State:\s+[^ZX]/m.test(await readFile(`/proc/${pid}/status`, "utf8").catch(() => ""))
}

async function query(url: string, statement: string): Promise<unknown[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {}, connect_timeout: 5 })
  try {
    return [...(await sql.unsafe(statement))]
  } finally {
    await sql.end({ timeout: 1 })
  }
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing within ${ms} ms`)), ms)
  })
  return await Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
