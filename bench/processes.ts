/**
 * Processes of a run: started with their output in a file as in production, waited for, measured through /proc (null or 0 where there is none),
 * stopped by their own id. Whatever was started is stopped when the run ends, however it ends.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { closeSync, ftruncateSync, openSync } from "node:fs"
import { readdir, readFile } from "node:fs/promises"
import { createServer } from "node:net"

/** Linux counts process time in ticks of this many a second, on every architecture Node runs on. */
const ticksPerSecond = 100
const startMs = 20_000
const stopMs = 12_000

export interface Server {
  readonly url: string
  readonly pid: number
  cpuSeconds(): Promise<number>
  rssBytes(): Promise<number>
  /** Empties the file of its output, for long runs. */
  forgetOutput(): void
  stop(): Promise<void>
}

const running = new Set<ChildProcess>()

/** Starts a Node program that listens on PORT, and waits until `readyPath` answers 200. */
export async function startServer(
  args: readonly string[],
  env: Record<string, string>,
  options: { readyPath: string; outputFile: string },
): Promise<Server> {
  const port = await freePort()
  const output = openSync(options.outputFile, "a")
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env.PATH, NODE_ENV: "production", HOST: "127.0.0.1", PORT: String(port), ...env },
    stdio: ["ignore", output, output],
  })
  running.add(child)
  const { pid } = child
  if (pid === undefined) throw new Error("the server did not start")
  const url = `http://127.0.0.1:${port}`
  const stop = async () => {
    await end(child)
    closeSync(output)
  }
  const until = Date.now() + startMs
  while (!(await answers(`${url}${options.readyPath}`))) {
    if (child.exitCode !== null || Date.now() > until) {
      await stop()
      const said = await readFile(options.outputFile, "utf8")
      throw new Error(`the server did not become ready:\n${said.slice(-2_000)}`)
    }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return {
    url,
    pid,
    cpuSeconds: () => cpuSecondsOf(pid),
    rssBytes: async () => {
      const text = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "")
      return Number(/^VmRSS:\s+(\d+)/m.exec(text)?.[1] ?? 0) * 1024
    },
    forgetOutput: () => ftruncateSync(output),
    stop,
  }
}

export interface Ended {
  readonly stdout: string
  readonly cpuSeconds: number
}

/** Runs a program to its end; past `ms` it is killed and this throws. */
export async function runProgram(
  command: string,
  args: readonly string[],
  options: { ms: number; env?: Record<string, string>; cwd?: string },
): Promise<Ended> {
  const child = spawn(command, args, {
    env: { ...process.env, ...options.env },
    cwd: options.cwd,
    stdio: ["ignore", "pipe", "pipe"],
  })
  running.add(child)
  let stdout = ""
  let stderr = ""
  let cpuSeconds = 0
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    stdout += chunk
  })
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    stderr = (stderr + chunk).slice(-2_000)
  })
  // Looked at while it runs: afterwards the system no longer says what it cost.
  const sampler = setInterval(() => {
    if (child.pid !== undefined)
      void cpuSecondsOf(child.pid).then((seconds) => {
        cpuSeconds = Math.max(cpuSeconds, seconds)
      })
  }, 100)
  const killer = setTimeout(() => child.kill("SIGKILL"), options.ms)
  try {
    const [code, signal] = (await once(child, "close")) as [number | null, string | null]
    if (code !== 0) throw new Error(`${command} ended with ${signal ?? code}: ${stderr.trim()}`)
    return { stdout, cpuSeconds }
  } finally {
    clearInterval(sampler)
    clearTimeout(killer)
    running.delete(child)
  }
}

/** Stops whatever is still running. */
export async function stopAll(): Promise<void> {
  await Promise.all([...running].map(end))
}

async function end(child: ChildProcess): Promise<void> {
  running.delete(child)
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, "exit")
  child.kill("SIGTERM")
  const killer = setTimeout(() => child.kill("SIGKILL"), stopMs)
  await exited
  clearTimeout(killer)
}

/** CPU time of a process, user and system; with that of the children it has buried, if asked. 0 when there is none. */
export async function cpuSecondsOf(pid: number, withDead = false): Promise<number> {
  const fields = await statOf(pid)
  const own = Number(fields[11] ?? 0) + Number(fields[12] ?? 0)
  const dead = withDead ? Number(fields[13] ?? 0) + Number(fields[14] ?? 0) : 0
  return (own + dead) / ticksPerSecond
}

/** CPU time of the living children of a process. */
export async function cpuSecondsOfFamily(parent: number): Promise<number> {
  let seconds = 0
  for (const name of await readdir("/proc").catch(() => [])) {
    if (!/^\d+$/.test(name)) continue
    const fields = await statOf(Number(name))
    if (Number(fields[1]) === parent) seconds += (Number(fields[11]) + Number(fields[12])) / ticksPerSecond
  }
  return seconds
}

/** The parent of a process, if that process is here and bears the name. */
export async function parentOf(pid: number, name: string): Promise<number | null> {
  const command = await readFile(`/proc/${pid}/comm`, "utf8").catch(() => "")
  return command.trim() === name ? Number((await statOf(pid))[1]) : null
}

/** Fields of /proc/PID/stat from the third on (state, parent, …): proc_pid_stat(5). */
async function statOf(pid: number): Promise<string[]> {
  const text = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "")
  return text.slice(text.lastIndexOf(")") + 2).split(" ")
}

async function answers(url: string): Promise<boolean> {
  return fetch(url, { signal: AbortSignal.timeout(1_000) }).then(
    async (answer) => {
      await answer.arrayBuffer()
      return answer.ok
    },
    () => false,
  )
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
