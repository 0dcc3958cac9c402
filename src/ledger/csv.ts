/**
 * Tables as CSV (RFC 4180, https://www.rfc-editor.org/rfc/rfc4180): a header row, CRLF, quotes where they are needed. A spreadsheet takes a cell that
 * begins with `= + - @` for a formula, and would run what somebody else wrote; such texts get an apostrophe in front, numbers stay numbers.
 * The apostrophe can be taken off again without doubt, so that what was recorded can be read back exactly.
 */
import { stringify } from "csv-stringify/sync"

/** Text that a spreadsheet may take for a formula (https://owasp.org/www-community/attacks/CSV_Injection), full-width forms included. */
const formula = /^'*[=+\-@\t\r\n＝＋－＠]/
const neutralised = /^''*[=+\-@\t\r\n＝＋－＠]/

/** A column: numbers and texts marked `plain` are written as they are, any other text is neutralised; null is an empty cell. */
export interface Column<Row> {
  readonly name: string
  readonly cell: (row: Row) => string | number | bigint | null
  /** A decimal number written as text. */
  readonly plain?: true
}

export function csvHeader<Row>(columns: readonly Column<Row>[]): string {
  return write([columns.map(({ name }) => name)])
}

/** The rows, each with its line's end; empty when there are none. */
export function csvRows<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  return write(
    rows.map((row) =>
      columns.map(({ cell, plain }) => {
        const value = cell(row)
        return typeof value === "string" && plain !== true ? neutralise(value) : value
      }),
    ),
  )
}

function write(records: (string | number | bigint | null)[][]): string {
  return stringify(records, { record_delimiter: "\r\n" })
}

function neutralise(text: string): string {
  return formula.test(text) ? `'${text}` : text
}

/** The text that was neutralised, or the text as it is. */
export function restoreText(cell: string): string {
  return neutralised.test(cell) ? cell.slice(1) : cell
}
