/** A portal's own list against the ledger: every difference is found, told by its line, and explains the difference of the totals. */
import { parse } from "csv-parse/sync"
import postgres from "postgres"
import t from "tap"
import { type Service, startService } from "../support/service.js"

const timestamp = "2025-07-01T09:00:00Z"

async function submit(service: Service, token: string, key: string, change: object = {}): Promise<string> {
  const { status, body } = await service.call("POST", "/v1/submissions", {
    token,
    json: {
      award_id: "A-1",
      submission_timestamp: timestamp,
      amount_cents: 1000,
      submission_id: `S-${key}`,
      ...change,
    },
    headers: { "idempotency-key": `"${key}"` },
  })
  if (status !== 201) throw new Error(`not recorded: ${status} ${JSON.stringify(body)}`)
  return body.id
}

const csvType = { "content-type": "text/csv" }

function reconcile(service: Service, token: string | undefined, body: string | Buffer, query = "", headers = csvType) {
  return service.call("POST", `/v1/reconciliations${query}`, {
    ...(token === undefined ? {} : { token }),
    body,
    headers,
  })
}

t.test("each kind of difference is found and told, and what agrees is not", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const other = await service.portal("west")
  const ids: Record<string, string> = {}
  for (const key of ["same", "amount", "award", "currency", "twice", "gone", "ref"]) {
    ids[key] = await submit(service, token, key, key === "currency" ? { award_id: "A-2", currency: "EUR" } : {})
  }
  await submit(service, other.token, "theirs")
  const list = [
    "Award_ID,submission_id,idempotency_key,amount,currency,Our own column",
    "a-1,S-same,,10.00,USD,x",
    "A-1,,amount,10.01,,",
    "A-9,S-award,,10.00,USD,",
    "A-2,S-currency,,10.00,USD,",
    "A-1,S-twice,,10,USD,",
    "A-1,,twice,10,USD,",
    "A-1,S-ref,wrong,10,USD,",
    "A-1,S-theirs,,10.00,USD,",
    ",,,,,",
    '"A-3","never, ""sent""",,-2.50,USD,',
  ].join("\r\n")
  const { status, body } = await reconcile(service, token, `\uFEFF${list}\r\n`)
  t.equal(status, 200)
  t.match(body, { portal: "east", lines: 9, matched: 2, items_total: 8 })
  t.same(body.exceptions, {
    missing_here: 2,
    missing_there: 1,
    reference_differs: 1,
    award_differs: 1,
    currency_differs: 1,
    amount_differs: 1,
    listed_twice: 1,
    outside_period: 0,
  })
  t.match(body.items, [
    {
      kind: "amount_differs",
      line: 3,
      listed_amount_cents: 1001,
      recorded_amount_cents: 1000,
      differs: ["/amount_cents"],
    },
    { kind: "award_differs", line: 4, award_id: "A-9", recorded_award_id: "A-1", disbursement_id: ids.award },
    { kind: "currency_differs", line: 5, listed_currency: "USD", recorded_currency: "EUR" },
    { kind: "listed_twice", line: 7, first_line: 6, disbursement_id: ids.twice },
    { kind: "reference_differs", line: 8, differs: ["/idempotency_key"], disbursement_id: ids.ref },
    { kind: "missing_here", line: 9, submission_id: "S-theirs", disbursement_id: null },
    { kind: "missing_here", line: 11, submission_id: 'never, "sent"', listed_amount_cents: -250 },
    { kind: "missing_there", line: null, idempotency_key: "gone", disbursement_id: ids.gone, recorded_at: /Z$/ },
  ])
  t.match(body.currencies, [
    { currency: "EUR", listed_cents: 0, recorded_cents: 1000, recorded_lines: 1 },
    { currency: "USD", listed_cents: 7751, listed: "77.51", listed_lines: 9, recorded_cents: 6000, recorded_lines: 6 },
  ])
  t.equal(body.awards_total, 5, "A-1, A-2 in both currencies, A-3, A-9")
  const differing = body.awards.filter((a: Record<string, unknown>) => a.listed_cents !== a.recorded_cents)
  t.same(body.awards.slice(0, differing.length), differing, "those that differ first")

  const file = await service.call("POST", "/v1/reconciliations", {
    token,
    body: list,
    headers: { ...csvType, accept: "text/csv" },
  })
  const rows: Record<string, string>[] = parse(file.text, { columns: true })
  t.same(
    rows.map(({ kind, line }) => [kind, line]),
    body.items.map((item: { kind: string; line: number | null }) => [item.kind, String(item.line ?? "")]),
    "all of it as CSV",
  )
  t.match(rows[0], { listed_amount: "10.01", recorded_amount: "10.00" })
  const awards = await service.call("POST", "/v1/reconciliations?part=awards", {
    token,
    body: list,
    headers: { ...csvType, accept: "text/csv" },
  })
  t.equal(parse(awards.text, { columns: true }).length, 5)

  const auditor = await service.portal("audit", "auditor")
  t.same((await reconcile(service, auditor.token, list, "?portal=east")).body, body, "an auditor compares for a portal")
  t.match((await reconcile(service, auditor.token, list)).body, { errors: [{ pointer: "/portal" }] })
  for (const [about, who, portal] of [
    ["a portal names another", token, "audit"],
    ["an operator mistypes", auditor.token, "esat"],
  ] as const) {
    const { status, body } = await reconcile(service, who, list, `?portal=${portal}`)
    t.match({ status, ...body }, { status: 404, code: "not-found" }, `${about}: no list of what all is missing`)
  }
  const sql = postgres(service.databaseUrl, { max: 1 })
  t.match(await sql`SELECT count(*)::int AS n FROM disbursements`, [{ n: 8 }], "it reads only")
  await sql.end()
})

