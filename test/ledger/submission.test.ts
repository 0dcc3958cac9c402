/** Submissions: nothing is coerced, all faults are named without a value, and each instant, award and currency has one form. */
import fc from "fast-check"
import t from "tap"
import { z } from "zod"
import { isKnownCurrency, minorUnits } from "../../src/ledger/currency.js"
import { readJson } from "../../src/ledger/strict-json.js"
import {
  awardKey,
  canonicalSubmission,
  normaliseSubmission,
  normaliseTimestamp,
  parseSubmission,
  submissionSchema,
  submissionWarnings,
} from "../../src/ledger/submission.js"
import { type Fault, Problem } from "../../src/problems.js"

const valid = { award_id: "A-2026-014", submission_timestamp: "2026-07-01T09:00:00Z", amount_cents: 125000 }

const everyMember = {
  ...valid,
  currency: "USD",
  submission_id: "2026-Q3-0017",
  assistance_listing_number: "10.500",
  fain: "SLFRP0127",
  recipient_uei: "UYDJJ1S8DR85",
  invoice_ref: "INV 815/2",
  period_from: "2024-02-29",
  period_to: "2024-02-29",
  details: { constructor: { x: 1 }, list: [null, 1.5] },
}

/** The faults of a value; none if it is a submission. */
function faults(value: unknown): Fault[] {
  try {
    parseSubmission(value)
    return []
  } catch (error) {
    if (error instanceof Problem && error.code === "invalid-request") return [...(error.members.errors ?? [])]
    throw error
  }
}

/** Where and how `valid`, with these members, is at fault. */
const found = (members: object) => faults({ ...valid, ...members }).map(({ pointer, code }) => `${pointer} ${code}`)

const read = (amount: string) =>
  faults(
    readJson(Buffer.from(`{"award_id":"A","submission_timestamp":"2026-07-01T09:00:00Z","amount_cents":${amount}}`)),
  )

t.test("a submission is kept as sent", async (t) => {
  t.same(parseSubmission(valid), valid)
  t.same(parseSubmission(everyMember), everyMember)
})

t.test("an amount is a JSON integer from 1 to 9007199254740991, and never becomes another amount", async (t) => {
  for (const amount of ["1", "125000", "9007199254740991"]) t.same(read(amount), [], amount)
  for (const amount of ['"100"', "1e2", "100.0", "100.5", "true", "null", "[100]", "-0", "{}", '""']) {
    t.match(read(amount), [{ pointer: "/amount_cents", code: "type", detail: /must be an integer/ }], amount)
  }
  for (const amount of ["0", "-1", "-9007199254740991"]) {
    t.match(read(amount), [{ pointer: "/amount_cents", code: "range", detail: "must be at least 1" }], amount)
  }
  t.throws(() => read("9007199254740992"), { code: "malformed-json" })
  t.throws(() => read("9007199254740993"), { code: "malformed-json" })
})

t.test("all faults are listed at once, each once, with pointers and without values", async (t) => {
  const secret = "s3cret\u0007"
  const list = faults({
    award_id: secret,
    submission_timestamp: secret,
    currency: secret,
    submission_id: secret,
    assistance_listing_number: secret,
    fain: secret,
    recipient_uei: secret,
    invoice_ref: secret,
    period_from: "2026-07-02",
    period_to: "2026-07-01",
    details: [secret],
    "a/b~c": secret,
    constructor: secret,
    toString: secret,
  })
  t.same(
    list.map(({ pointer, code }) => `${pointer} ${code}`),
    [
      "/award_id format",
      "/submission_timestamp format",
      "/amount_cents required",
      "/currency format",
      "/submission_id format",
      "/assistance_listing_number format",
      "/fain format",
      "/recipient_uei format",
      "/invoice_ref format",
      "/details type",
      "/a~1b~0c unknown-member",
      "/constructor unknown-member",
      "/toString unknown-member",
      "/period_to range",
    ],
  )
  t.notMatch(JSON.stringify(list), /s3cret/)
  t.notMatch(JSON.stringify(list), /Invalid|expected|received/)
  for (const value of [null, [], "x", 1, undefined]) t.match(faults(value), [{ pointer: "" }])
  t.equal(faults(Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`m${index}`, 1]))).length, 50)
})

