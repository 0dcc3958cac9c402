/** Strict JSON: whatever two readers could read in two ways is refused, and everything else reads as JSON.parse reads it. */
import fc from "fast-check"
import { parse } from "lossless-json"
import t from "tap"
import { readJson, readJsonText, Spelled } from "../../src/ledger/strict-json.js"
import { limits } from "../../src/limits.js"
import { Problem } from "../../src/problems.js"

/** The detail with which a body is refused; null if it is read. */
function refusal(body: string | Buffer): string | null {
  try {
    readJson(Buffer.from(body))
    return null
  } catch (error) {
    if (error instanceof Problem && error.code === "malformed-json") return error.detail
    throw error
  }
}

const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth)

t.test("a member that appears twice is refused at any depth, equal or not, however it is escaped", async (t) => {
  for (const body of [
    '{"amount_cents":1,"amount_cents":1000000}',
    '{"a":1,"a":1}',
    '{"a":{},"b":2,"a":{}}',
    '{"a":1,"\\u0061":1}',
    '{"\\/":1,"/":1}',
    '{"details":[{"x":[{"y":1,"z":{},"y":2}]}]}',
    '{"":1,"":2}',
    '{"constructor":1,"constructor":2}',
  ]) {
    t.match(refusal(body), /appears twice/, body)
  }
  t.equal(refusal('{"details":{"a":{"b":1},"c":[{"b":1},{"b":1}]},"b":["a","a"],"c":"c"}'), null)
})

t.test("text that is not UTF-8, or begins with a byte order mark, is refused", async (t) => {
  for (const bytes of [[0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xe2, 0x82], [0xf4, 0x90, 0x80, 0x80]]) {
    const body = Buffer.concat([Buffer.from('{"a":"'), Buffer.from(bytes), Buffer.from('"}')])
    t.match(refusal(body), /not UTF-8: see byte 6/)
  }
  t.match(refusal("\ufeff{}"), /byte order mark/)
  t.match(refusal(Buffer.from("{}", "utf16le")), /not JSON/)
})

t.test("NUL and lone surrogates are refused in values and in names; a pair is a character", async (t) => {
  for (const bad of ["\\u0000", "a\\u0000b", "\\ud800", "\\udc00x", "\\udc00\\ud800", "\\uD83D \\uDE00"]) {
    t.match(refusal(`{"details":{"x":["${bad}"]}}`), /NUL or a lone surrogate/, bad)
    t.match(refusal(`{"details":{"${bad}":1}}`), /NUL or a lone surrogate/, bad)
  }
  t.same(readJson(Buffer.from('{"a":"\\ud83d\\ude00 \\\\u0000"}')), { a: "😀 \\u0000" })
  t.throws(() => readJsonText('"\ud800"'), { code: "malformed-json" })
})

t.test(`nesting over ${limits.jsonDepthMax} is refused, without recursion, whatever the body`, async (t) => {
  t.equal(refusal(nested(limits.jsonDepthMax)), null)
  t.match(refusal(nested(limits.jsonDepthMax + 1)), /nested more than/)
  t.match(refusal(nested(limits.bodyBytesMax / 2)), /nested more than/)
  t.match(refusal('{"a":'.repeat(9_000).concat("1", "}".repeat(9_000))), /nested more than/)
  t.match(refusal("[".repeat(limits.bodyBytesMax)), /not JSON/)
  t.match(refusal('{"a":'.repeat(limits.bodyBytesMax / 5)), /not JSON/)
})

t.test("an integer beyond ±(2^53−1) and a number that overflows are refused at any depth", async (t) => {
  for (const number of ["9007199254740992", "9007199254740993", "-9007199254740992", "1".repeat(400)]) {
    t.match(refusal(`{"amount_cents":${number}}`), /beyond/, number.slice(0, 20))
    t.match(refusal(`{"details":{"x":[${number}]}}`), /beyond/, number.slice(0, 20))
  }
  for (const number of ["1e400", "-1e400", "1.5E+999"]) t.match(refusal(`{"details":[${number}]}`), /too large/, number)
  t.same(
    readJson(Buffer.from("[9007199254740991,-9007199254740991,1e300,5e-324]")),
    [9007199254740991, -9007199254740991, 1e300, 5e-324],
  )
})

