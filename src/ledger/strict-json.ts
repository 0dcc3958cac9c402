/**
 * Strict JSON: what two readers could understand in two ways is refused, so that nobody is paid by the second reading. JSON.parse says
 * whether the text is JSON at all; one pass over the text then finds what JSON.parse forgives: members that appear twice, numbers
 * that change when read, strings that no database can store, depth. No detail holds a value of the payload.
 */
import { isUtf8 } from "node:buffer"
import { parse } from "lossless-json"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"

/**
 * A member of the body itself that is a number, but not written as a plain integer: `1e2`, `100.0`, `-0`. No schema takes it for a number,
 * so an amount is never one that somebody rounded. Deeper down, in free evidence, such numbers are plain numbers.
 */
export class Spelled {
  constructor(readonly text: string) {}
}

/**
 * Reads a body, or a line of one.
 * @param what begins each detail
 * @throws Problem `malformed-json`, with the position of what was refused
 */
export function readJson(bytes: Buffer, what = "The body"): unknown {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    throw malformed(`${what} begins with a byte order mark; JSON is sent without one.`)
  }
  if (!isUtf8(bytes)) throw malformed(`${what} is not UTF-8: see byte ${invalidByte(bytes)}.`)
  return readStrictly(bytes.toString("utf8"), what)
}

/** Reads a text that is already decoded, by the same rules. */
export function readJsonText(text: string): unknown {
  if (/\p{Surrogate}/u.test(text)) throw malformed("The text holds a lone surrogate.")
  return readStrictly(text, "The text")
}

function readStrictly(text: string, what: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw malformed(`${what} is not JSON${at(syntaxErrorPosition(text))}`)
  }
  for (const [member, spelling] of scan(text, what)) {
    const body = value as Record<string, unknown>
    body[member] = new Spelled(spelling)
  }
  return value
}

const quote = 0x22
const minus = 0x2d
const comma = 0x2c
const backslash = 0x5c

/**
 * Looks at the text of valid JSON, once, without recursion.
 * @returns name and spelling of the body's own members that are numbers but not written as plain integers
 */
function scan(text: string, what: string): [string, string][] {
  const spelled: [string, string][] = []
  // The names in each open object, null for an open array.
  const open: (Set<string> | null)[] = []
  let names: Set<string> | null = null
  let awaitsName = false
  let member = ""

  for (let i = 0; i < text.length; i++) {
    const start = i
    const code = text.charCodeAt(i)
    if (code === quote) {
      let escapes = false
      for (i++; text.charCodeAt(i) !== quote; i++) {
        if (text.charCodeAt(i) !== backslash) continue
        escapes = true
        i++
      }
      const isName: boolean = awaitsName
      awaitsName = false
      if (!isName && !escapes) continue
      const string = escapes ? (JSON.parse(text.slice(start, i + 1)) as string) : text.slice(start + 1, i)
      if (escapes && /\0|\p{Surrogate}/u.test(string)) {
        throw malformed(`A string holds NUL or a lone surrogate${at(start)}`)
      }
      if (!isName || names === null) continue
      if (names.has(string)) throw malformed(`A member appears twice in one object${at(start)}`)
      // Plain data to JSON.parse, but many an assignment after it would take it for the object's prototype.
      if (string === "__proto__") throw malformed(`A member is named __proto__${at(start)}`)
      names.add(string)
      member = string
    } else if (code === 0x7b || code === 0x5b) {
      names = code === 0x7b ? new Set() : null
      awaitsName = names !== null
      if (open.push(names) > limits.jsonDepthMax) {
        throw malformed(`${what} is nested more than ${limits.jsonDepthMax} levels deep${at(start)}`)
      }
    } else if (code === 0x7d || code === 0x5d) {
      open.pop()
      names = open.at(-1) ?? null
      awaitsName = false
    } else if (code === comma) {
      awaitsName = names !== null
    } else if (code === minus || isDigit(code)) {
      while (isNumberPart(text.charCodeAt(i + 1))) i++
      const number = text.slice(start, i + 1)
      if (isExactInteger(number, start)) continue
      if (open.length === 1 && names !== null) spelled.push([member, number])
    }
  }
  return spelled
}

/** Whether a number is written as a plain integer. Refuses what would not survive the reading. */
function isExactInteger(number: string, position: number): boolean {
  if (/[.eE]/.test(number)) {
    if (!Number.isFinite(Number(number))) throw malformed(`A number is too large to be read${at(position)}`)
    return false
  }
  if (number.length > 15 && !Number.isSafeInteger(Number(number))) {
    throw malformed(`An integer is beyond ±(2^53−1), where readers round${at(position)}`)
  }
  return number !== "-0"
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39
}

/** Digits and `+ - . E e`. */
function isNumberPart(code: number): boolean {
  return isDigit(code) || code === minus || code === 0x2b || code === 0x2e || code === 0x45 || code === 0x65
}

/** JSON.parse's own messages quote the payload, and often name no position: lossless-json's end in one. */
function syntaxErrorPosition(text: string): number | null {
  try {
    parse(text)
  } catch (error) {
    // Not a SyntaxError where the text is nested beyond the stack.
    const position = error instanceof SyntaxError ? / position (\d+)$/.exec(error.message)?.[1] : undefined
    return position === undefined ? null : Number(position)
  }
  return null
}

/** Index of the first byte that decoding had to replace. */
function invalidByte(bytes: Buffer): number {
  const replaced = Buffer.from(bytes.toString("utf8"))
  let i = 0
  while (bytes[i] === replaced[i]) i++
  return i
}

function at(position: number | null): string {
  return position === null ? "." : ` (at position ${position}, counted from 0).`
}

function malformed(detail: string): Problem {
  return new Problem("malformed-json", detail)
}
