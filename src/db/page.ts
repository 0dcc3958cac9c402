/**
 * Pages of what is ordered by time, then id: the cursor names the last row seen, to the microsecond, and is bound to the filters it was made
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
export function encodeCursor(place: Place, filters: unknown): string {
  return Buffer.from(JSON.stringify([1, place.at, place.id, digest(filters)])).toString("base64url")
}

/** @throws Problem invalid-cursor unless it is one of ours, unchanged, for the same filters */
export function decodeCursor(cursor: string, filters: unknown): Place {
  const text = Buffer.from(cursor, "base64url").toString()
  let read: unknown
  try {
    read = JSON.parse(text)
  } catch {
    throw invalid("The cursor was not made by this service.")
  }
  const [version, at, id, filtersDigest] = Array.isArray(read) ? read : []
  const ours = version === 1 && typeof at === "string" && typeof id === "string" && typeof filtersDigest === "string"
  if (!ours || !isPlace(at, id) || JSON.stringify([1, at, id, filtersDigest]) !== text || encode(text) !== cursor) {
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
  place: (row: Row) => Place,
): Page<Row> {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, next_cursor: rows.length > limit && last !== undefined ? encodeCursor(place(last), filters) : null }
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
