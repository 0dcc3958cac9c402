/**
 * A client that changes nothing: the path goes out as given, a header may be sent twice, the answer's body comes back as bytes. `fetch` would
 * normalise paths, join headers and hide when the first byte came.
 */
import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from "node:http"
import { connect } from "node:net"

export interface Reply {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly bytes: Buffer
  readonly text: string
  /** Parsed where it is JSON, else null. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any member
  readonly body: any
}

export interface SendOptions {
  readonly token?: string | null
  /** Becomes the body, as JSON. */
  readonly json?: unknown
  readonly body?: string | Buffer
  readonly headers?: OutgoingHttpHeaders
  /** Longest time until the whole answer is there. */
  readonly ms?: number
  /** Called when the answer begins to arrive. */
  readonly onFirstByte?: () => void
}

const agent = new Agent({ keepAlive: true })

/** Sends one request. @throws node's own error when the connection fails or the answer takes too long */
export function send(base: string, method: string, path: string, options: SendOptions = {}): Promise<Reply> {
  const { token = null, json, headers = {}, ms = 15_000, onFirstByte } = options
  const body = json === undefined ? options.body : JSON.stringify(json)
  const { hostname, port } = new URL(base)
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        agent,
        hostname,
        port,
        method,
        path,
        signal: AbortSignal.timeout(ms),
        headers: {
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
          ...(json === undefined ? {} : { "content-type": "application/json" }),
          ...(body === undefined ? {} : { "content-length": Buffer.byteLength(body) }),
          ...headers,
        },
      },
      (answer) => {
        onFirstByte?.()
        const chunks: Buffer[] = []
        answer.on("data", (chunk: Buffer) => chunks.push(chunk))
        answer.on("error", reject)
        answer.on("end", () => {
          const bytes = Buffer.concat(chunks)
          const text = bytes.toString("utf8")
          const isJson = /\bjson\b/.test(answer.headers["content-type"] ?? "")
          resolve({
            status: answer.statusCode ?? 0,
            headers: answer.headers,
            bytes,
            text,
            body: isJson && text !== "" ? JSON.parse(text) : null,
          })
        })
      },
    )
    outgoing.on("error", reject)
    outgoing.end(body)
  })
}

/** Sends bytes and goes away without waiting for an answer. @returns when the bytes are sent and the connection is closed */
export function abortAfter(base: string, bytes: string): Promise<void> {
  const { hostname, port } = new URL(base)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => socket.write(bytes, () => socket.destroy()))
    socket.on("error", reject)
    socket.on("close", () => resolve())
  })
}

/** A key as the header's RFC 8941 String. */
export const quoted = (key: string): string => `"${key.replace(/["\\]/g, "\\$&")}"`

/** Sends a submission under a key; null: without the header. */
export function postSubmission(
  base: string,
  token: string,
  key: string | null,
  json: unknown,
  options: SendOptions = {},
): Promise<Reply> {
  return send(base, "POST", "/v1/submissions", {
    token,
    json,
    ...options,
    headers: { ...(key === null ? {} : { "idempotency-key": quoted(key) }), ...options.headers },
  })
}

/** What the service says of a key. */
export function getKey(base: string, token: string, key: string): Promise<Reply> {
  return send(base, "GET", `/v1/idempotency-keys/${encodeURIComponent(key)}`, { token })
}
