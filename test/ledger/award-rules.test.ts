/** What an award's rules say of a submission, without a database: their order, dates in time zones, money at its bounds. */
import t from "tap"
import { type AwardFacts, openedAward } from "../../src/ledger/award.js"
import { availableCents, refuseByAward } from "../../src/ledger/award-checks.js"
import { normaliseSubmission, parseSubmission } from "../../src/ledger/submission.js"

const max = Number.MAX_SAFE_INTEGER
const registered: AwardFacts = { ...openedAward("A-1", "USD"), rulesVersion: 1 }

/** The code of the refusal, or null. */
function verdict(rules: Partial<AwardFacts>, change: object = {}, portal = "east"): string | null {
  return refuse(rules, change, portal)?.code ?? null
}

function refuse(rules: Partial<AwardFacts>, change: object = {}, portal = "east") {
  const body = { award_id: "A-1", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 100, ...change }
  return refuseByAward(normaliseSubmission(parseSubmission(body)), portal, { ...registered, ...rules }, false)
}

t.test(
  "of several rules the first in the fixed order answers, and permission before all that tells of the award",
  (t) => {
    const broken: Partial<AwardFacts> = {
      portals: ["west"],
      status: "closed",
      periodEnd: "2020-01-01",
      currency: "EUR",
      obligatedCents: 0,
    }
    const order: [string, Partial<AwardFacts>][] = [
      ["award-not-permitted", { portals: null }],
      ["award-not-active", { status: "active" }],
      ["award-period-closed", { periodEnd: null }],
      ["currency-mismatch", { currency: "USD" }],
      ["award-funds-exceeded", { obligatedCents: 100 }],
    ]
    let rules = broken
    for (const [code, repair] of order) {
      t.equal(verdict(rules), code)
      rules = { ...rules, ...repair }
    }
    t.equal(verdict(rules), null, "and all repaired it is taken")
    t.notMatch(refuse(broken)?.detail, /closed|2020|EUR|west/, "who is not permitted learns nothing of the award")
    t.end()
  },
)

t.test("only registered awards are found where that is the rule", (t) => {
  const submission = normaliseSubmission(
    parseSubmission({ award_id: "A-1", submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 1 }),
  )
  const codeOf = (award: AwardFacts | null, registeredOnly: boolean) =>
    refuseByAward(submission, "east", award, registeredOnly)?.code ?? null
  t.equal(codeOf(null, true), "award-not-found")
  t.equal(codeOf(openedAward("A-1", "USD"), true), "award-not-found", "opened by a submission is not registered")
  t.equal(codeOf(registered, true), null)
  t.equal(codeOf(null, false), null)
  t.equal(codeOf(openedAward("A-1", "USD"), false), null)
  t.end()
})

t.test("portals are permitted by their exact names", (t) => {
  t.equal(verdict({ portals: ["east", "west"] }), null)
  t.equal(verdict({ portals: ["East"] }), "award-not-permitted")
  t.equal(verdict({ portals: [] }), "award-not-permitted", "an empty list permits nobody")
  t.end()
})