t.test("the ledger's own export agrees with it whole, returns and hostile texts included", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const id = await submit(service, token, "-1+1", { submission_id: "=SUM(A1)", award_id: "@x" })
  for (let i = 0; i < 5; i++)
    await submit(service, token, `k-${i}`, { amount_cents: 2 ** 53 - 1 - i, award_id: `Ä/${i}` })
  const back = await service.call("POST", `/v1/disbursements/${id}/returns`, {
    json: { amount_cents: 300, reason: "too much" },
    headers: { "idempotency-key": '"by the operator"' },
  })
  t.equal(back.status, 201)
  // Keys are each recorder's own, so the operator may use one that the portal has used.
  const alike = await service.call("POST", `/v1/disbursements/${id}/returns`, {
    json: { amount_cents: 10, reason: "too much, too" },
    headers: { "idempotency-key": '"k-1"' },
  })
  t.equal(alike.status, 201)
  for (const type of ["text/csv", "application/x-ndjson"]) {
    const { text } = await service.call("GET", "/v1/disbursements", { token, headers: { accept: type } })
    const { body } = await reconcile(service, token, text, "", { "content-type": type })
    t.match(body, { lines: 8, matched: 8, items: [], items_total: 0 }, type)
    t.same(
      body.awards.map((a: Record<string, unknown>) => a.listed),
      body.awards.map((a: Record<string, unknown>) => a.recorded),
    )
  }
  const net = "idempotency_key,award_id,amount_cents\n-1+1,@X,690\n"
  t.match((await reconcile(service, token, net, "?compare=net")).body, {
    matched: 1,
    exceptions: { amount_differs: 0, missing_there: 5 },
  })
  const whole = await service.call("POST", `/v1/disbursements/${id}/reversal`, {
    token,
    json: { reason: "all of it" },
    headers: { "idempotency-key": '"rest"' },
  })
  t.equal(whole.status, 201)
  const listing = net.replace("-1+1,@X,690", "k-0,Ä/0,9007199254740991")
  t.match(
    (await reconcile(service, token, listing, "?compare=net")).body,
    {
      matched: 1,
      exceptions: { missing_there: 4 },
    },
    "of which nothing is left is not missing",
  )
})

t.test("a period has its lines, and what is recorded outside of it says so", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const ids = [
    await submit(service, token, "p-0"),
    await submit(service, token, "p-1"),
    await submit(service, token, "p-2"),
  ]
  const lines = await Promise.all(ids.map(async (id) => (await service.call("GET", `/v1/disbursements/${id}`)).body))
  const query = `?from=${lines[1].recorded_at}&to=${lines[2].recorded_at}`
  const { body } = await reconcile(service, token, "idempotency_key,award_id,amount_cents\np-0,A-1,1000\n", query)
  t.match(body.exceptions, { outside_period: 1, missing_there: 1 })
  t.match(body.items, [
    { kind: "outside_period", line: 2 },
    { kind: "missing_there", disbursement_id: ids[1] },
  ])
  t.match(body.currencies, [{ listed_lines: 1, recorded_lines: 1 }])
})

