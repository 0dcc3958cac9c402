/**
 * The process of the embedded Postgres: started on a free port until it is ready, started again when it dies, stopped in bounded time.
 * Tells a Postgres that a killed server left behind from a stale pid file, whose number may by now be anybody's. Whoever calls this holds
 * the lock of the data folder; without it nothing here is safe.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { open, readFile, readlink, rename, stat, writeFile } from "node:fs/promises"
import { createServer } from "node:net"
import { join } from "node:path"
import { setTimeout as wait } from "node:timers/promises"
import { type Binaries, describeFailure, run, spawnOptions } from "./embedded-binaries.js"

export interface EmbeddedLog {
  info(text: string): void
  warn(text: string): void
}

/** Start to ready; redoing the log after a crash of a busy server takes its time. */
const READY_MS = 60_000
/** How often a starting or stopping Postgres is looked at. */
const LOOK_MS = 20
/** Fast shutdown, then immediate, then the axe: together well inside the time a server has to stop. */
const FAST_STOP_MS = 4_000
const IMMEDIATE_STOP_MS = 1_500
/** Between starts of a Postgres that keeps dying. */
const RESTART_MS_MIN = 100
const RESTART_MS_MAX = 5_000
/** Ports tried, and how long the rest of a killed Postgres may take to leave its shared memory. */
const PORTS_MAX = 5
const LEFTOVERS_MS = 10_000
const LOG_BYTES_MAX = 1024 * 1024

/** For a small machine; on the command line, so that an upgrade changes them for data that exists. */
const SETTINGS = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  max_connections: "100",
  shared_buffers: "128MB",
  max_wal_size: "512MB",
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  jit: "off",
  timezone: "UTC",
  log_timezone: "UTC",
  client_connection_check_interval: "500ms",
  tcp_keepalives_idle: "5",
  tcp_keepalives_interval: "1",
  tcp_keepalives_count: "3",
  // Errors of statements reach their client; in this log they would be payloads.
  log_min_messages: "log",
  log_min_error_statement: "panic",
  log_checkpoints: "off",
  log_destination: "stderr",
  logging_collector: "off",
}

export interface Running {
  readonly child: ChildProcess
  readonly port: number
}

/** Starts Postgres and waits until it is ready; passes by ports that others take, and waits for what a killed one left. */
export async function launchOnFreePort(binaries: Binaries, cluster: string): Promise<Running> {
  const leftoversUntil = Date.now() + LEFTOVERS_MS
  for (let ports = 1; ; ) {
    const port = await freePort()
    const outcome = await launch(binaries, cluster, port)
    if (typeof outcome !== "string") return { child: outcome, port }
    if (/Address already in use/i.test(outcome) && ports++ < PORTS_MAX) continue
    if (isLeftovers(outcome) && Date.now() < leftoversUntil) {
      await wait(LOOK_MS * 5)
      continue
    }
    throw describeFailure(outcome, cluster)
  }
}

/** Backends outlive a killed postmaster for a moment. */
function isLeftovers(output: string): boolean {
  return /pre-existing shared memory block/i.test(output)
}

/** One attempt: the process once it is ready, or what it said when it ended. */
async function launch(
  binaries: Binaries,
  cluster: string,
  port: number,
  stopped?: AbortSignal,
): Promise<ChildProcess | string> {
  await disownPidFile(cluster)
  const logFile = `${cluster}.log`
  const size = await stat(logFile).then(
    (file) => file.size,
    () => 0,
  )
  if (size > LOG_BYTES_MAX) await rename(logFile, `${logFile}.1`)
  const output = await open(logFile, "a+", 0o600)
  const from = (await output.stat()).size
  const settings = Object.entries({ ...SETTINGS, port: String(port) }).flatMap(([name, value]) => [
    "-c",
    `${name}=${value}`,
  ])
  // A session of its own: a Ctrl-C in the terminal is for us, and we stop it in our own time.
  const child = spawn(join(binaries.bin, "postgres"), ["-D", cluster, ...settings], {
    ...spawnOptions(binaries.runAs),
    stdio: ["ignore", output.fd, output.fd],
    detached: true,
  })
  child.unref()
  let failed: string | null = null
  child.once("error", (error) => {
    failed = error.message
  })
  try {
    const until = Date.now() + READY_MS
    for (;;) {
      if (failed !== null) return failed
      if (hasEnded(child)) {
        const said = Buffer.alloc(16_384)
        const { bytesRead } = await output.read(said, 0, said.length, from)
        return said.toString("utf8", 0, bytesRead) || `exit ${child.exitCode ?? child.signalCode}`
      }
      const running = await readPidFile(cluster)
      if (running !== null && running.pid === child.pid && running.status === "ready") return child
      if (stopped?.aborted || Date.now() > until) {
        await stopProcess(child)
        return `not ready within ${READY_MS / 1000} s; its log is ${logFile}`
      }
      await wait(LOOK_MS)
    }
  } finally {
    await output.close()
  }
}

