/**
 * The whole service on a test's database and a free port, as `serve` starts it, with its log kept; and portals to call it with.
 */
import { connect } from "node:net"
import type pino from "pino"
import type { Test } from "tap"
import { type Config, readConfig } from "../../src/config.js"
import { makeLogger } from "../../src/http/request-log.js"
import type { Role } from "../../src/portals/portals.js"
import { type Running, serve } from "../../src/serve.js"
import { createDatabase } from "./database.js"

const bootstrapToken = "bootstrap-token-of-the-tests-0123456789"

export interface Answer {
  readonly status: number
  readonly headers: Headers
  /** Parsed where it is JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any member
  readonly body: any
  readonly text: string
}

export interface Service extends Running {
  readonly databaseUrl: string
  /** Log lines so far, parsed. */
  readonly log: readonly Record<string, unknown>[]
  /** Sends a request; `json` becomes the body. */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>
  /** Registers a portal and answers its first token. */
  portal(name: string, role?: Role, keyRequired?: boolean): Promise<{ id: string; token: string }>
}

export interface CallOptions {
  /** null: none. Absent: the bootstrap operator's. */
  readonly token?: string | null
  readonly json?: unknown
  readonly body?: string | Buffer
  readonly headers?: Record<string, string>
}

export async function startService(t: Test, change: Partial<Config> = {}): Promise<Service> {
  const { url: databaseUrl } = await createDatabase(t)
  const log: Record<string, unknown>[] = []
  const logger = makeLogger("trace", {
    write: (line) => void log.push(JSON.parse(line)),
  } satisfies pino.DestinationStream)
  const config = {
    ...readConfig({ PORT: "0", DATABASE_URL: databaseUrl, GRANTGATE_BOOTSTRAP_TOKEN: bootstrapToken }),
    ...change,
  }
  const running = await serve(config, logger)
  t.teardown(() => running.stop())
  const call = (method: string, path: string, options: CallOptions = {}) =>
    send(`${running.url}${path}`, method, options)
  return {
    ...running,
    databaseUrl,
    log,
    call,
    async portal(name, role = "portal", keyRequired = false) {
      const { status, body } = await call("POST", "/v1/portals", { json: { name, role, key_required: keyRequired } })
      if (status !== 201) throw new Error(`the portal was not made: ${status}`)
      return { id: body.id, token: body.token }
    },
  }
}

async function send(
  url: string,
  method: string,
  { token = bootstrapToken, json, body, headers = {} }: CallOptions,
): Promise<Answer> {
  const response = await fetch(url, {
    method,
    headers: {
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      ...(json === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(json === undefined ? (body === undefined ? {} : { body }) : { body: JSON.stringify(json) }),
  })
  const text = await response.text()
  const isJson = /\bjson\b/.test(response.headers.get("content-type") ?? "")
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: isJson && text !== "" ? JSON.parse(text) : null,
  }
}

/** Writes bytes to the service and answers what came back until the connection ended. */
export function sendRaw(url: string, bytes: string | Buffer): Promise<string> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => socket.write(bytes))
    let text = ""
    socket.setEncoding("utf8")
    socket.setTimeout(10_000, () => socket.destroy(new Error("the connection stayed open")))
    socket.on("data", (chunk) => {
      text += chunk
    })
    socket.on("close", () => resolve(text))
    socket.on("error", (error) => (text === "" ? reject(error) : resolve(text)))
  })
}