t.test("null, other types and unknown members are refused, not read as absent", async (t) => {
  for (const name of Object.keys(everyMember)) {
    t.same(found({ [name]: null }), [`/${name} type`])
    t.same(found({ [name]: true }), [`/${name} type`])
  }
  t.same(found({ amount: 1 }), ["/amount unknown-member"])
  t.same(found({ Award_id: "A" }), ["/Award_id unknown-member"])
})

t.test("award and submission ids are printable text without outer spaces, counted in code points", async (t) => {
  for (const [name, max] of [
    ["award_id", 100],
    ["submission_id", 128],
    ["invoice_ref", 100],
  ] as const) {
    for (const good of [
      "a",
      "A 1",
      "a/b%c#d\"e'f&g",
      "Ünïcode €",
      "e\u0301",
      "😀",
      "x".repeat(max),
      "😀".repeat(max),
      "a  b",
    ]) {
      t.same(found({ [name]: good }), [], Buffer.from(good).toString("hex"))
    }
    for (const bad of [
      "",
      " ",
      " a",
      "a ",
      "a\tb",
      "a\nb",
      "a\u00a0b",
      "a\u2028b",
      "a\u200bb",
      "\u0007",
      "\ue000",
      "\ufeffa",
      "\ud800",
      "\u0378",
    ]) {
      t.same(found({ [name]: bad }), [`/${name} format`], Buffer.from(bad).toString("hex"))
    }
    t.same(found({ [name]: "x".repeat(max + 1) }), [`/${name} length`])
    t.same(found({ [name]: "😀".repeat(max + 1) }), [`/${name} length`])
    t.same(found({ [name]: `${"a ".repeat(30_000)}` }), [`/${name} format`], "in linear time")
  }
})

t.test("a timestamp is a real instant in strict RFC 3339", async (t) => {
  for (const good of [
    ..."2026-07-01T09:00:00Z 2026-07-01T09:00:00.1Z 2026-07-01T09:00:00.123456Z 2026-07-01T09:00:00+14:00".split(" "),
    ..."1999-01-01T00:00:00+23:59 2099-12-31T23:59:59.999999-23:59 2024-02-29T00:00:00Z 2000-02-29T00:00:00Z".split(
      " ",
    ),
    "2026-07-01T09:00:00-00:00",
  ]) {
    t.same(found({ submission_timestamp: good }), [], good)
  }
  for (const bad of [
    ..."2026-07-01 2026-07-01T09:00:00 2026-07-01T09:00Z 2026-07-01t09:00:00Z 2026-07-01T09:00:00z 20260701T090000Z".split(
      " ",
    ),
    ..."2026-07-01T09:00:00.1234567Z 2026-07-01T09:00:00.Z 2026-07-01T09:00:00,5Z 2026-07-01T09:00:00+0400".split(" "),
    ..."2026-07-01T09:00:00+04 +002026-07-01T09:00:00Z 2026-7-1T09:00:00Z 2026-W27-3T09:00:00Z ２026-07-01T09:00:00Z".split(
      " ",
    ),
    ..."2026-02-29T00:00:00Z 2100-02-28T00:00:00Z 1998-12-31T23:59:59Z 2026-13-01T00:00:00Z 2026-00-01T00:00:00Z".split(
      " ",
    ),
    ..."2026-04-31T00:00:00Z 2026-07-00T00:00:00Z 2026-07-01T24:00:00Z 2026-07-01T23:60:00Z 2016-12-31T23:59:60Z".split(
      " ",
    ),
    ..."2026-07-01T09:00:00+24:00 2026-07-01T09:00:00+04:60 0000-01-01T00:00:00Z".split(" "),
    "2026-07-01 09:00:00Z",
    " 2026-07-01T09:00:00Z",
    "2026-07-01T09:00:00Z\n",
    "1782896400",
    "",
  ]) {
    t.match(
      faults({ ...valid, submission_timestamp: bad }),
      [{ pointer: "/submission_timestamp", code: /format|range/ }],
      bad,
    )
  }
})

