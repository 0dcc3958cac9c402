/**
 * A portal's own list of what it submitted, as CSV or NDJSON, read line by line as it comes. Nothing is guessed: what cannot be read without doubt
 * is named by its line, all of them up to a bound, and nothing of the list is used then.
 */
import { isUtf8 } from "node:buffer"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { type CsvError, parse } from "csv-parse"
import { limits } from "../limits.js"
import { type Fault, Problem } from "../problems.js"
import { restoreText } from "./csv.js"
import { minorUnits } from "./currency.js"
import { readJsonText } from "./strict-json.js"
import { awardKey } from "./submission.js"

export const listingTypes = ["text/csv", "application/x-ndjson"] as const
export type ListingType = (typeof listingTypes)[number]

/** One line of the list. It has at least one of the two names. */
export interface ListedLine {
  /** As an editor counts, from 1. */
  readonly line: number
  readonly submissionId: string | null
  readonly idempotencyKey: string | null
  readonly awardId: string
  readonly awardKey: string
  /** Signed: what came back is negative. */
  readonly cents: number
  readonly currency: string
}

type Members = Readonly<Record<string, unknown>>
const named = ["submission_id", "idempotency_key", "award_id", "amount_cents", "amount", "currency"] as const

/** Faults of a list, until there are enough of them. */
class Faults {
  readonly #found: Fault[] = []

