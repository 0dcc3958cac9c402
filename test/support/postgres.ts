/**
 * The Postgres of one test run: how it is started and stopped, and the state file by which its processes (before, the test files, after)
 * find it. State is kept per run, so that two runs in one checkout do not disturb each other; what a killed run left behind is stopped by
 * the next. GRANTGATE_TEST_DATABASE_URL (a superuser's) names a server to use instead, GRANTGATE_TEST_POSTGRES_BIN other programs.
 */
import { randomBytes } from "node:crypto"
import { chown, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { type Binaries, initCluster, prepareBinaries, type RunAs, run } from "../../src/db/embedded-binaries.js"

const root = fileURLToPath(new URL("../..", import.meta.url))
const stateFolder = join(root, ".tap", "postgres")

export interface TestPostgres {
  /** The runner whose tests it serves, and when that process began: a process id comes round again. */
  readonly runner: { readonly pid: number; readonly startedAt: string }
  /** An administrator's URL, database `postgres`. */
  readonly adminUrl: string
  /** Name of the migrated database that tests clone. */
  readonly template: string
  /** The cluster to stop and remove; null for a server that is not ours. */
  readonly cluster: { readonly folder: string; readonly bin: string; readonly runAs: RunAs | null } | null
}

/** The same for before, test files and after: all three are children of the runner. */
const stateFile = (runnerPid: number) => join(stateFolder, `${runnerPid}.json`)

/** @throws when the test was not started by tap */
export async function readState(): Promise<TestPostgres> {
  const text = await readFile(stateFile(process.ppid), "utf8").catch(() => {
    throw new Error("no Postgres for this test: start it through tap, which starts one first")
  })
  return JSON.parse(text) as TestPostgres
}

export async function writeState(state: TestPostgres): Promise<void> {
  await mkdir(stateFolder, { recursive: true })
  await writeFile(stateFile(state.runner.pid), JSON.stringify(state), { mode: 0o600 })
}

/** The kernel's time of a process's start, in ticks; the empty text where there is no /proc, null when there is no such process. */
export async function processStart(pid: number): Promise<string | null> {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return null
  }
  const text = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "")
  // The name, in parentheses, may hold spaces.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
  return fields[0] === "Z" ? null : (fields[19] ?? "")
}

/** Starts a Postgres that outlives this process. Its data need not outlive a power cut. */
export async function startCluster(): Promise<{ url: string; cluster: NonNullable<TestPostgres["cluster"]> }> {
  const folder = await mkdtemp(join(tmpdir(), "grantgate-test-"))
  const binaries = await prepareBinaries({ copyDir: folder, bin: process.env.GRANTGATE_TEST_POSTGRES_BIN || undefined })
  const { runAs } = binaries
  if (runAs) await chown(folder, runAs.uid, runAs.gid)
  const password = randomBytes(18).toString("base64url")
  await initCluster(binaries, join(folder, "data"), password)
  for (let attempt = 1; ; attempt++) {
    const port = await freePort()
    const log = join(folder, `postgres-${attempt}.log`)
    const settings = {
      listen_addresses: "127.0.0.1",
      port,
      unix_socket_directories: "",
      max_connections: 300,
      shared_buffers: "128MB",
      fsync: "off",
      full_page_writes: "off",
      client_connection_check_interval: "500ms",
    }
    const options = Object.entries(settings).map(([name, value]) => `-c ${name}='${value}'`)
    const args = ["start", "-w", "-t", "60", "-D", join(folder, "data"), "-l", log, "-o", options.join(" ")]
    const { code, output } = await runDetached(binaries, args)
    if (code === 0) {
      const url = `postgres://grantgate:${password}@127.0.0.1:${port}/postgres`
      return { url, cluster: { folder, bin: binaries.bin, runAs } }
    }
    const said = await readFile(log, "utf8").catch(() => output)
    if (attempt === 5 || !/Address already in use/.test(said))
      throw new Error(`the test Postgres did not start:\n${said}`)
  }
}

/** Stops a Postgres and removes what it kept; one that is gone already counts as stopped. */
export async function stopCluster(cluster: NonNullable<TestPostgres["cluster"]>): Promise<void> {
  await run(
    join(cluster.bin, "pg_ctl"),
    ["stop", "-w", "-m", "immediate", "-D", join(cluster.folder, "data")],
    cluster.runAs,
  )
  await rm(cluster.folder, { recursive: true, force: true })
}

/** Stops what runs left behind that are no more. */
export async function sweep(): Promise<void> {
  for (const name of await readdir(stateFolder).catch(() => [])) {
    const file = join(stateFolder, name)
    const state = await readFile(file, "utf8").then(
      (text) => JSON.parse(text) as TestPostgres,
      () => null,
    )
    if (state === null || (await processStart(state.runner.pid)) === state.runner.startedAt) continue
    if (state.cluster) await stopCluster(state.cluster)
    await rm(file, { force: true })
  }
}

export async function removeState(state: TestPostgres): Promise<void> {
  await rm(stateFile(state.runner.pid), { force: true })
}

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      server.close(() =>
        address && typeof address === "object" ? resolve(address.port) : reject(new Error("no port")),
      )
    })
  })
}

/** pg_ctl hands its output on to the server it starts, and a pipe would stay open for as long as that runs: it goes to a file. */
async function runDetached(binaries: Binaries, args: string[]): Promise<{ code: number; output: string }> {
  return await run(
    "/bin/sh",
    ["-c", '"$0" "$@" >/dev/null 2>&1', join(binaries.bin, "pg_ctl"), ...args],
    binaries.runAs,
  )
}
