/**
 * The Postgres that runs when no DATABASE_URL is given: a real one, on loopback, its data kept in the data folder with fsync on. One
 * server owns it at a time, by a lock of its own; a Postgres that a killed server left behind is stopped and started anew, one that dies
 * is started again on the same port. For trying, tests and small installations. What goes wrong is an `EmbeddedError`: a sentence.
 */
import { randomBytes } from "node:crypto"
import { constants } from "node:fs"
import { access, chmod, mkdir, readFile, realpath, rename, stat, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import postgres from "postgres"
import {
  asEmbeddedError,
  type Binaries,
  canEnter,
  EmbeddedError,
  initCluster,
  prepareBinaries,
  ROOT_STATE_DIR,
  run,
} from "./embedded-binaries.js"
import { isLocked, takeLock } from "./embedded-lock.js"
import { type EmbeddedLog, launchOnFreePort, readPidFile, stopOrphan, supervise } from "./embedded-process.js"

export { EmbeddedError } from "./embedded-binaries.js"

export interface EmbeddedPostgres {
  /** Holds the password: never logged. The same for as long as the server runs, restarts of Postgres included. */
  readonly url: string
  /** Stops Postgres in an orderly way, by force if that takes too long, and gives the folder free. Never rejects; may be repeated. */
  stop(): Promise<void>
}

const USER = "grantgate"
const DATABASE = "grantgate"

/**
 * Starts it, making the data on the first start.
 * @param options.dataDir absolute; made when it does not exist
 * @throws EmbeddedError
 */
export async function startEmbedded(options: { dataDir: string; log: EmbeddedLog }): Promise<EmbeddedPostgres> {
  const { log } = options
  const dataDir = await makeDataDir(options.dataDir)
  const lock = await takeLock(dataDir)
  try {
    const { binaries, cluster, password } = await prepareCluster(dataDir, log)
    await stopOrphan(cluster, log)
    const first = await launchOnFreePort(binaries, cluster)
    const supervised = supervise(first, binaries, cluster, log)
    const url = urlOf(password, first.port)
    try {
      await makeDatabase(url)
    } catch (error) {
      await supervised.stop()
      throw error
    }
    let stopping: Promise<void> | null = null
    const stop = async () => {
      await supervised.stop()
      await lock.release()
    }
    return {
      url,
      stop: () => {
        stopping ??= stop()
        return stopping
      },
    }
  } catch (error) {
    await lock.release()
    throw asEmbeddedError(error, dataDir)
  }
}

/**
 * The URL of the embedded Postgres that a server is running right now, for commands beside it; null when none runs on this folder.
 * @throws EmbeddedError when it may not be read
 */
export async function findEmbedded(dataDir: string): Promise<string | null> {
  try {
    const dir = await realpath(dataDir)
    if (!(await isLocked(dir))) return null
    const running = await readPidFile(join(await clusterHome(dir), "postgres"))
    if (running === null || running.status !== "ready") return null
    return urlOf((await readFile(join(dir, "password"), "utf8")).trim(), running.port)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null
    throw asEmbeddedError(error, dataDir)
  }
}

function urlOf(password: string, port: number): string {
  return `postgres://${USER}:${password}@127.0.0.1:${port}/${DATABASE}`
}

async function makeDataDir(dataDir: string): Promise<string> {
  try {
    const made = await makeFolders(dataDir)
    // Postgres's user passes through; nobody lists it, and what lies in it is closed to others.
    if (made) await chmod(dataDir, process.getuid?.() === 0 ? 0o711 : 0o700)
    await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK)
    return await realpath(dataDir)
  } catch (error) {
    throw asEmbeddedError(error, dataDir)
  }
}

/** `mkdir -p`, which Node's own never ends where the system makes no folders (under /proc). Returns whether `dir` is new. */
async function makeFolders(dir: string): Promise<boolean> {
  for (const parentsMade of [false, true]) {
    try {
      await mkdir(dir)
      return true
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === "EEXIST" && (await stat(dir)).isDirectory()) return false
      if (code !== "ENOENT" || parentsMade) throw error
      await makeFolders(dirname(dir))
    }
  }
  return false
}

