/** Possible duplicates are told, each with what it may repeat, to those who may see both; what came back whole is not. */
import postgres from "postgres"
import t from "tap"
import { startService } from "../support/service.js"

const service = await startService(t)
const sql = postgres(service.databaseUrl, { max: 1, onnotice: () => {} })
t.teardown(() => sql.end())

let made = 0
const submit = async (token: string, body: object): Promise<string> => {
  const sent = { submission_timestamp: "2025-07-01T09:00:00Z", amount_cents: 500, award_id: "A-1", ...body }
  const headers = { "idempotency-key": `k-${++made}` }
  const { status, body: answer } = await service.call("POST", "/v1/submissions", { token, json: sent, headers })
  if (status !== 201) throw new Error(JSON.stringify(answer))
  return answer.id
}

interface Item {
  disbursement: { id: string }
  same_amount_as: { id: string } | null
  same_invoice_as: { id: string } | null
}

/** Every page of the report, as ids: the line, the same amount, the same invoice. */
async function report(token: string, query = ""): Promise<{ told: (string | null)[][]; pages: number }> {
  const told: (string | null)[][] = []
  let cursor: string | null = null
  let pages = 0
  do {
    const path: string = `/v1/possible-duplicates?${query}${cursor === null ? "" : `&cursor=${cursor}`}`
    const { status, body } = await service.call("GET", path, { token })
    if (status !== 200) throw new Error(JSON.stringify(body))
    for (const item of body.items as Item[])
      told.push([item.disbursement.id, item.same_amount_as?.id ?? null, item.same_invoice_as?.id ?? null])
    cursor = body.next_cursor
    pages += 1
  } while (cursor !== null)
  return { told, pages }
}

t.test(
  "the same amount to one award under two keys, and one invoice on two awards, are told with what they repeat",
  async (t) => {
    const { token } = await service.portal("pairs")
    const first = await submit(token, { award_id: "P-1", invoice_ref: "INV-1" })
    const again = await submit(token, { award_id: "p-1" })
    const third = await submit(token, { award_id: "P-1" })
    await submit(token, { award_id: "P-1", amount_cents: 501 })
    await submit(token, { award_id: "P-2", amount_cents: 7, invoice_ref: "INV-2" })
    const elsewhere = await submit(token, { award_id: "P-3", amount_cents: 8, invoice_ref: "INV-1" })
    await submit(token, { award_id: "P-2", amount_cents: 9, invoice_ref: "INV-2" })
    const wanted = [
      [again, first, null],
      [third, again, null],
      [elsewhere, null, first],
    ]
    t.same((await report(token)).told, wanted)
    t.same(await report(token, "limit=1"), { told: wanted, pages: 3 }, "page by page, each once")
    t.same((await report(token, "award_id=p-3")).told, [[elsewhere, null, first]])
  },
)

t.test("what came back whole is neither told nor compared with", async (t) => {
  const { token } = await service.portal("returns")
  const first = await submit(token, { award_id: "R-1" })
  const second = await submit(token, { award_id: "R-1" })
  const undo = (id: string, what: string, json: object) =>
    service.call("POST", `/v1/disbursements/${id}/${what}`, {
      token,
      json,
      headers: { "idempotency-key": `u-${++made}` },
    })
  t.equal((await undo(second, "returns", { amount_cents: 499, reason: "part" })).status, 201)
  t.same((await report(token)).told, [[second, first, null]], "a part of it is still there")
  t.equal((await undo(second, "reversal", { reason: "twice" })).status, 201)
  t.same((await report(token)).told, [])
  const correct = await submit(token, { award_id: "R-1" })
  t.same((await report(token)).told, [[correct, first, null]], "compared with what is left")
})

t.test("a portal compares only its own; operators and auditors see pairs of two portals", async (t) => {
  const [one, two] = [await service.portal("one"), await service.portal("two")]
  const first = await submit(one.token, { award_id: "S-1", invoice_ref: "X" })
  const second = await submit(two.token, { award_id: "S-1", invoice_ref: "X" })
  await submit(two.token, { award_id: "S-2", amount_cents: 3, invoice_ref: "Y" })
  await submit(one.token, { award_id: "S-3", amount_cents: 4, invoice_ref: "Y" })
  t.same((await report(one.token)).told, [])
  t.same((await report(two.token)).told, [])
  const { token: auditor } = await service.portal("auditor", "auditor")
  t.same((await report(auditor, "award_id=S-1")).told, [[second, first, null]])
  t.same((await report(auditor, "award_id=S-3")).told, [], "an invoice's number is its portal's")
  t.same((await report(auditor, "portal=two&award_id=S-1")).told, [], "of one portal")
  t.same((await report(auditor, "portal=nobody")).told, [])
})

t.test("the days are counted to the day, and a long ledger is told in stretches, whole", async (t) => {
  const { id, token } = await service.portal("long")
  await sql`INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, recorded_at)
    SELECT gen_random_uuid(), 'disbursement', ${id}, 'long-' || i, 'L', 'L', CASE WHEN i IN (1, 4500) THEN 77 ELSE 1000 + i END, 'USD', at, at
    FROM (SELECT i, '2025-01-01T00:00:00Z'::timestamptz + i * interval '1 minute' AS at FROM generate_series(1, 4500) i) l`
  const [first, last] = await sql<
    { id: string }[]
  >`SELECT id FROM disbursements WHERE amount_cents = 77 ORDER BY recorded_at`
  t.same((await report(token, "days=4")).told, [[last?.id, first?.id, null]], "4,499 minutes are less than 4 days")
  t.same(await report(token, "days=3"), { told: [], pages: 3 }, "and more than 3; pages may be empty")
  for (const wrong of ["days=0", "days=91", "days=x", "limit=0", "from=yesterday", "other=1"])
    t.equal((await service.call("GET", `/v1/possible-duplicates?${wrong}`, { token })).status, 400, wrong)
})
