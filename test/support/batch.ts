/** A batch as a client sends it: piece by piece, with its answers read meanwhile, or not read, or cut off. */
import { type IncomingMessage, request } from "node:http"

export interface LineAnswer {
  readonly line: number
  readonly status: number
  readonly idempotency_key?: string
  readonly disbursement_id?: string
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any member
  readonly problem?: any
}

export interface OpenBatch {
  /** Resolves when the connection takes more. */
  write(text: string | Buffer): Promise<void>
  end(text?: string | Buffer): void
  /** The answer's head. */
  readonly response: Promise<IncomingMessage>
  /** The next answer; null when the stream has ended. */
  next(): Promise<LineAnswer | null>
  /** All answers that are left. @throws when the connection is lost before the stream's end */
  rest(): Promise<LineAnswer[]>
  /** Breaks the connection. */
  cut(): void
}

/** Begins a batch. Answers are taken only as they are asked for. */
export function openBatch(base: string, token: string, headers: Record<string, string> = {}): OpenBatch {
  const { hostname, port } = new URL(base)
  const outgoing = request({
    agent: false,
    hostname,
    port,
    method: "POST",
    path: "/v1/submissions/batch",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/x-ndjson", ...headers },
  })
  const response = new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once("response", resolve)
    outgoing.on("error", reject)
  })
  response.catch(() => {})
  async function* answers(): AsyncGenerator<LineAnswer> {
    let text = ""
    const incoming = await response
    for await (const chunk of incoming.setEncoding("utf8")) {
      text += chunk
      const lines = text.split("\n")
      text = lines.pop() ?? ""
      for (const line of lines) yield JSON.parse(line)
    }
    if (text !== "") throw new Error(`half a line: ${text}`)
  }
  const each = answers()
  return {
    write: (text) =>
      new Promise<void>((resolve, reject) => {
        if (outgoing.destroyed) reject(new Error("the connection is gone"))
        else if (outgoing.write(text)) resolve()
        else {
          const go = () => {
            outgoing.off("drain", go).off("close", go)
            resolve()
          }
          outgoing.on("drain", go).on("close", go)
        }
      }),
    end: (text = "") => void outgoing.end(text),
    response,
    async next() {
      const { done, value } = await each.next()
      return done ? null : value
    },
    async rest() {
      const all: LineAnswer[] = []
      for await (const answer of each) all.push(answer)
      return all
    },
    cut: () => void outgoing.destroy(),
  }
}

/** Sends a whole batch and answers what came back. */
export async function sendBatch(base: string, token: string, body: string | Buffer): Promise<LineAnswer[]> {
  const batch = openBatch(base, token)
  batch.end(body)
  return batch.rest()
}

export const ndjsonOf = (lines: readonly unknown[]): string => lines.map((line) => `${JSON.stringify(line)}\n`).join("")