/** The folder around the cluster: the data folder, or the place it points to because Postgres's user could not reach it. */
async function clusterHome(dataDir: string): Promise<string> {
  const pointer = await readFile(join(dataDir, "location"), "utf8").catch(() => null)
  return pointer === null ? dataDir : pointer.trim()
}

async function prepareCluster(
  dataDir: string,
  log: EmbeddedLog,
): Promise<{ binaries: Binaries; cluster: string; password: string }> {
  let home = await clusterHome(dataDir)
  const existing = await stat(join(home, "postgres")).catch(() => null)
  const binaries = await prepareBinaries({ copyDir: dataDir, owner: existing?.uid })
  if (binaries.copiedTo) log.info(`The programs of the embedded Postgres run from a copy in ${binaries.copiedTo}.`)

  if (home === dataDir && !(await canEnter(dataDir, binaries.runAs))) {
    if (existing)
      throw new EmbeddedError(
        `${binaries.runAs?.name}, who owns ${join(dataDir, "postgres")}, cannot enter ${dataDir}. Make it passable (chmod 711).`,
      )
    home = join(ROOT_STATE_DIR, `data-${randomBytes(8).toString("hex")}`)
    await mkdir(home, { recursive: true })
    for (const folder of [ROOT_STATE_DIR, home]) await chmod(folder, 0o711)
    await writeWhole(join(dataDir, "location"), `${home}\n`)
    log.info(
      `The user ${binaries.runAs?.name}, whom Postgres runs as, cannot enter ${dataDir}: the data lies in ${home}.`,
    )
  }

  const password = await readOrMakePassword(dataDir, existing !== null)
  const cluster = join(home, "postgres")
  if (existing === null) {
    log.info(`Making the embedded Postgres ${binaries.major} in ${home}.`)
    await initCluster(binaries, cluster, password)
  } else if (existing.uid === 0 && binaries.runAs) {
    // A restored copy, for instance.
    await run("/bin/chown", ["-R", `${binaries.runAs.uid}:${binaries.runAs.gid}`, cluster], null)
  }
  const made = (await readFile(join(cluster, "PG_VERSION"), "utf8")).trim()
  if (made !== String(binaries.major))
    throw new EmbeddedError(
      `The data in ${cluster} was made by PostgreSQL ${made}, and this grantgate brings ${binaries.major}. Start the grantgate that made it, or set GRANTGATE_DATA_DIR to another folder.`,
    )
  return { binaries, cluster: await realpath(cluster), password }
}

async function readOrMakePassword(dataDir: string, clusterExists: boolean): Promise<string> {
  const file = join(dataDir, "password")
  const kept = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null
    throw error
  })
  if (kept !== null) return kept.trim()
  if (clusterExists)
    throw new EmbeddedError(`The file ${file} is missing, and with it the password of the database. Restore it.`)
  const password = randomBytes(24).toString("base64url")
  await writeWhole(file, `${password}\n`)
  return password
}

/** The file appears whole or not at all, for its owner only. */
async function writeWhole(file: string, text: string): Promise<void> {
  await writeFile(`${file}.making`, text, { mode: 0o600, flush: true })
  await rename(`${file}.making`, file)
}

async function makeDatabase(url: string): Promise<void> {
  const admin = new URL(url)
  admin.pathname = "/postgres"
  const sql = postgres(admin.href, { max: 1, onnotice: () => {}, connect_timeout: 10 })
  try {
    const there = await sql`SELECT 1 FROM pg_database WHERE datname = ${DATABASE}`
    if (there.length === 0) await sql.unsafe(`CREATE DATABASE ${DATABASE}`)
  } catch (error) {
    if ((error as { code?: string }).code === "28P01")
      throw new EmbeddedError(
        "The password kept in the data folder is not that of its database. Restore the file `password`.",
      )
    throw error
  } finally {
    await sql.end({ timeout: 1 })
  }
}
