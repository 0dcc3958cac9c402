/**
 * A file of submissions, NDJSON or CSV, as the lines of a batch, one at a time and each under its number in the file. Every line stands alone: what
 * is wrong with one, a stray quote included, is said of that line and costs no other. Nothing is trimmed, rounded or filled in on the way.
 */
import { isUtf8 } from "node:buffer"
import { createReadStream } from "node:fs"
import { CsvError, parse } from "csv-parse/sync"
import { type ByteLine, ByteLines, isBlank } from "../http/byte-lines.js"
import { submissionLineSchema } from "../ledger/submission.js"
import { limits } from "../limits.js"
import { CommandError } from "./command.js"

/** A line of the file that is not blank: what is sent for it, or why nothing can be. */
export interface FileLine {
  /** From 1. */
  readonly line: number
  /** Bytes of the file up to its end. */
  readonly offset: number
  readonly sent: { readonly json: Buffer } | { readonly fault: string }
}

export type Format = "ndjson" | "csv"

const columns = Object.keys(submissionLineSchema.shape)
const required = columns.filter((name) => !(submissionLineSchema.shape as Shape)[name]?.isOptional())
type Shape = Record<string, { isOptional(): boolean }>
const bom = Buffer.from([0xef, 0xbb, 0xbf])

/** @throws CommandError when the file as a whole cannot be read: nothing of it has been handed on then */
export async function* readFileLines(file: string, format: Format): AsyncGenerator<FileLine, void, undefined> {
  let header: readonly string[] | null = null
  let offset = 0
  for await (const { line, bytes } of linesOf(file)) {
    offset += (bytes?.length ?? 0) + 1
    if (bytes !== null && isBlank(bytes)) continue
    if (format === "csv" && header === null) {
      header = readHeader(file, line, bytes)
      continue
    }
    const tooLong = { fault: `The line is longer than ${limits.bodyBytesMax} bytes.` }
    const sent = bytes === null ? tooLong : header === null ? { json: Buffer.from(bytes) } : readRow(header, bytes)
    yield { line, offset, sent }
  }
  if (offset === 0) throw new CommandError(`${file} is empty. Nothing was sent.`, 2)
  if (format === "csv" && header === null) throw new CommandError(`${file} has no header line. Nothing was sent.`, 2)
}

async function* linesOf(file: string): AsyncGenerator<ByteLine, void, undefined> {
  const lines = new ByteLines(limits.bodyBytesMax)
  for await (const chunk of createReadStream(file)) yield* lines.push(chunk as Buffer)
  yield* lines.end()
}

function readHeader(file: string, line: number, bytes: Buffer | null): readonly string[] {
  const wrong = (why: string): never => {
    throw new CommandError(
      `${file}, line ${line}: ${why} A CSV file begins with a header line, columns separated by commas: ${columns.join(",")} (needed: ${required.join(", ")}). Nothing was sent.`,
      2,
    )
  }
  if (bytes === null) return wrong("the header is too long.")
  // Spreadsheets mark UTF-8 files so; the mark is no part of the first name.
  const fields = splitFields(bytes.subarray(0, 3).equals(bom) ? bytes.subarray(3) : bytes)
  if (typeof fields === "string") return wrong(`the header cannot be read. ${fields}`)
  const missing = required.filter((name) => !fields.includes(name))
  if (missing.length > 0) return wrong(`the header has no column ${missing.join(", ")}.`)
  const unknown = fields.findIndex((name) => !columns.includes(name))
  if (unknown !== -1) return wrong(`column ${unknown + 1} of the header is not a member of a submission.`)
  const twice = fields.find((name, i) => fields.indexOf(name) !== i)
  if (twice !== undefined) return wrong(`the header has the column ${twice} twice.`)
  return fields
}

/** An empty field is an absent member. */
function readRow(header: readonly string[], bytes: Buffer): FileLine["sent"] {
  const fields = splitFields(bytes)
  if (typeof fields === "string") return { fault: fields }
  if (fields.length !== header.length)
    return { fault: `The line has ${fields.length} fields where the header has ${header.length}.` }
  const members: string[] = []
  for (const [i, name] of header.entries()) {
    const field = fields[i] ?? ""
    if (field === "") continue
    if (name === "amount_cents" && !/^(?:0|[1-9][0-9]*)$/.test(field))
      return { fault: "amount_cents is not a whole number in minor units, such as 125000 for 1250.00." }
    if (name === "details" && !isJson(field)) return { fault: "details is not JSON." }
    const value = name === "amount_cents" || name === "details" ? field : JSON.stringify(field)
    members.push(`${JSON.stringify(name)}:${value}`)
  }
  return { json: Buffer.from(`{${members.join(",")}}`) }
}

/** RFC 4180, of one line: a field holds no line break, since no member may. @returns the fields, or what is wrong */
function splitFields(bytes: Buffer): readonly string[] | string {
  if (!isUtf8(bytes)) return "The line is not UTF-8."
  const line = bytes.at(-1) === 0x0d ? bytes.subarray(0, -1) : bytes
  try {
    const [fields = []] = parse(line, { relax_column_count: true, record_delimiter: "\n" }) as string[][]
    return fields
  } catch (error) {
    if (!(error instanceof CsvError)) throw error
    return "The line has a quote that does not open and close a whole field; a quote inside a field is doubled."
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