/** Starts it again whenever it ends, on the same port, until it is told to stop. */
export function supervise(
  first: Running,
  binaries: Binaries,
  cluster: string,
  log: EmbeddedLog,
): { stop(): Promise<void> } {
  const stopped = new AbortController()
  let current: ChildProcess | null = first.child
  const loop = async () => {
    let child = first.child
    for (let pause = RESTART_MS_MIN; ; pause = Math.min(pause * 2, RESTART_MS_MAX)) {
      const startedAt = Date.now()
      if (!hasEnded(child)) await once(child, "exit")
      current = null
      if (Date.now() - startedAt > RESTART_MS_MAX) pause = RESTART_MS_MIN
      if (stopped.signal.aborted) return
      log.warn(`The embedded Postgres ended (${child.signalCode ?? `exit ${child.exitCode}`}); starting it again.`)
      for (;;) {
        await wait(pause, undefined, { ref: false, signal: stopped.signal }).catch(() => {})
        if (stopped.signal.aborted) return
        const outcome = await launch(binaries, cluster, first.port, stopped.signal).catch((error: unknown) =>
          String(error),
        )
        if (typeof outcome !== "string") {
          child = outcome
          break
        }
        if (stopped.signal.aborted) return
        if (!isLeftovers(outcome)) log.warn(describeFailure(outcome, cluster).message)
        pause = Math.min(pause * 2, RESTART_MS_MAX)
      }
      if (stopped.signal.aborted) return await stopProcess(child)
      current = child
      log.info("The embedded Postgres is back.")
    }
  }
  const ended = loop()
  return {
    stop: async () => {
      stopped.abort()
      if (current !== null) await stopProcess(current)
      await ended
    },
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null
}

async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.pid !== undefined) await signalUntil(child.pid, () => hasEnded(child))
}

/** Signals ever less politely until `isGone`. */
async function signalUntil(pid: number, isGone: () => boolean | Promise<boolean>): Promise<void> {
  for (const [signal, ms] of [
    ["SIGINT", FAST_STOP_MS],
    ["SIGQUIT", IMMEDIATE_STOP_MS],
    ["SIGKILL", IMMEDIATE_STOP_MS],
  ] as const) {
    if (await isGone()) return
    try {
      process.kill(pid, signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ESRCH") return
      throw error
    }
    const until = Date.now() + ms
    while (Date.now() < until) {
      if (await isGone()) return
      await wait(LOOK_MS)
    }
  }
}

/** A Postgres on our data while we hold the lock belongs to a server that was killed. */
export async function stopOrphan(cluster: string, log: EmbeddedLog): Promise<void> {
  const running = await readPidFile(cluster)
  if (running === null || !(await isPostmaster(running.pid, cluster))) return
  log.info("The Postgres of a server that was killed is still running; stopping it.")
  await signalUntil(running.pid, async () => !(await isPostmaster(running.pid, cluster)))
}

/** Not merely any process that has come to bear the number since. */
async function isPostmaster(pid: number, cluster: string): Promise<boolean> {
  if (process.platform === "linux") {
    const name = await readFile(`/proc/${pid}/comm`, "utf8").catch(() => "")
    return name.trim() === "postgres" && (await readlink(`/proc/${pid}/cwd`).catch(() => "")) === cluster
  }
  return (await run("/bin/ps", ["-p", String(pid), "-o", "command="], null)).output.includes(` -D ${cluster} `)
}

/**
 * Postgres refuses to start when the process that its pid file names exists, whoever that is by now. Naming its parent, us, says "not a
 * postmaster"; removing the file instead would also remove its guard against backends that are still there.
 */
async function disownPidFile(cluster: string): Promise<void> {
  const file = join(cluster, "postmaster.pid")
  const text = await readFile(file, "utf8").catch(() => null)
  if (text === null) return
  await writeFile(file, text.replace(/^\d+/, String(process.pid)))
}

export async function readPidFile(cluster: string): Promise<{ pid: number; port: number; status: string } | null> {
  const text = await readFile(join(cluster, "postmaster.pid"), "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return ""
    throw error
  })
  // Lines: process, data folder, start time, port, socket folder, address, shared memory, status.
  const lines = text.split("\n")
  const pid = Number(lines[0])
  if (!Number.isInteger(pid) || pid <= 1) return null
  return { pid, port: Number(lines[3]), status: (lines[7] ?? "").trim() }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1")
  await once(server, "listening")
  const address = server.address()
  server.close()
  await once(server, "close")
  if (address === null || typeof address === "string") throw new Error("a TCP server has an address")
  return address.port
}