  add(line: number, member: string, code: string, detail: string): void {
    const pointer = `/${line}${member === "" ? "" : `/${member}`}`
    this.#found.push({ pointer, code, detail: `line ${line}: ${detail}` })
    if (this.#found.length >= limits.pointersMax) this.end()
  }

  /** @throws Problem unless there are none */
  end(): void {
    const [first] = this.#found
    if (first === undefined) return
    throw new Problem("invalid-request", `The list cannot be read: ${first.detail}. Nothing was compared.`, {
      errors: this.#found,
    })
  }
}

/**
 * Reads the whole list.
 * @throws Problem invalid-request naming lines, or body-too-large
 */
export async function readListing(type: ListingType, body: Readable): Promise<ListedLine[]> {
  const faults = new Faults()
  const lines: ListedLine[] = []
  const add = (line: number, members: Members) => {
    const read = readLine(line, members, faults)
    if (read) lines.push(read)
    if (lines.length > limits.listingLinesMax) throw tooLarge(`${limits.listingLinesMax} lines`)
  }
  // What refuses the list early leaves its source as it is: a request's connection still has to carry the answer.
  const blocks = wholeLines(body.iterator({ destroyOnReturn: false }), faults)
  await (type === "text/csv" ? readCsv(blocks, faults, add) : readNdjson(blocks, faults, add))
  faults.end()
  if (lines.length === 0) faults.add(1, "", "empty", "the list is empty")
  faults.end()
  return lines
}

interface Block {
  /** Of its first line. */
  readonly line: number
  readonly text: string
}

/** Whole lines as text, as many as came together. */
async function* wholeLines(chunks: AsyncIterable<Buffer>, faults: Faults): AsyncGenerator<Block> {
  let rest: Buffer = Buffer.alloc(0)
  let line = 1
  let bytes = 0
  const block = (whole: Buffer): Block => {
    if (!isUtf8(whole)) refuseEncoding(line, whole, faults)
    const start = line
    for (const byte of whole) if (byte === 0x0a) line += 1
    return { line: start, text: whole.toString("utf8") }
  }
  for await (const chunk of chunks) {
    bytes += chunk.length
    if (bytes > limits.listingBytesMax) throw tooLarge(`${limits.listingBytesMax / 1024 ** 2} MiB`)
    const end = chunk.lastIndexOf(0x0a) + 1
    if (rest.length + (end === 0 ? chunk.length : chunk.indexOf(0x0a)) > limits.bodyBytesMax) {
      faults.add(line, "", "length", `is longer than ${limits.bodyBytesMax / 1024} KiB`)
      faults.end()
    }
    if (end === 0) rest = Buffer.concat([rest, chunk])
    else {
      yield block(Buffer.concat([rest, chunk.subarray(0, end)]))
      rest = Buffer.from(chunk.subarray(end))
    }
  }
  if (rest.length > 0) yield block(rest)
}

function refuseEncoding(first: number, whole: Buffer, faults: Faults): void {
  let line = first
  for (let from = 0; from < whole.length; line++) {
    const end = whole.indexOf(0x0a, from)
    const to = end === -1 ? whole.length : end + 1
    if (!isUtf8(whole.subarray(from, to))) break
    from = to
  }
  faults.add(line, "", "encoding", "is not UTF-8; save the file as CSV UTF-8")
  faults.end()
}

async function readNdjson(
  blocks: AsyncIterable<Block>,
  faults: Faults,
  add: (line: number, members: Members) => void,
): Promise<void> {
  for await (const block of blocks) {
    let line = block.line - 1
    for (const text of block.text.split("\n")) {
      line += 1
      if (text.trim() === "") continue
      try {
        if (text.startsWith("\uFEFF")) throw new Problem("malformed-json", "The line begins with a byte order mark.")
        const value = readJsonText(text)
        if (value === null || typeof value !== "object" || Array.isArray(value)) {
          faults.add(line, "", "type", "must be a JSON object")
        } else add(line, value as Members)
      } catch (error) {
        if (!(error instanceof Problem) || error.code !== "malformed-json") throw error
        faults.add(line, "", "malformed-json", error.detail.replace(/^The (?:body|line) /, "").replace(/\.$/, ""))
      }
    }
  }
}

async function readCsv(
  blocks: AsyncIterable<Block>,
  faults: Faults,
  add: (line: number, members: Members) => void,
): Promise<void> {
  const parser = parse({
    bom: true,
    info: true,
    record_delimiter: ["\r\n", "\n"],
    skip_empty_lines: true,
    skip_records_with_empty_values: true,
    max_record_size: limits.bodyBytesMax,
  })
  let header: string[] | null = null
  /** What a stage threw first: of those that it ends, another may be the first to be heard of, with words of its own. */
  let cause: unknown
  const end = (error: unknown): never => {
    cause ??= error
    throw error
  }
  const take = async (records: AsyncIterable<{ record: string[]; info: { lines: number } }>) => {
    try {
      for await (const { record, info } of records) {
        if (header === null) header = readHeader(info.lines, record, faults)
        else add(info.lines, membersOf(header, record))
      }
    } catch (error) {
      end(error)
    }
  }
  try {
    await pipeline(Readable.from(textsOf(blocks, end)), parser, take)
  } catch (thrown) {
    const error = cause instanceof Problem ? cause : thrown
    const { code, lines } = error as CsvError
    if (error instanceof Problem || typeof code !== "string" || !(code in csvFaults)) throw error
    faults.add(typeof lines === "number" ? lines : 1, "", "csv", csvFaults[code] ?? "")
  }
}

async function* textsOf(blocks: AsyncIterable<Block>, end: (error: unknown) => never): AsyncGenerator<string> {
  try {
    for await (const { text } of blocks) yield text
  } catch (error) {
    end(error)
  }
}

const csvFaults: Readonly<Record<string, string>> = {
  CSV_INVALID_CLOSING_QUOTE: "a quoted cell goes on after its closing quote; quotes inside a cell are doubled",
  INVALID_OPENING_QUOTE: "a quote stands inside a cell that is not quoted; quote the cell and double the quote",
  CSV_QUOTE_NOT_CLOSED: "a quoted cell is not closed before the end of the file",
  CSV_RECORD_INCONSISTENT_FIELDS_LENGTH: "has not as many cells as the header",
  CSV_MAX_RECORD_SIZE: "is longer than 64 KiB",
}

function readHeader(line: number, record: string[], faults: Faults): string[] {
  const names = record.map((name) => name.trim().toLowerCase())
  const missing = (any: readonly string[]) => !any.some((name) => names.includes(name))
  const need = (any: readonly string[]) => {
    if (!missing(any)) return
    const separated = names.length === 1 && /[;\t|]/.test(names[0] ?? "") ? "; the cells are separated by commas" : ""
    faults.add(line, "", "header", `the header must name ${any.join(" or ")}${separated}`)
  }
  need(["submission_id", "idempotency_key"])
  need(["award_id"])
  need(["amount_cents", "amount"])
  for (const name of named) {
    if (names.indexOf(name) !== names.lastIndexOf(name)) {
      faults.add(line, "", "header", `the header names ${name} twice`)
    }
  }
  faults.end()
  return names
}

/** Columns that are not named here are the portal's own; an empty cell is an absent member. */
function membersOf(header: readonly string[], record: readonly string[]): Members {
  const members: Record<string, unknown> = {}
  for (const name of named) {
    const cell = record[header.indexOf(name)]
    if (cell === undefined || cell === "") continue
    if (name === "amount_cents") members[name] = /^-?\d{1,16}$/.test(cell) ? Number(cell) : cell
    else members[name] = name === "amount" ? cell : restoreText(cell)
  }
  return members
}

function readLine(line: number, members: Members, faults: Faults): ListedLine | null {
  const text = (member: (typeof named)[number], charsMax: number): string | null => {
    const value = members[member]
    if (value === undefined || value === null) return null
    if (typeof value === "string" && value !== "" && value.length <= charsMax * 2 && !value.includes("\0")) return value
    faults.add(line, member, "format", `${member} must be text of 1 to ${charsMax} characters`)
    return ""
  }
  const submissionId = text("submission_id", limits.submissionIdCharsMax)
  const idempotencyKey = text("idempotency_key", limits.keyCharsMax)
  const awardId = text("award_id", limits.awardIdCharsMax)
  const currency = text("currency", 3) ?? "USD"
  if (submissionId === null && idempotencyKey === null) {
    faults.add(line, "", "required", "needs submission_id or idempotency_key")
  }
  if (awardId === null) faults.add(line, "award_id", "required", "award_id is required")
  if (currency !== "" && !/^[A-Z]{3}$/.test(currency)) {
    faults.add(line, "currency", "format", "currency must be a code of three upper-case letters")
  }
  const cents = centsOf(line, members, currency, faults)
  if (awardId === null || awardId === "" || cents === null) return null
  return { line, submissionId, idempotencyKey, awardId, awardKey: awardKey(awardId), cents, currency }
}

/** The amount in minor units; where both are given they must be the same. */
function centsOf(line: number, { amount_cents, amount }: Members, currency: string, faults: Faults): number | null {
  const absent = (value: unknown) => value === undefined || value === null
  if (absent(amount_cents) && absent(amount)) {
    faults.add(line, "amount_cents", "required", "needs amount_cents or amount")
    return null
  }
  if (!absent(amount_cents) && !Number.isSafeInteger(amount_cents)) {
    faults.add(line, "amount_cents", "type", "amount_cents must be an integer of at most 2^53 − 1")
    return null
  }
  if (absent(amount)) return (amount_cents as number) + 0
  const read = typeof amount === "string" ? decimalCents(amount, currency) : null
  if (read === null) {
    const digits = minorUnits(currency)
    const decimals = digits === undefined ? "of a currency whose decimals are known" : `at most ${digits} decimals`
    faults.add(line, "amount", "format", `amount must be decimal text such as 1250.00, without separators, ${decimals}`)
    return null
  }
  if (!absent(amount_cents) && amount_cents !== read) {
    faults.add(line, "amount", "value", "amount and amount_cents are not the same")
    return null
  }
  return read
}

/** Digit by digit, never through a fraction. */
function decimalCents(text: string, currency: string): number | null {
  const digits = minorUnits(currency)
  const parts = /^(-?)(\d{1,16})(?:\.(\d{1,4}))?$/.exec(text)
  if (digits === undefined || !parts) return null
  const [, sign = "", whole = "", fraction = ""] = parts
  if (fraction.length > digits) return null
  const cents = BigInt(sign + whole + fraction.padEnd(digits, "0"))
  return cents >= -BigInt(limits.amountCentsMax) && cents <= BigInt(limits.amountCentsMax) ? Number(cents) : null
}

function tooLarge(bound: string): Problem {
  return new Problem("body-too-large", `The list has more than ${bound}. Nothing was compared; send it in parts.`)
}
