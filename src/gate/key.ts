/**
 * Idempotency keys: the caller's name for one intended operation, read from the header or derived. A key is 1 to 255 printable ASCII
 * characters, case-sensitive; quoted (RFC 8941 String) and bare spellings are the same key. What could be read in two ways is refused,
 * and no refusal repeats the value. Never derive a key from a message id, a delivery time or a time bucket: those change on a retry.
 */
import { hash } from "node:crypto"
import canonicalize from "canonicalize"
import { parseItem, serializeString } from "structured-headers"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"

/** How a key came about, stored beside each claim: a later version still knows what an earlier one meant. */
export type KeyStrategy = "client/1" | "award-timestamp-payload/1" | "source-event/1"

const header = "The Idempotency-Key header"

/**
 * Reads the key from the headers as they arrived: joined or overwritten lines would hide that there were two.
 * @param rawHeaders Node's flat [name, value, …]
 * @returns the key, unquoted; null when there is no such header
 * @throws Problem `idempotency-key-invalid`
 */
export function parseKeyHeader(rawHeaders: readonly string[]): string | null {
  let value: string | undefined
  let lines = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]?.toLowerCase() !== "idempotency-key") continue
    value = rawHeaders[i + 1] ?? ""
    lines++
  }
  if (value === undefined) return null
  if (lines > 1) throw invalid(`${header} was sent ${lines} times; send one`)
  // White space around a field value is not part of it (RFC 9110 section 5.5).
  const text = value.replace(/^[ \t]+|[ \t]+$/g, "")
  if (text.startsWith('"')) return checkKey(unquote(text), header)
  if (text !== "" && !/^[A-Za-z0-9][A-Za-z0-9\-._~:/+=@]*$/.test(text)) {
    throw invalid(
      `${header} has ${lengthOf(text)} characters, of which some may not stand in a bare key; ${allowed}, and a bare key begins with a letter or digit and goes on with letters, digits and - . _ ~ : / + = @; any other stands in double quotes`,
    )
  }
  return checkKey(text, header)
}

/**
 * Checks a key that needs no unquoting: one from a path or from a member of a body.
 * @param where begins the detail: what the key was sent in
 * @returns the key
 * @throws Problem `idempotency-key-invalid`
 */
export function checkKey(key: string, where = "The key"): string {
  if (key.length < limits.keyCharsMin || key.length > limits.keyCharsMax) {
    throw invalid(`${where} has ${lengthOf(key)} characters; ${allowed}`)
  }
  if (!/^[\x20-\x7e]+$/.test(key)) {
    throw invalid(`${where} has ${lengthOf(key)} characters, not all of them printable ASCII; ${allowed}`)
  }
  if (key.trim() === "") throw invalid(`${where} has ${lengthOf(key)} characters, all of them spaces; ${allowed}`)
  return key
}

/** The key as an RFC 8941 String, for the answer's header. Throws on what could split a header; a checked key never does. */
export function quoteKey(key: string): string {
  return serializeString(key)
}

/**
 * The key of a submission that came without one (`award-timestamp-payload/1`):
 * sha256_hex(award + "|" + timestamp + "|" + sha256_hex(payload)), all in their normalised forms.
 */
export function deriveKey(awardKey: string, timestamp: string, payload: string | Buffer): string {
  return sha256(`${awardKey}|${timestamp}|${sha256(payload)}`)
}

/** The key of a balance event (`source-event/1`): what its source calls it, nothing that changes on a redelivery. */
export function sourceEventKey(source: string, sourceEventId: string): string {
  return sha256(canonicalize(["source-event/1", source, sourceEventId]) as string)
}

const allowed = `a key has ${limits.keyCharsMin} to ${limits.keyCharsMax} printable ASCII characters`

function unquote(text: string): string {
  try {
    const [item, parameters] = parseItem(text)
    if (typeof item === "string" && parameters.size === 0) return item
  } catch {
    // Not one String: refused below, without the library's words.
  }
  throw invalid(`${header} has ${lengthOf(text)} characters and is not one quoted string; ${allowed}, \\ and " escaped`)
}

function lengthOf(text: string): number {
  return [...text].length
}

function invalid(detail: string): Problem {
  return new Problem("idempotency-key-invalid", `${detail}.`)
}

function sha256(data: string | Buffer): string {
  return hash("sha256", data, "hex")
}
