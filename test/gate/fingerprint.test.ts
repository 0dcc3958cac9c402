/** Fingerprints: the same request in any spelling, and no other, is the same; a difference is named by place, never by value. */
import fc from "fast-check"
import t from "tap"
import { canonicalRequest, differences, fingerprint, sameRequest } from "../../src/gate/fingerprint.js"
import { readJson } from "../../src/ledger/strict-json.js"
import { canonicalSubmission, normaliseSubmission, parseSubmission } from "../../src/ledger/submission.js"
import { limits } from "../../src/limits.js"

const of = (text: string) =>
  fingerprint(
    canonicalRequest(
      "submission",
      {},
      canonicalSubmission(normaliseSubmission(parseSubmission(readJson(Buffer.from(text))))),
    ),
  )

const sent = {
  award_id: "A-2026-014",
  submission_timestamp: "2026-07-01T05:00:00.120-04:00",
  amount_cents: 125000,
  submission_id: "S-1",
  details: { b: [1, { y: 1, x: 2 }], a: "é" },
}

t.test("member order, white space, offset, case of the award and a currency left out do not change it", async (t) => {
  const first = of(JSON.stringify(sent))
  t.match(first, /^v1:[0-9a-f]{64}$/)
  t.equal(of(JSON.stringify({ ...sent, currency: "USD" })), first)
  t.equal(of(JSON.stringify({ ...sent, submission_timestamp: "2026-07-01T09:00:00.12Z" })), first)
  t.equal(of(JSON.stringify({ ...sent, submission_timestamp: "2026-07-01T14:30:00.120000+05:30" })), first)
  t.equal(of(JSON.stringify({ ...sent, award_id: "a-2026-014" })), first)
  t.equal(
    of(JSON.stringify({ ...sent, details: { a: "\u00e9", b: [1, { x: 2, y: 1 }] } }).replace("1,", "1.0e0,")),
    first,
  )
  fc.assert(
    fc.property(fc.shuffledSubarray(Object.entries(sent), { minLength: 5 }), fc.nat({ max: 8 }), (members, space) => {
      t.equal(of(JSON.stringify(Object.fromEntries(members), null, space)), first)
    }),
  )
})

t.test("any member that is changed, added or left out changes it", async (t) => {
  const first = of(JSON.stringify(sent))
  const { submission_id: _, ...without } = sent
  for (const other of [
    { ...sent, award_id: "A-2026-015" },
    { ...sent, submission_timestamp: "2026-07-01T09:00:00.120001Z" },
    { ...sent, amount_cents: 125001 },
    { ...sent, currency: "EUR" },
    { ...sent, submission_id: "s-1" },
    { ...sent, invoice_ref: "S-1" },
    { ...sent, details: { ...sent.details, b: [{ x: 2, y: 1 }, 1] } },
    { ...sent, details: { ...sent.details, a: "e\u0301" } },
    { ...sent, details: { ...sent.details, c: null } },
    { ...sent, details: {} },
    without,
  ]) {
    t.not(of(JSON.stringify(other)), first, JSON.stringify(other))
  }
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.dictionary(fc.string(), fc.jsonValue()), (a, b) => {
      const [one, two] = [a, b].map((details) => JSON.parse(JSON.stringify(details)) as object)
      const canonical = (details: object | undefined) =>
        canonicalSubmission({ ...sent, details, award_key: "A", currency: "USD" } as never)
      const found = differences(one, two)
      t.equal(fingerprint(canonical(one)) === fingerprint(canonical(two)), found.length === 0, found.join(" "))
    }),
  )
})

t.test("the operation and the path's parameters are part of it", async (t) => {
  const texts = [
    canonicalRequest("return", { id: "1" }, '{"a":1}'),
    canonicalRequest("return", { id: "2" }, '{"a":1}'),
    canonicalRequest("reversal", { id: "1" }, '{"a":1}'),
    canonicalRequest("return", {}, '{"a":1}'),
    canonicalRequest("return", { id: "1" }, "null"),
  ]
  t.equal(texts[0], '{"body":{"a":1},"operation":"return","params":{"id":"1"}}', "RFC 8785")
  t.equal(new Set(texts.map(fingerprint)).size, texts.length)
})

t.test(
  "a stored fingerprint recognises its own request, and an unknown version is an error, not a conflict",
  async (t) => {
    t.ok(
      sameRequest("v1:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "abc"),
      "v1 is what it always was",
    )
    t.notOk(sameRequest(fingerprint("abc"), "abd"))
    t.notOk(sameRequest("v1:", "abc"))
    for (const stored of ["v0:00", "v9:00", "constructor:00", "", "ba7816bf"]) {
      t.throws(() => sameRequest(stored, "abc"), /does not know/, stored)
    }
  },
)

t.test("differences are pointers to the outermost members that are not the same", async (t) => {
  t.same(differences({ a: 1, b: { c: [1, 2], d: 1 } }, { a: 1, b: { c: [1, 3], d: 1 } }), ["/b/c/1"])
  t.same(differences({ amount_cents: 1, x: 1 }, { amount_cents: 2, y: 1 }), ["/amount_cents", "/x", "/y"])
  t.same(differences({ "a/b~c": 1, "": 1 }, { "a/b~c": 2, "": 2 }), ["/", "/a~1b~0c"])
  t.same(differences([1, 2], [1]), ["/1"])
  t.same(differences({ a: {} }, { a: [] }), ["/a"])
  t.same(differences({ a: null }, {}), ["/a"])
  t.same(differences({ toString: 1 }, {}), ["/toString"])
  t.same(differences({ a: 1, b: [] }, { b: [], a: 1 }), [])
  for (const [a, b] of [
    [{}, []],
    [{}, null],
    [1, 2],
    ["1", 1],
  ])
    t.same(differences(a, b), [""])
  const many = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`m${index}`, index]))
  t.equal(differences(many, {}).length, limits.pointersMax)
  t.equal(differences({ a: many }, { a: {}, b: 1 }).length, limits.pointersMax)
})
