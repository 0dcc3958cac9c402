/**
 * A TCP proxy in front of Postgres that fails on cue: cuts before or after a COMMIT has been carried out, or swallows everything without closing
 * (a paused server, a network that drops packets).
 */
import { connect, createServer, type Socket } from "node:net"
import type { Test } from "tap"

type Fault = "cut-before-commit" | "cut-after-commit" | "swallow"

export interface Proxy {
  /** The database's URL, through the proxy. */
  readonly url: string
  /** The next COMMIT (or, for `swallow`, everything from now on) meets the fault. @returns when it has */
  fail(fault: Fault): Promise<void>
  /** Swallows no more: new connections pass again; the swallowed ones stay dead. */
  heal(): void
}

export async function startProxy(t: Test, databaseUrl: string): Promise<Proxy> {
  const target = new URL(databaseUrl)
  const sockets = new Set<Socket>()
  let fault: Fault | null = null
  let met: () => void = () => {}

  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname)
    let dead = false
    let cutOnAnswer = false
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on("error", () => {})
      socket.on("close", () => sockets.delete(socket))
    }
    client.on("close", () => {
      if (!dead) upstream.destroy()
    })
    upstream.on("close", () => {
      if (!dead) client.destroy()
    })
    client.on("data", (bytes) => {
      if (fault === "swallow") {
        dead = true
        met()
      }
      if (dead) return
      if (fault !== null && /\bcommit\b/i.test(bytes.toString("latin1"))) {
        const now = fault
        fault = null
        if (now === "cut-before-commit") {
          client.destroy()
          upstream.destroy()
          met()
          return
        }
        cutOnAnswer = true
      }
      upstream.write(bytes)
    })
    upstream.on("data", (bytes) => {
      if (dead || fault === "swallow") return
      if (cutOnAnswer) {
        client.destroy()
        upstream.destroy()
        met()
        return
      }
      client.write(bytes)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const address = server.address()
  if (address === null || typeof address === "string") throw new Error("the proxy listens on a port")
  const url = new URL(databaseUrl)
  url.hostname = "127.0.0.1"
  url.port = String(address.port)
  return {
    url: url.href,
    fail(next) {
      fault = next
      return new Promise((resolve) => {
        met = resolve
      })
    },
    heal() {
      fault = null
    },
  }
}
