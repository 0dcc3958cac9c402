/**
 * Pages of what is ordered by time, then id, or by a text of its own: the cursor names the last row seen, and is bound to the filters it was made
 * under. Rows keep their place for ever, so every row that was there before the first page appears exactly once.
 */
import { createHash } from "node:crypto"
import { Problem } from "../problems.js"

/** A row's place in the order. */
export interface Place {
  /** RFC 3339 UTC with six digits. */
  readonly at: string
  readonly id: string
}

export interface Page<Item> {
  readonly items: readonly Item[]
  readonly next_cursor: string | null
}

/** Opaque to the caller. Not a secret: it says nothing that the page did not. */
export function encodeCursor(place: Place | string, filters: unknown): string {
  const parts = typeof place === "string" ? [2, place] : [1, place.at, place.id]
  return encode(JSON.stringify([...parts, digest(filters)]))
}

/** The last text seen. @throws Problem invalid-cursor unless it is one of ours, unchanged, for the same filters */
export function decodeTextCursor(cursor: string, filters: unknown): string {
  const [version, last, filtersDigest] = readParts(cursor)
  if (version !== 2 || typeof last !== "string" || encode(JSON.stringify([2, last, filtersDigest])) !== cursor) {
    throw invalid("The cursor was not made by this service.")
  }
  if (filtersDigest !== digest(filters)) throw invalid("The cursor belongs to a list with other filters.")
  return last
}

/** @throws Problem invalid-cursor unless it is one of ours, unchanged, for the same filters */
export function decodeCursor(cursor: string, filters: unknown): Place {
  const [version, at, id, filtersDigest] = readParts(cursor)
  const ours = version === 1 && typeof at === "string" && typeof id === "string" && typeof filtersDigest === "string"
  if (!ours || !isPlace(at, id) || encode(JSON.stringify([1, at, id, filtersDigest])) !== cursor) {
    throw invalid("The cursor was not made by this service.")
  }
  if (filtersDigest !== digest(filters)) throw invalid("The cursor belongs to a list with other filters.")
  return { at, id }
}

/** Splits what was read, one row more than fits, into the page and the cursor of the next one. */
export function toPage<Row>(
  rows: readonly Row[],
  limit: number,
  filters: unknown,
  place: (row: Row) => Place | string,
): Page<Row> {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, next_cursor: rows.length > limit && last !== undefined ? encodeCursor(place(last), filters) : null }
}

/** @throws Problem invalid-cursor unless it is a list in JSON */
function readParts(cursor: string): unknown[] {
  try {
    const read: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString())
    if (Array.isArray(read)) return read
  } catch {
    // Answered below.
  }
  throw invalid("The cursor was not made by this service.")
}

function encode(text: string): string {
  return Buffer.from(text).toString("base64url")
}

function isPlace(at: string, id: string): boolean {
  return (
    /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/.test(at) &&
    !Number.isNaN(Date.parse(at)) &&
    /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id)
  )
}

function digest(filters: unknown): string {
  return createHash("sha256").update(JSON.stringify(filters)).digest("base64url").slice(0, 16)
}

function invalid(detail: string): Problem {
  return new Problem("invalid-cursor", detail)
}