t.test(
  "a member of the body keeps the spelling of a number that is no plain integer; deeper it is a number",
  async (t) => {
    const body = '{"a":1e2,"b":100.0,"c":-0,"d":100.5,"e":1E0,"f":100,"g":-7,"h":0,"details":{"x":1e2,"y":[-0.5]}}'
    const value = readJson(Buffer.from(body)) as Record<string, unknown>
    for (const [name, text] of Object.entries({ a: "1e2", b: "100.0", c: "-0", d: "100.5", e: "1E0" })) {
      t.ok(value[name] instanceof Spelled, name)
      t.same(value[name], { text })
    }
    t.same([value.f, value.g, value.h, value.details], [100, -7, 0, { x: 100, y: [-0.5] }])
  },
)

t.test("no body ever sets a prototype", async (t) => {
  t.match(refusal('{"__proto__":{"admin":true}}'), /__proto__/)
  t.match(refusal('{"details":{"\\u005f_proto__":1}}'), /__proto__/)
  const value = readJson(Buffer.from('{"constructor":{"prototype":{"x":1}},"hasOwnProperty":1e1}')) as object
  t.equal(Object.getPrototypeOf(value), Object.prototype)
  t.same(Object.keys(value), ["constructor", "hasOwnProperty"])
  t.notOk("x" in {})
})

t.test("a refusal names a place and repeats nothing of the payload", async (t) => {
  t.equal(refusal('{"ssn":078051120}'), "The body is not JSON (at position 8, counted from 0).")
  t.equal(refusal('{"a":secret}'), "The body is not JSON (at position 5, counted from 0).")
  t.equal(refusal(""), "The body is not JSON (at position 0, counted from 0).")
  t.equal(refusal('{"s3cret":1,"s3cret":2}'), "A member appears twice in one object (at position 12, counted from 0).")
  for (const bad of [
    "{'a':1}",
    '{"a":1,}',
    "[1 2]",
    "{} {}",
    "NaN",
    "01",
    "+1",
    ".5",
    '"\t"',
    "tru",
    '{"a"}',
    "\u00a01",
  ]) {
    t.match(refusal(bad), /^The body is not JSON/, bad)
  }
})

/** JSON values without anything that is refused. */
const json = fc
  .jsonValue({ maxDepth: 5 })
  .filter((value) => !/__proto__|\\u0000|\\ud[89a-f]/.test(JSON.stringify(value)))
  .map((value) => JSON.parse(JSON.stringify(value)) as unknown)
  .filter((value) => {
    const numbers = JSON.stringify(value).match(/-?\d{16,}(?![.e\d])/g) ?? []
    return numbers.every((number) => Number.isSafeInteger(Number(number)))
  })

t.test("everything else reads as JSON.parse and lossless-json read it, with any white space", async (t) => {
  fc.assert(
    fc.property(json, fc.constantFrom("", " ", "\t", "\n", "\r\n "), (value, space) => {
      // Inside a list, so that no number is a member of the body itself.
      const text = JSON.stringify([value], null, space)
      const read = readJson(Buffer.from(text))
      t.same(read, JSON.parse(text))
      t.same(read, parse(text, null, Number))
      t.same(readJsonText(text), read)
    }),
  )
})

t.test("no bytes at all make it throw anything but a problem", async (t) => {
  const pieces = fc.constantFrom(
    ...[
      "{",
      "}",
      "[",
      "]",
      ":",
      ",",
      '"',
      '"a"',
      "\\",
      "\\u0000",
      "\\ud800",
      "1",
      "-",
      "0",
      "e",
      ".",
      "true",
      "null",
      " ",
      "\u00e9",
    ],
  )
  const text = fc.array(pieces, { maxLength: 30 }).map((parts) => Buffer.from(parts.join("")))
  const bytes = fc.uint8Array({ maxLength: 60 }).map((array) => Buffer.from(array))
  fc.assert(
    fc.property(fc.oneof(text, bytes), (body) => {
      const refused = refusal(body) !== null
      let parsed = true
      try {
        JSON.parse(body.toString("utf8"))
      } catch {
        parsed = false
      }
      // Never more tolerant than JSON.parse.
      t.ok(refused || parsed, body.toString("utf8"))
    }),
    { numRuns: 2_000 },
  )
})