t.test("one instant has one form: UTC, the fraction exact and without trailing zeros", async (t) => {
  for (const [text, utc] of [
    ["2026-07-01T05:00:00-04:00", "2026-07-01T09:00:00Z"],
    ["2026-07-01T09:00:00-00:00", "2026-07-01T09:00:00Z"],
    ["2026-07-01T09:00:00.000000Z", "2026-07-01T09:00:00Z"],
    ["2026-07-01T09:00:00.120+00:00", "2026-07-01T09:00:00.12Z"],
    ["2026-07-01T00:00:00.000001+05:45", "2026-06-30T18:15:00.000001Z"],
    ["2024-03-01T00:30:00+01:00", "2024-02-29T23:30:00Z"],
    ["1999-01-01T00:00:00+23:59", "1998-12-31T00:01:00Z"],
    ["2099-12-31T23:59:59.999999-23:59", "2100-01-01T23:58:59.999999Z"],
  ] as const) {
    t.equal(normaliseTimestamp(text), utc, text)
  }
  const millis = fc.integer({ min: Date.UTC(1999, 0, 2), max: Date.UTC(2099, 11, 30) })
  fc.assert(
    fc.property(millis, fc.integer({ min: -1439, max: 1439 }), fc.nat({ max: 999 }), (at, offset, micros) => {
      const local = new Date(at + offset * 60_000).toISOString().slice(0, 23)
      const [hours, minutes] = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60].map((n) =>
        String(n).padStart(2, "0"),
      )
      const tail = String(micros).padStart(3, "0")
      const text = `${local}${tail}${offset < 0 ? "-" : "+"}${hours}:${minutes}`
      t.same(found({ submission_timestamp: text }), [], text)
      const utc = normaliseTimestamp(text)
      t.equal(Date.parse(utc), at)
      t.equal(utc, `${new Date(at).toISOString().slice(0, 23)}${tail}Z`.replace(/\.?0+Z$/, "Z"))
      t.equal(normaliseTimestamp(utc), utc)
    }),
  )
})

t.test("an award is the same whatever its case or composition, and a key's key is itself", async (t) => {
  t.equal(awardKey("a-2026-014"), "A-2026-014")
  for (const [a, b] of [
    ["ß", "SS"],
    ["ŉ", "ʼN"],
    ["ﬁ", "fi"],
    ["é", "E\u0301"],
    ["ΐ", "Ϊ\u0301"],
    ["ǰ", "J\u030c"],
    ["ς", "Σ"],
  ] as const) {
    t.equal(awardKey(a), awardKey(b), `${a} ${b}`)
  }
  t.not(awardKey("İ"), awardKey("I"))
  t.equal(awardKey("İ"), awardKey("I\u0307"))
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (id) => {
      const key = awardKey(id)
      t.equal(awardKey(key), key)
      t.equal(awardKey(id.normalize("NFD")), key)
      t.equal(key.normalize("NFC"), key)
    }),
    { numRuns: 1_000 },
  )
})

t.test("the normalised submission fills in the currency, keeps the award's text, and has RFC 8785 form", async (t) => {
  const normalised = normaliseSubmission({
    ...valid,
    award_id: "a-2026-014",
    submission_timestamp: "2026-07-01T05:00:00.0-04:00",
  })
  t.same(normalised, { ...valid, award_id: "a-2026-014", award_key: "A-2026-014", currency: "USD" })
  t.equal(
    canonicalSubmission(normalised),
    '{"amount_cents":125000,"award_id":"A-2026-014","currency":"USD","submission_timestamp":"2026-07-01T09:00:00Z"}',
  )
})