t.test("the period is of dates in the award's time zone, both ends and the days of liquidation included", (t) => {
  const cases: [about: string, rules: Partial<AwardFacts>, at: string, within: boolean][] = [
    [
      "the last minute in New York",
      { timeZone: "America/New_York", periodEnd: "2025-09-30" },
      "2025-09-30T23:59:59.999999-04:00",
      true,
    ],
    [
      "a microsecond later",
      { timeZone: "America/New_York", periodEnd: "2025-09-30" },
      "2025-10-01T00:00:00-04:00",
      false,
    ],
    ["the same instant where UTC counts", { periodEnd: "2025-09-30" }, "2025-09-30T23:59:59.999999-04:00", false],
    [
      "the first minute in New York",
      { timeZone: "America/New_York", periodStart: "2025-10-01" },
      "2025-10-01T04:00:00Z",
      true,
    ],
    [
      "just before it",
      { timeZone: "America/New_York", periodStart: "2025-10-01" },
      "2025-10-01T03:59:59.999999Z",
      false,
    ],
    [
      "Kiritimati is a day ahead",
      { timeZone: "Pacific/Kiritimati", periodStart: "2025-10-01" },
      "2025-09-30T10:00:00Z",
      true,
    ],
    [
      "and not a second more",
      { timeZone: "Pacific/Kiritimati", periodStart: "2025-10-01" },
      "2025-09-30T09:59:59Z",
      false,
    ],
    ["Niue is behind", { timeZone: "Pacific/Niue", periodEnd: "2025-09-30" }, "2025-10-01T10:59:59Z", true],
    [
      "a quarter of an hour counts",
      { timeZone: "Asia/Kathmandu", periodStart: "2025-10-01" },
      "2025-09-30T18:15:00Z",
      true,
    ],
    [
      "and one minute before it too",
      { timeZone: "Asia/Kathmandu", periodStart: "2025-10-01" },
      "2025-09-30T18:14:59Z",
      false,
    ],
    [
      "the day the clock goes back has 25 hours",
      { timeZone: "America/New_York", periodEnd: "2025-11-02" },
      "2025-11-03T04:59:59Z",
      true,
    ],
    ["and ends after them", { timeZone: "America/New_York", periodEnd: "2025-11-02" }, "2025-11-03T05:00:00Z", false],
    [
      "liquidation spans that day",
      { timeZone: "America/New_York", periodEnd: "2025-09-30", liquidationDays: 120 },
      "2026-01-28T23:59:59-05:00",
      true,
    ],
    [
      "and ends on its last",
      { timeZone: "America/New_York", periodEnd: "2025-09-30", liquidationDays: 120 },
      "2026-01-29T00:00:00-05:00",
      false,
    ],
    ["a leap day counts", { periodEnd: "2024-02-28", liquidationDays: 1 }, "2024-02-29T23:59:59Z", true],
    ["a year that is none has none", { periodEnd: "2099-02-28", liquidationDays: 1 }, "2099-03-01T00:00:00Z", true],
    ["far years", { timeZone: "Pacific/Kiritimati", periodEnd: "2099-12-31" }, "2099-12-31T09:59:59Z", true],
    ["past their end", { timeZone: "Pacific/Kiritimati", periodEnd: "2099-12-31" }, "2099-12-31T10:00:00Z", false],
    [
      "the first of 1999 in a zone behind",
      { timeZone: "America/New_York", periodStart: "1999-01-01" },
      "1999-01-01T00:00:00Z",
      false,
    ],
    [
      "no end in sight",
      { periodStart: "0001-01-01", periodEnd: "9999-12-31", liquidationDays: 3650 },
      "2025-10-01T00:00:00Z",
      true,
    ],
    ["open at its start", { periodEnd: "2025-09-30" }, "1999-01-01T00:00:00Z", true],
    ["open at its end", { periodStart: "2025-09-30" }, "2099-12-31T00:00:00Z", true],
    ["liquidation without an end is nothing", { liquidationDays: 5 }, "2099-12-31T00:00:00Z", true],
  ]
  for (const [about, rules, submission_timestamp, within] of cases) {
    t.equal(verdict(rules, { submission_timestamp }), within ? null : "award-period-closed", about)
  }
  t.end()
})

t.test("the ceiling is of the net, to the cent, and the gross stays exact", (t) => {
  const spent = { obligatedCents: 1_000, disbursedCents: 950, returnedCents: 0 }
  t.match(refuse(spent, { amount_cents: 51 }), { code: "award-funds-exceeded", members: { available_cents: 50 } })
  t.equal(refuse(spent, { amount_cents: 50 }), null)
  t.equal(verdict({ ...spent, returnedCents: 1 }, { amount_cents: 51 }), null, "what came back may go out again")
  t.equal(availableCents({ ...registered, ...spent, returnedCents: 950 }), 1_000)
  t.equal(
    verdict({ obligatedCents: 0 }, { amount_cents: 1 }),
    "award-funds-exceeded",
    "a ceiling of nothing is a ceiling",
  )
  t.equal(verdict({ obligatedCents: max }, { amount_cents: max }), null)
  t.match(refuse({ disbursedCents: max - 10 }, { amount_cents: 11 }), {
    code: "award-funds-exceeded",
    members: { available_cents: 10 },
  })
  const full = { obligatedCents: max, disbursedCents: max - 10, returnedCents: max - 10 }
  t.match(refuse(full, { amount_cents: 11 }), { members: { available_cents: 10 } }, "the smaller of the two bounds")
  t.equal(refuse(full, { amount_cents: 10 }), null)
  t.equal(availableCents(registered), null, "without a ceiling nothing is said to be available")
  t.end()
})
