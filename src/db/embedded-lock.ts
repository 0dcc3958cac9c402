/**
 * One server for each data folder. The lock is a listening socket: the system takes it away with its process, however that ends, so it
 * is never stale and tells a running server from a Postgres that a killed one left behind. Holds nothing in the folder itself. It does
 * not reach across containers: a folder that two of them mount is guarded by nobody.
 */
import { createHash } from "node:crypto"
import { stat, unlink } from "node:fs/promises"
import { createConnection, createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { EmbeddedError } from "./embedded-binaries.js"

/** A holder answers at once; a frozen one never does. */
const ANSWER_MS = 500

export interface Lock {
  release(): Promise<void>
}

/**
 * @param dir must exist; known by its place on the disk, so that two spellings of its name are one folder
 * @throws EmbeddedError when another process holds it
 */
export async function takeLock(dir: string): Promise<Lock> {
  const path = await socketPath(dir)
  let server = await listen(path)
  if (server === null && (await askHolder(path)) === "gone" && !path.startsWith("\0")) {
    // Only a socket in the file system outlives its process.
    await unlink(path).catch(() => {})
    server = await listen(path)
  }
  if (server === null) {
    const pid = await askHolder(path)
    const who = pid === null || pid === "gone" ? "Another grantgate" : `Another grantgate (process ${pid})`
    throw new EmbeddedError(
      `${who} already runs on ${dir}. Stop it first, or give this one another folder in GRANTGATE_DATA_DIR.`,
    )
  }
  const held = server
  return { release: () => new Promise((resolve) => held.close(() => resolve())) }
}

/** True while a process holds the lock of `dir`. */
export async function isLocked(dir: string): Promise<boolean> {
  return (await askHolder(await socketPath(dir))) !== "gone"
}

/** On Linux a name in no folder (abstract); elsewhere a socket among the temporary files. */
async function socketPath(dir: string): Promise<string> {
  const { dev, ino } = await stat(dir)
  const name = `grantgate-${createHash("sha256").update(`${dev}:${ino}`).digest("hex").slice(0, 24)}`
  return process.platform === "linux" ? `\0${name}` : join(tmpdir(), `${name}.sock`)
}

async function listen(path: string): Promise<Server | null> {
  return await new Promise((resolve, reject) => {
    const server = createServer((socket) => {
      socket.on("error", () => {})
      socket.end(String(process.pid))
    })
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(null)
      else reject(error)
    })
    server.listen({ path }, () => resolve(server.unref()))
  })
}

/** The holder's process id, null when it does not say, "gone" when there is none. */
async function askHolder(path: string): Promise<number | null | "gone"> {
  return await new Promise((resolve) => {
    const socket = createConnection({ path })
    let said = ""
    socket.setTimeout(ANSWER_MS, () => socket.destroy())
    socket.on("data", (chunk) => {
      said += chunk
    })
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ECONNREFUSED" || error.code === "ENOENT") resolve("gone")
    })
    socket.on("close", () => resolve(/^\d+$/.test(said) ? Number(said) : null))
  })
}