t.test("a list that cannot be read without doubt is refused by its lines, and nothing is compared", async (t) => {
  const service = await startService(t)
  const { token } = await service.portal("east")
  const head = "submission_id,award_id,amount,currency\n"
  const good = "S-1,A-1,1.00,USD\n"
  const cases: [about: string, body: string | Buffer, line: string, detail: RegExp][] = [
    ["empty", "", "/1", /empty/],
    ["only a header", head, "/1", /empty/],
    ["no header", good, "/1", /header/],
    ["semicolons", head.replaceAll(",", ";"), "/1", /commas/],
    ["a column twice", `submission_id,award_id,amount,amount\n`, "/1", /twice/],
    ["a stray quote", `${head}${good}S-2,A "x",1,USD\n`, "/3", /quote/],
    ["an open quote", `${head}${good}"S-2,A,1,USD\n`, "/3", /quote/],
    ["a quote that goes on", `${head}"S-2"x,A,1,USD\n`, "/2", /quote/],
    ["too few cells", `${head}${good}\nS-2,A-1\n`, "/4", /cells/],
    ["Latin-1", Buffer.from(`${head}${good}S-2,\u00c4,1,USD\n`, "latin1"), "/3", /UTF-8/],
    ["UTF-16", Buffer.from(`\uFEFF${head}`, "utf16le"), "/1", /UTF-8/],
    ["separators", `${head}S-2,A-1,"1,000.00",USD\n`, "/2/amount", /decimal text/],
    ["too many decimals", `${head}S-2,A-1,1.005,USD\n`, "/2/amount", /at most 2 decimals/],
    ["yen have none", `${head}S-2,A-1,1.0,JPY\n`, "/2/amount", /at most 0 decimals/],
    ["too large", `${head}S-2,A-1,90071992547409.92,USD\n`, "/2/amount", /decimal text/],
    ["no name", `${head},A-1,1,USD\n`, "/2", /submission_id or idempotency_key/],
    ["no award", `${head}S-2,,1,USD\n`, "/2/award_id", /required/],
    ["NUL", `${head}S-2,A\0,1,USD\n`, "/2/award_id", /text/],
    ["a line without end", Buffer.alloc(3_000_000, "x"), "/1", /longer than 64 KiB/],
  ]
  for (const [about, body, line, detail] of cases) {
    const answer = await reconcile(service, token, body)
    t.match(answer.body, { status: 400, code: "invalid-request", errors: [{ pointer: line, detail }] }, about)
  }
  // Rows that follow are under way when the header is refused: whoever speaks first, the answer is the header's.
  for (const [header, detail] of [
    [head.replaceAll(",", ";"), /commas/],
    [head.replaceAll(",", "\t"), /commas/],
    ["submission_id,submission_id,award_id,amount\n", /twice/],
    ["submission_id,award_id\n", /amount_cents or amount/],
  ] as const) {
    for (let i = 0; i < 20; i++) {
      const row = header.trim().split(",").fill("1").join(",")
      const { body } = await reconcile(service, token, `${header}${`${row}\n`.repeat(1 + i * 50)}`)
      t.match(body, { status: 400, code: "invalid-request", errors: [{ pointer: "/1", detail }] }, `${header} ${i}`)
    }
  }
  const both = await reconcile(service, token, "submission_id,award_id,amount,amount_cents\nS,A,1.00,101\nS,A,x,\n")
  t.match(both.body.errors, [{ pointer: "/2/amount" }, { pointer: "/3/amount" }], "all faults at once")
  const json = { "content-type": "application/x-ndjson" }
  const lines: [string, string, RegExp][] = [
    ['{"submission_id":"S","award_id":"A","amount_cents":1}\nnope\n', "/2", /JSON/],
    ["\n[1]\n", "/2", /object/],
    ['{"submission_id":"S","award_id":"A","amount_cents":1.0}\n', "/1/amount_cents", /integer/],
    ['{"submission_id":"S","award_id":"A","amount_cents":"1"}\n', "/1/amount_cents", /integer/],
    ['{"submission_id":"S","award_id":"A","amount":1}\n', "/1/amount", /decimal text/],
    ['\uFEFF{"submission_id":"S","award_id":"A","amount_cents":1}\n', "/1", /byte order mark/],
  ]
  for (const [body, line, detail] of lines) {
    const answer = await reconcile(service, token, body, "", json)
    t.match(answer.body, { code: "invalid-request", errors: [{ pointer: line, detail }] }, body)
  }
  t.match((await reconcile(service, token, "{}", "", { "content-type": "application/json" })).body, { status: 415 })
  t.equal((await reconcile(service, token, head + good, "?from=nope")).status, 400)
})

t.test("100,000 lines are compared in well under a minute", async (t) => {
  const service = await startService(t)
  const { id, token } = await service.portal("east")
  const sql = postgres(service.databaseUrl, { max: 1 })
  await sql`INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, submission_id, recorded_at)
    SELECT gen_random_uuid(), 'disbursement', ${id}, 'k-' || i, 'A-' || i % 1000, 'A-' || i % 1000, i, 'USD', now(), 'S-' || i, now() - i * interval '1 second' FROM generate_series(1, 100000) i`
  await sql`ANALYZE disbursements`
  await sql.end()
  const rows = Array.from({ length: 100_000 }, (_, i) => `S-${i + 2},A-${(i + 2) % 1000},${i === 7 ? 1 : i + 2}`)
  const start = performance.now()
  const { body } = await reconcile(service, token, `submission_id,award_id,amount_cents\n${rows.join("\n")}`)
  const seconds = (performance.now() - start) / 1000
  t.match(body, {
    lines: 100_000,
    matched: 99_998,
    exceptions: { missing_here: 1, missing_there: 1, amount_differs: 1 },
  })
  t.ok(seconds < 60, `${seconds.toFixed(1)} s`)
  t.comment(`${seconds.toFixed(1)} s`)
})
