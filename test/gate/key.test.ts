/** Keys: one spelling rule, the same key quoted or bare, nothing ambiguous accepted, and derivation as published. */
import fc from "fast-check"
import t from "tap"
import { checkKey, deriveKey, parseKeyHeader, quoteKey, sourceEventKey } from "../../src/gate/key.js"
import { Problem } from "../../src/problems.js"

const headers = (...values: string[]) => [
  "Host",
  "a",
  ...values.flatMap((value) => ["Idempotency-Key", value]),
  "Accept",
  "b",
]

/** The key read from one header, or the detail of the refusal. */
function read(...values: string[]): { key: string | null } | { refused: string } {
  try {
    return { key: parseKeyHeader(headers(...values)) }
  } catch (error) {
    if (error instanceof Problem && error.code === "idempotency-key-invalid") return { refused: error.detail }
    throw error
  }
}

const refused = (...values: string[]) =>
  "refused" in read(...values) ? (read(...values) as { refused: string }).refused : null

t.test("no header is no key; the header's name is not case-sensitive", async (t) => {
  t.equal(parseKeyHeader([]), null)
  t.equal(parseKeyHeader(["X-Idempotency-Key", "k"]), null)
  t.equal(parseKeyHeader(["IDEMPOTENCY-KEY", "k"]), "k")
  t.equal(parseKeyHeader(["idempotency-key", "k"]), "k")
})

t.test("a quoted and a bare key are the same key, and case is kept", async (t) => {
  for (const key of ["K", "8e03978e-40d5-43dd-bc93-6894a57f9324", "a:b/c+d=e@f~g.h_i-j", "0", "007"]) {
    t.same(read(key), { key })
    t.same(read(`"${key}"`), { key })
    t.same(read(` \t"${key}" `), { key })
  }
  t.not(parseKeyHeader(headers("K")), parseKeyHeader(headers("k")))
  t.same(read('"a \\"b\\" \\\\ ; , c"'), { key: 'a "b" \\ ; , c' })
})

t.test("1 to 255 characters are a key, 256 and 3000 are refused, counted after unquoting", async (t) => {
  for (const length of [1, 255]) {
    t.same(read("k".repeat(length)), { key: "k".repeat(length) })
    t.same(read(`"${"k".repeat(length)}"`), { key: "k".repeat(length) })
  }
  t.same(read(`"${'\\"'.repeat(255)}"`), { key: '"'.repeat(255) })
  for (const length of [256, 3000]) {
    t.match(refused("k".repeat(length)), new RegExp(`Idempotency-Key header has ${length} characters.*1 to 255`))
    t.match(refused(`"${"k".repeat(length)}"`), new RegExp(`Idempotency-Key header has ${length} characters.*1 to 255`))
  }
})

t.test(
  "empty, blank, repeated, listed, parameterised, unterminated and non-ASCII keys are refused, without echo",
  async (t) => {
    t.match(refused(""), /has 0 characters/)
    for (const bad of [" ", '""', '" "', '"   "', "\t"]) t.ok(refused(bad), JSON.stringify(bad))
    t.match(refused("Kx1", "Kx1"), /sent 2 times/)
    t.match(refused('"Kx1"', "Kx1"), /sent 2 times/)
    for (const bad of [
      ...'Kx1, Kx2|Kx1,Kx2|"Kx1", "Kx2"|"Kx1";a=1|Kx1;a=1|"Kx1|Kx1"|"Kx1\\"|"Kx1\\n"|\'Kx1\'|"Kx1"Kx2'.split("|"),
      ...'Kx 1|-Kx1|.Kx1|/Kx1|Kx1%20|Kx1?|Kx1#|Kx1*|("Kx1")|:S3gx:|?1|@1'.split("|"),
      "Kxé1",
      '"Kxé1"',
      '"Kx\u00001"',
      '"Kx\u007f1"',
      '"Kx\t1"',
      "Kx\r\nX: 1",
    ]) {
      const detail = refused(bad)
      t.match(detail, /^The Idempotency-Key header has \d+ characters.* 1 to 255 /, JSON.stringify(bad))
      t.notMatch(detail, /Kx/, "the value is not repeated")
    }
  },
)

t.test("a key from a path or a body follows the same rule, without quotes", async (t) => {
  t.equal(checkKey('any "printable" key, ~'), 'any "printable" key, ~')
  for (const bad of ["", " ", "é", "\n", "\u007f", "k".repeat(256)]) {
    t.throws(() => checkKey(bad, "The member idempotency_key"), {
      code: "idempotency-key-invalid",
      detail: /^The member idempotency_key has \d/,
    })
  }
})

t.test("every legal key survives quoting, and a quoted key cannot split a header", async (t) => {
  const key = fc.string({
    unit: fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code)),
    minLength: 1,
    maxLength: 255,
  })
  fc.assert(
    fc.property(key, (key) => {
      if (key.trim() === "") return t.ok(refused(quoteKey(key)))
      t.same(read(quoteKey(key)), { key })
      t.match(quoteKey(key), /^"[\x20-\x7e]+"$/)
      const bare = read(key)
      // Bare, it is the same key or none at all: never another one.
      if ("key" in bare && !key.startsWith('"')) t.equal(bare.key, key.trim())
    }),
  )
  t.throws(() => quoteKey("a\r\nb"))
})

t.test("whatever is sent, the answer is a legal key or a refusal", async (t) => {
  const piece = fc.constantFrom(...'" \\ ; , = a 1 é \u0000 \t \r \n k-1 ( ) :'.split(" "), " ")
  const value = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.array(piece).map((parts) => parts.join("")),
  )
  fc.assert(
    fc.property(fc.array(value, { maxLength: 2 }), (values) => {
      const result = read(...values)
      if ("refused" in result) return t.ok(values.length > 0)
      if (values.length === 0) return t.equal(result.key, null)
      t.equal(values.length, 1)
      t.match(result.key, /^[\x20-\x7e]{1,255}$/)
      t.not(result.key?.trim(), "")
    }),
    { numRuns: 2_000 },
  )
})

t.test("the derivation keeps its published vectors", async (t) => {
  const published = "d3ed6c4d8acb11aa58dcdb03e400559b1e415626580e4a00466ae631bea74acd"
  t.equal(deriveKey("A-2026-014", "2026-07-01T09:00:00Z", "{...}"), published)
  t.equal(deriveKey("A-2026-014", "2026-07-01T09:00:00Z", Buffer.from("{...}")), published)
  t.equal(
    deriveKey(
      "A-2026-014",
      "2026-07-01T09:00:00Z",
      '{"amount_cents":125000,"award_id":"A-2026-014","currency":"USD","submission_timestamp":"2026-07-01T09:00:00Z"}',
    ),
    "def8447597ab1077142720afdd12b6ab3e8558d9ac676c6a6219502aba7a6827",
  )
})

t.test("a balance event's key is its source and its source's id, and no other pair's", async (t) => {
  const key = sourceEventKey("bank", "e-1")
  t.match(key, /^[0-9a-f]{64}$/)
  t.equal(sourceEventKey("bank", "e-1"), key)
  for (const other of [
    ["bank", "e-2"],
    ["ban", "ke-1"],
    ['bank","e-1', ""],
    ["e-1", "bank"],
  ] as const) {
    t.not(sourceEventKey(other[0], other[1]), key)
  }
})
