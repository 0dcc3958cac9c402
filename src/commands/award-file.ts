/**
 * A file of awards, as finance offices keep them: CSV (RFC 4180) in UTF-8, a header first. Read whole and strictly before anything is done with it:
 * what is wrong is said of each line, and nothing is guessed, trimmed or skipped. Pure: it opens no file and asks no database.
 */
import { isUtf8 } from "node:buffer"
import { CsvError, parse } from "csv-parse/sync"
import { type RulesPatch, rulesPatchSchema } from "../ledger/award-rules.js"
import { faultsOf } from "../ledger/faults.js"
import { awardIdText, awardKey } from "../ledger/submission.js"
import { limits } from "../limits.js"

/** One award of a file. A column that the file does not have is absent in `sent`; an empty cell is null. */
export interface FileAward {
  /** Counted from 1, the header. */
  readonly line: number
  readonly awardId: string
  readonly awardKey: string
  readonly sent: RulesPatch
}

/** Something wrong with a line; `detail` is a sentence's end, such as `has 3 cells where the header has 4`. */
export interface LineFault {
  readonly line: number
  readonly detail: string
}

/** How a cell becomes a value of its column; an empty one is null. */
const cells: Readonly<Record<keyof RulesPatch, (text: string) => unknown>> = {
  currency: asText,
  obligated_cents: asInteger,
  status: asText,
  period_start: asText,
  period_end: asText,
  time_zone: asText,
  liquidation_days: asInteger,
  retention_years: asInteger,
  final_report_submitted_on: asText,
  portals: (text) => text.split(";"),
}

/** The columns that a file may have, in the order in which they are told. */
export const awardColumns: readonly string[] = ["award_id", ...Object.keys(cells)]

/** @returns the awards, and all that is wrong, in the order of lines; where something is, the awards are not to be used */
export function readAwardFile(bytes: Buffer): { awards: FileAward[]; faults: LineFault[] } {
  const unreadable = unreadableLines(bytes)
  if (unreadable.length > 0) return { awards: [], faults: unreadable }
  const { records, fault } = readRecords(bytes)
  const [header, ...rest] = records
  if (!header) return { awards: [], faults: [fault ?? { line: 1, detail: "is missing: the file is empty" }] }
  const faults = headerFaults(header.record).map((detail) => ({ line: header.line, detail }))
  if (faults.length === 0 && rest.length === 0 && !fault)
    faults.push({ line: header.line, detail: "is all there is: no award follows the header" })
  if (faults.length > 0) return { awards: [], faults }

  const awards: FileAward[] = []
  const lines = new Map<string, number>()
  for (const { record, line } of rest) {
    const read = readAward(header.record, record, line)
    if (Array.isArray(read)) {
      faults.push(...read)
      continue
    }
    const before = lines.get(read.awardKey)
    if (before !== undefined) faults.push({ line, detail: `names the award of line ${before} again` })
    lines.set(read.awardKey, before ?? line)
    awards.push(read)
  }
  if (fault) faults.push(fault)
  return { awards, faults }
}

/** Lines that are no text: another encoding is a guess at best. */
function unreadableLines(bytes: Buffer): LineFault[] {
  if (bytes.length >= 2 && ((bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff))) {
    return [{ line: 1, detail: "begins as UTF-16; save the file as CSV in UTF-8" }]
  }
  const faults: LineFault[] = []
  for (let line = 1, at = 0; at < bytes.length; line++) {
    const newline = bytes.indexOf(0x0a, at)
    const end = newline === -1 ? bytes.length : newline
    const text = bytes.subarray(at, end)
    // No sequence of UTF-8 spans a newline.
    if (!isUtf8(text)) faults.push({ line, detail: "is not UTF-8; save the file as CSV in UTF-8" })
    else if (text.includes(0)) faults.push({ line, detail: "holds a NUL character" })
    at = end + 1
  }
  return faults
}

interface Records {
  readonly records: readonly { readonly record: readonly string[]; readonly line: number }[]
  /** Quotes that do not match: what follows cannot be told apart. */
  readonly fault: LineFault | null
}

function readRecords(bytes: Buffer): Records {
  const records: { record: string[]; line: number }[] = []
  try {
    parse(bytes, {
      bom: true,
      delimiter: ",",
      record_delimiter: ["\r\n", "\n"],
      skip_empty_lines: true,
      relax_column_count: true,
      max_record_size: limits.bodyBytesMax,
      // Kept as they come, so that what was read before a fault is looked at, too.
      on_record: (record, { lines }) => {
        records.push({ record, line: lines })
        return null
      },
    })
    return { records, fault: null }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error
    // Where the record begins: the parser names the line on which it gave up.
    const line = (records.at(-1)?.line ?? 0) + 1
    return { records, fault: { line, detail: csvFaults[error.code] ?? "is not CSV" } }
  }
}

const csvFaults: Readonly<Record<string, string>> = {
  CSV_QUOTE_NOT_CLOSED: "opens a quote that is never closed",
  CSV_INVALID_CLOSING_QUOTE: 'has something after a closing quote; a quote inside a quoted cell is written twice ("")',
  INVALID_OPENING_QUOTE:
    'has a quote inside a cell that does not begin with one; quote the whole cell and write its quotes twice ("")',
  CSV_MAX_RECORD_SIZE: `is longer than ${limits.bodyBytesMax} bytes; or it opens a quote that is never closed`,
}

function headerFaults(header: readonly string[]): string[] {
  const faults = header.flatMap((name, i) => {
    if (!awardColumns.includes(name))
      return [`has the column ${JSON.stringify(name)}, which is none of ${awardColumns.join(", ")}`]
    return header.indexOf(name) === i ? [] : [`has the column ${name} twice`]
  })
  return header.includes("award_id") ? faults : ["is not a header: it has no column award_id", ...faults]
}

function readAward(header: readonly string[], record: readonly string[], line: number): FileAward | LineFault[] {
  if (record.length !== header.length) {
    return [{ line, detail: `has ${record.length} cells where the header has ${header.length}` }]
  }
  const named = Object.fromEntries(header.map((name, i) => [name, record[i] as string]))
  const { award_id = "", ...rules } = named
  const id = awardIdText.safeParse(award_id)
  const values = Object.entries(rules)
    // A currency is never null; where the award is there already, an empty one leaves it.
    .filter(([name, text]) => !(name === "currency" && text === ""))
    .map(([name, text]) => [name, text === "" ? null : cells[name as keyof RulesPatch](text)])
  const sent = rulesPatchSchema.safeParse(Object.fromEntries(values))
  if (id.success && sent.success) return { line, awardId: id.data, awardKey: awardKey(id.data), sent: sent.data }
  return [
    ...(id.success ? [] : [{ line, detail: `award_id ${faultsOf(id.error)[0]?.detail}` }]),
    ...(sent.success
      ? []
      : faultsOf(sent.error).map(({ pointer, detail }) => ({ line, detail: `${pointer.slice(1)} ${detail}` }))),
  ]
}

function asText(text: string): string {
  return text
}

/** What is not written as an integer stays text, and is refused as such. */
function asInteger(text: string): number | string {
  return /^(?:0|-?[1-9]\d{0,15})$/.test(text) ? Number(text) : text
}
