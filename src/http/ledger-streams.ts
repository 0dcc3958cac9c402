/**
 * Lists by `Accept`: JSON, or the whole as a stream of CSV or NDJSON. A stream is read batch by batch as fast as its reader takes it; a reader that goes away
 * ends the reading. What fails before the first line is a problem like any other; what fails later cuts the connection, so that no part is
 * taken for the whole.
 */
import type { IncomingMessage } from "node:http"
import { Readable } from "node:stream"
import accepts from "accepts"
import type { FastifyReply, FastifyRequest } from "fastify"
import { stringify } from "lossless-json"
import { z } from "zod"
import { type Column, csvHeader, csvRows } from "../ledger/csv.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import type { HeaderDoc } from "./openapi.js"

const types = ["application/json", "text/csv", "application/x-ndjson"] as const
/** How a list is asked for. */
export type ListType = (typeof types)[number]

/** What the caller likes best of what there is. Who accepts none of it gets JSON, as RFC 9110 section 12.4.1 allows: it says what it is. */
export function listType({ raw }: FastifyRequest): ListType {
  // Parameters other than the weight ask for nothing that there is a choice of: `text/csv; charset=utf-8` is `text/csv`.
  const accept = raw.headers.accept?.replace(/;\s*(?!q\s*=)[\w-]+\s*=\s*(?:"[^"]*"|[^\s;,"]*)/gi, "")
  const best = accepts({ headers: { ...raw.headers, accept } } as IncomingMessage).type([...types])
  return types.find((type) => type === best) ?? "application/json"
}

/** Of every answer that `Accept` decides on. */
export const variesByAccept = { vary: "Accept" } as const
export const varyHeader: Record<string, HeaderDoc> = {
  Vary: { description: "The answer depends on `Accept`", type: "string" },
}

/** A whole table: its rows in batches, and how it is written. */
export interface Table<Row> {
  /** Begins the name of the file that a browser saves CSV to. */
  readonly name: string
  readonly columns: readonly Column<Row>[]
  readonly batches: AsyncIterable<readonly Row[]>
  /** A row as JSON; absent: as JSON.stringify writes it. */
  readonly json?: (row: Row) => string
}

/** At most so many at once; one more is refused, not queued. */
export class Places {
  #taken = 0
  constructor(readonly max: number) {}

  /** @returns gives the place back; repeatable  @throws Problem overloaded */
  take(): () => void {
    if (this.#taken >= this.max) {
      throw new Problem("overloaded", `${this.max} reports of this kind are under way, which is the limit.`)
    }
    this.#taken += 1
    let mine = true
    return () => {
      if (mine) this.#taken -= 1
      mine = false
    }
  }
}

const exporting = new Places(limits.exportsMax)

/** Sends the table; rejects, with nothing sent, when its first batch cannot be read. */
export async function sendTable<Row>(
  request: FastifyRequest,
  reply: FastifyReply,
  type: Exclude<ListType, "application/json">,
  { name, columns, batches, json = JSON.stringify }: Table<Row>,
): Promise<FastifyReply> {
  const csv = type === "text/csv"
  const headers = {
    ...variesByAccept,
    "content-type": csv ? "text/csv; charset=utf-8; header=present" : type,
    ...(csv ? { "content-disposition": `attachment; filename="${name}-${fileTime()}.csv"` } : {}),
  }
  // Nobody reads the body of an answer to HEAD.
  if (request.method === "HEAD") return reply.headers(headers).send(Readable.from([]))
  const leave = exporting.take()
  try {
    const iterator = batches[Symbol.asyncIterator]()
    const first = await iterator.next()
    const write = csv
      ? (rows: readonly Row[]) => csvRows(columns, rows)
      : (rows: readonly Row[]) => ndjsonRows(rows, json)
    const body = Readable.from(texts(csv ? csvHeader(columns) : "", first, iterator, write), { objectMode: false })
    body.once("close", leave)
    return reply.headers(headers).send(body)
  } catch (error) {
    leave()
    throw error
  }
}

async function* texts<Row>(
  head: string,
  first: IteratorResult<readonly Row[]>,
  rest: AsyncIterator<readonly Row[]>,
  write: (rows: readonly Row[]) => string,
): AsyncGenerator<string> {
  if (head !== "") yield head
  for (let next = first; next.done !== true; next = await rest.next()) {
    const text = write(next.value)
    if (text !== "") yield text
  }
}

function ndjsonRows<Row>(rows: readonly Row[], json: (row: Row) => string): string {
  return rows.map((row) => `${json(row)}\n`).join("")
}

/** JSON with integers of any size. */
export function exactJson(value: unknown): string {
  return stringify(value) as string
}

/** Now, in a form that every file system takes. */
function fileTime(): string {
  return new Date().toISOString().replace(/[-:]|\.\d+/g, "")
}

/** The content of an answer that may also be a stream. */
export function streamed(csvExample: string, ndjsonExample: string) {
  return {
    "text/csv": {
      schema: z.string().describe("RFC 4180: a header row, then a row for each item"),
      example: csvExample,
    },
    "application/x-ndjson": {
      schema: z.string().describe("One JSON object on each line, as in `items`"),
      example: ndjsonExample,
    },
  }
}