t.test("assistance listing, FAIN and UEI are checked by form and kept as text", async (t) => {
  for (const good of ["93.778", "10.500", "84.425D", "93.RD", "12.U01", "20.RD1"])
    t.same(found({ assistance_listing_number: good }), [])
  for (const bad of ["93778", "3.778", "93.77", "93.7788", "93.rd", "93.", "93.778 "]) {
    t.same(found({ assistance_listing_number: bad }), ["/assistance_listing_number format"], bad)
  }
  for (const good of ["A", "B-20-MC-12-0001", "x".repeat(30)]) t.same(found({ fain: good }), [])
  for (const bad of ["", "x".repeat(31), "A B", "A/1"]) t.same(found({ fain: bad }), ["/fain format"], bad)
  for (const bad of ["UYDJJ1S8DR8", "UYDJJ1S8DR855", "0YDJJ1S8DR85", "OYDJJ1S8DR85", "IYDJJ1S8DR85", "uydjj1s8dr85"]) {
    t.same(found({ recipient_uei: bad }), ["/recipient_uei format"], bad)
  }
  for (const bad of ["2026-02-30", "2026-2-3", "20260203", "2026-02-03T00:00:00Z"]) {
    t.same(found({ period_from: bad, period_to: "2026-01-01" }), ["/period_from format"], bad)
  }
  t.same(found({ period_from: "2026-01-02" }), [])
  t.same(found({ currency: "usd" }), ["/currency format"])
})

t.test("a wrong check character of a UEI is a warning, and identifiers from SAM.gov have none", async (t) => {
  const warnings = (recipient_uei: string) =>
    submissionWarnings(normaliseSubmission(parseSubmission({ ...valid, recipient_uei })))
  for (const uei of [
    ..."GM1XX56LEP58 C6T9BYG5EYX5 YNDUZMUZF8H8 T53MCMLTWK59 UYDJJ1S8DR85 S2YDW4PGJKK9 UTGPYABQ7DD5 Q72JE272RJ58".split(
      " ",
    ),
    ..."VV4VV8JJSRF6 DC7LDGR328L4 KWLAEYEKA5W6 G8KVQG8N2333 QGJSEJZ2MWE8 CFJ8FQ4QZAT3 GWRDHNFHMJS9".split(" "),
  ]) {
    t.same(warnings(uei), [], uei)
  }
  for (const uei of ["UYDJJ1S8DR84", "YUDJJ1S8DR85", "UYDJJ1S8DR8A"]) {
    t.match(warnings(uei), [{ pointer: "/recipient_uei", code: "check-character" }], uei)
  }
  t.same(submissionWarnings(normaliseSubmission(valid)), [])
})

t.test("currencies are the active codes of ISO 4217 with their minor units", async (t) => {
  for (const [code, digits] of Object.entries({
    USD: 2,
    EUR: 2,
    JPY: 0,
    KWD: 3,
    BHD: 3,
    JOD: 3,
    OMR: 3,
    TND: 3,
    IQD: 3,
    LYD: 3,
    CLF: 4,
    UYW: 4,
  })) {
    t.equal(minorUnits(code), digits, code)
  }
  for (const code of ["USX", "XXX", "XTS", "XAU", "DEM", "usd", "", "ABC"]) {
    t.notOk(isKnownCurrency(code), code)
    t.equal(minorUnits(code), undefined)
  }
  const retired = ["ANG", "BGN", "CUC", "HRK", "SLL", "ZWL"]
  const uncounted = ["XDR", "XSU", "XUA", "XAU", "XAG", "XPD", "XPT", "XXX", "XTS", "XBA", "XBB", "XBC", "XBD"]
  const runtime = Intl.supportedValuesOf("currency").filter(
    (code) => code !== "VED" && ![...retired, ...uncounted].includes(code),
  )
  const missing = runtime.filter((code) => !isKnownCurrency(code))
  t.ok(missing.length < runtime.length / 2 && !missing.includes("USD"), missing.join(" "))
})

t.test("the schema describes itself, amounts exactly, for the API's document", async (t) => {
  const schema = z.toJSONSchema(submissionSchema, { io: "input" })
  t.match(schema, {
    type: "object",
    additionalProperties: false,
    required: ["award_id", "submission_timestamp", "amount_cents"],
    properties: {
      amount_cents: { type: "integer", minimum: 1, maximum: 9007199254740991, examples: [125000] },
      award_id: { type: "string", minLength: 1, maxLength: 100 },
      submission_timestamp: { format: "date-time" },
      details: { type: "object" },
    },
  })
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const { description, examples, pattern } = property as {
      description?: string
      examples?: unknown[]
      pattern?: string
    }
    t.ok(description, name)
    t.same(found({ [name]: examples?.[0] }), [], `${name}'s example is valid`)
    if (pattern !== undefined) t.match(String(examples?.[0]), new RegExp(pattern, "u"))
  }
})
