/** Groups: what one member does never costs another its answer, and whatever happens to the connection, each effect happens once. */
import t from "tap"
import { decideDisbursement } from "../../src/ledger/disbursement.js"
import { createDatabase } from "../support/database.js"
import { count, ending, exactly, makeSubmission, portalId, startGate, submit, type TestGate } from "../support/gate.js"
import { startProxy } from "../support/proxy.js"

/** Holds the lane with a first submission until all `others` wait behind it, so that they make one group. */
async function inOneGroup<T>(gate: TestGate, others: () => Promise<T>[]): Promise<T[]> {
  const hold = gate.hold("before-claim")
  const first = submit(gate.gate, { award: "FIRST" })
  await hold.reached
  const running = others()
  hold.release()
  await first
  return Promise.all(running)
}

/** The lane's backend, as seen from outside. */
async function lanePid(gate: TestGate): Promise<number> {
  const [row] = await gate.sql`
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'grantgate' AND backend_xid IS NOT NULL OR
      (datname = current_database() AND application_name = 'grantgate' AND state = 'idle in transaction')`
  return row?.pid as number
}

t.test("claim, disbursement, event and answer of a submission are written by one transaction", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  t.equal(ending(await submit(gate.gate)), "recorded")
  const rows = await gate.sql`
    SELECT xmin::text FROM claims UNION SELECT xmin::text FROM disbursements UNION SELECT xmin::text FROM outbox
    UNION SELECT xmin::text FROM answers UNION SELECT xmin::text FROM awards`
  t.equal(rows.length, 1, "one xmin for all of them")
  await exactly(t, gate.sql, 1)
})

t.test("requests that arrive while a group runs share the next transaction", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  const settled = await inOneGroup(gate, () =>
    Array.from({ length: 40 }, (_, i) => submit(gate.gate, { award: `A-${i % 7}` })),
  )
  t.ok(settled.every((one) => one.kind === "recorded"))
  t.same(gate.groups, [1, 40])
  await exactly(t, gate.sql, 41)
})

t.test("a group of at most one is a transaction per request, with the same result", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url, { groupMembersMax: 1 })
  const settled = await inOneGroup(gate, () => Array.from({ length: 10 }, () => submit(gate.gate)))
  t.ok(settled.every((one) => one.kind === "recorded"))
  t.same(gate.groups, Array(11).fill(1))
  const [row] = await gate.sql`SELECT count(DISTINCT xmin::text)::int AS transactions FROM disbursements`
  t.equal(row?.transactions, 11)
  await exactly(t, gate.sql, 11)
})

t.test("a handler that throws, refuses, gives up or dawdles takes only itself out of its group", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  const late = { written: "" }
  const settled = await inOneGroup(gate, () => [
    submit(gate.gate, { key: "good-1" }),
    submit(gate.gate, { key: "throws" }, (claimed) =>
      claimed.write(() => {
        throw new Error("a bug")
      }),
    ),
    submit(gate.gate, { key: "gives-up" }, async (claimed) => {
      claimed.abandon()
      return claimed.write(() => {
        throw new Error("never called")
      })
    }),
    submit(gate.gate, { key: "dawdles" }, async (claimed, decide) => {
      // Decides only when the group has gone on without it.
      while (gate.groups.length < 2) await new Promise((resolve) => setImmediate(resolve))
      const settled = await claimed.write(decide)
      late.written = ending(settled)
      return settled
    }),
    submit(gate.gate, { key: "other-currency", award: "FIRST", currency: "EUR" }),
    submit(gate.gate, { key: "good-2" }),
  ])
  t.same(settled.map(ending), ["recorded", "internal", "internal", "internal", "currency-mismatch", "recorded"])
  t.equal(late.written, "internal", "what was decided too late is not written")
  await exactly(t, gate.sql, 3)
  for (const key of ["throws", "gives-up", "dawdles"]) {
    t.equal(ending(await submit(gate.gate, { key })), "recorded", `the key of what ${key} is free`)
  }
})

t.test("rows that Postgres refuses cost their own member the answer, and nobody else", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  const poison = (key: string) =>
    submit(gate.gate, { key }, (claimed, decide) =>
      claimed.write((facts) => {
        const decision = decide(facts)
        if (decision instanceof Error) return decision
        const disbursements = decision.disbursements.map((line) =>
          line.kind === "disbursement" ? { ...line, submission: { ...line.submission, fain: "nul\u0000" } } : line,
        )
        return { ...decision, disbursements }
      }),
    )
  const settled = await inOneGroup(gate, () => [
    ...Array.from({ length: 20 }, () => submit(gate.gate)),
    poison("poison"),
    ...Array.from({ length: 20 }, () => submit(gate.gate)),
  ])
  t.equal(settled.filter((one) => one.kind === "recorded").length, 40)
  t.equal(ending(settled[20] as never), "internal")
  t.ok(gate.retries.filter((reason) => reason === "halve").length <= 7, "it is found by halving")
  await exactly(t, gate.sql, 41)
  t.equal(ending(await submit(gate.gate, { key: "poison" })), "recorded", "its key is free")
})

t.test("a failing outbox insert leaves no disbursement, no claim and no total", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  await gate.sql`ALTER TABLE outbox ADD CONSTRAINT broken CHECK (aggregateid <> 'BROKEN')`
  t.equal(ending(await submit(gate.gate, { key: "k", award: "broken" })), "internal")
  t.same(await count(gate.sql), { claims: 0, answers: 0, disbursements: 0, outbox: 0, total: 0, awards: 0 })
  await gate.sql`ALTER TABLE outbox DROP CONSTRAINT broken`
  t.equal(ending(await submit(gate.gate, { key: "k", award: "broken" })), "recorded")
  await exactly(t, gate.sql, 1)
})

t.test("a duplicate claim is refused by the database itself", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  const settled = await submit(gate.gate, { key: "k", submissionId: "S-1" })
  t.equal(settled.kind, "recorded")
  const claim = (key: string, submissionId: string) => gate.sql`
    INSERT INTO claims (portal_id, idempotency_key, key_strategy, operation, fingerprint, submission_id, resource_id, state, claimed_at)
    VALUES (${portalId}, ${key}, 'client/1', 'submission', 'v1:', ${submissionId}, gen_random_uuid(), 'completed', now())`
  await t.rejects(claim("k", "S-2"), { code: "23505", constraint_name: "claims_pkey" })
  await t.rejects(claim("k2", "S-1"), { code: "23505", constraint_name: "claims_submission_id" })
  await exactly(t, gate.sql, 1)
})

t.test(
  "a connection killed between claim and write loses nothing and doubles nothing; the old callback writes into no other transaction",
  async (t) => {
    const gate = startGate(t, (await createDatabase(t)).url)
    const hold = gate.hold("after-claim")
    const running = Promise.all(Array.from({ length: 10 }, (_, i) => submit(gate.gate, { key: `k-${i}` })))
    await hold.reached
    const pid = await lanePid(gate)
    await gate.sql`SELECT pg_terminate_backend(${pid}, 5000)`
    // The callback of the lost transaction goes on only after others were committed on the lane's next connection.
    const settled = await running
    const later = await submit(gate.gate, { key: "later" })
    hold.release()
    t.ok([...settled, later].every((one) => one.kind === "recorded"))
    t.equal(ending(await submit(gate.gate, { key: "latest" })), "recorded")
    await exactly(t, gate.sql, 12)
    const [idle] =
      await gate.sql`SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`
    t.equal(idle?.n, 0, "nothing is left idle in transaction")
  },
)

for (const [fault, when] of [
  ["cut-before-commit", "before its COMMIT arrives"],
  ["cut-after-commit", "after its COMMIT was carried out"],
] as const) {
  t.test(`a connection cut ${when} ends in one effect and the first answer`, async (t) => {
    const { url } = await createDatabase(t)
    const proxy = await startProxy(t, url)
    const gate = startGate(t, url, { url: proxy.url })
    // The lane's first COMMIT: later ones are a prepared statement, whose text no longer travels.
    const met = proxy.fail(fault)
    const settled = await Promise.all(Array.from({ length: 5 }, (_, i) => submit(gate.gate, { key: `k-${i}` })))
    await met
    t.ok(
      settled.every((one) => one.kind === "recorded"),
      "each hears of its own success, once",
    )
    await exactly(t, gate.sql, 5)
    const replay = await submit(gate.gate, { key: "k-0" })
    t.equal(replay.kind, "replayed")
    const first = settled[0]
    if (replay.kind === "replayed" && first?.kind === "recorded") t.same(replay.answer, first.answer, "byte for byte")
  })
}

t.test("a database that swallows everything is answered with 503 in time, and the retry records once", async (t) => {
  const { url } = await createDatabase(t)
  const proxy = await startProxy(t, url)
  const gate = startGate(t, url, { url: proxy.url })
  t.equal(ending(await submit(gate.gate, { key: "warm" })), "recorded")
  const met = proxy.fail("swallow")
  const began = performance.now()
  const swallowed = submit(gate.gate, { key: "k" })
  await met
  t.equal(ending(await swallowed), "unavailable")
  t.ok(performance.now() - began < 6_000, "long before the 8 s in which every request is answered")
  proxy.heal()
  t.match(ending(await submit(gate.gate, { key: "k" })), /^(recorded|replayed)$/)
  await exactly(t, gate.sql, 2)
})

t.test("a deadlock or serialization failure is retried inside, with fresh facts", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  await gate.sql`CREATE SEQUENCE tries`
  await gate.sql.unsafe(`
    CREATE FUNCTION fail_first() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF nextval('tries') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = 'deadlock_detected'; END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER fail_first AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION fail_first()`)
  let calls = 0
  const settled = await submit(gate.gate, {}, (claimed, decide) =>
    claimed.write((facts) => {
      calls += 1
      return decide(facts)
    }),
  )
  t.equal(settled.kind, "recorded")
  t.equal(calls, 2, "decided again")
  t.same(gate.retries, ["again"])
  await exactly(t, gate.sql, 1)
})

t.test("facts that change between deciding and writing are decided again", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  t.equal(ending(await submit(gate.gate, { amount: 1 })), "recorded")
  const hold = gate.hold("after-claim")
  const running = submit(gate.gate, { amount: 10 })
  await hold.reached
  // Another process takes the award's gross up to its bound.
  await gate.sql`UPDATE awards SET disbursed_cents = ${Number.MAX_SAFE_INTEGER - 5}`
  hold.release()
  t.equal(ending(await running), "award-funds-exceeded")
  t.same(gate.retries, ["careful"])
  const { disbursements, claims } = await count(gate.sql)
  t.same({ disbursements, claims }, { disbursements: 1, claims: 1 })
})

t.test("an award held elsewhere stalls only its own members, and they are recorded once it is free", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  t.equal(ending(await submit(gate.gate, { award: "HELD" })), "recorded")
  await gate.sql
    .begin(async (holder) => {
      await holder`SELECT 1 FROM awards WHERE award_key = 'HELD' FOR UPDATE`
      const waiting = Promise.all(Array.from({ length: 5 }, () => submit(gate.gate, { award: "held" })))
      const others = await Promise.all(Array.from({ length: 30 }, (_, i) => submit(gate.gate, { award: `FREE-${i}` })))
      t.ok(
        others.every((one) => one.kind === "recorded"),
        "strangers are recorded while it is held",
      )
      const replayer = await submit(gate.gate, { award: "FREE-0", key: "again" })
      t.equal(replayer.kind, "recorded")
      return { waiting }
    })
    .then(async ({ waiting }) => t.ok((await waiting).every((one) => one.kind === "recorded")))
  await exactly(t, gate.sql, 37)
})

t.test(
  "an award held for longer than two seconds is 503 award-busy, its key stays free, and replays do not wait",
  async (t) => {
    const gate = startGate(t, (await createDatabase(t)).url)
    t.equal(ending(await submit(gate.gate, { award: "HELD", key: "old" })), "recorded")
    await gate.sql.begin(async (holder) => {
      await holder`SELECT 1 FROM awards WHERE award_key = 'HELD' FOR UPDATE`
      const began = performance.now()
      const busy = submit(gate.gate, { award: "HELD", key: "new" })
      t.equal(ending(await submit(gate.gate, { award: "HELD", key: "old" })), "replayed")
      t.equal(ending(await busy), "award-busy")
      const ms = performance.now() - began
      t.ok(ms > 1_900 && ms < 4_000, "after two seconds")
    })
    t.equal(ending(await submit(gate.gate, { award: "HELD", key: "new" })), "recorded")
    await exactly(t, gate.sql, 2)
  },
)

t.test("an award that another process is opening is waited for outside, not inside the group", async (t) => {
  const { url } = await createDatabase(t)
  const [one, two] = [startGate(t, url), startGate(t, url)]
  const hold = one.hold("after-write")
  const opening = submit(one.gate, { award: "NEW" })
  await hold.reached
  const waiting = submit(two.gate, { award: "NEW" })
  t.equal(ending(await submit(two.gate, { award: "OTHER" })), "recorded", "strangers go on")
  hold.release()
  t.same([ending(await opening), ending(await waiting)], ["recorded", "recorded"])
  await exactly(t, one.sql, 3)
})

t.test("twins in one process and in two meet: one is recorded, the others get its answer", async (t) => {
  const { url } = await createDatabase(t)
  const gates = [startGate(t, url, { lanes: 2 }), startGate(t, url, { lanes: 2 })]
  for (let round = 0; round < 10; round++) {
    const settled = await Promise.all(
      Array.from({ length: 30 }, (_, i) => submit((gates[i % 2] as TestGate).gate, { key: `k-${round}` })),
    )
    t.equal(settled.filter((one) => one.kind === "recorded").length, 1)
    t.equal(settled.filter((one) => one.kind === "replayed").length, 29)
    const bodies = new Set(settled.map((one) => ("answer" in one ? one.answer.body : "")))
    t.equal(bodies.size, 1, "equal bytes")
  }
  await exactly(t, (gates[0] as TestGate).sql, 10)
})

t.test("who finds its key held waits two seconds, is told so, and nobody else waits", async (t) => {
  const { url } = await createDatabase(t)
  const [one, two] = [startGate(t, url), startGate(t, url)]
  await one.sql.begin(async (holder) => {
    await holder`SELECT pg_advisory_xact_lock(hashtextextended(${`k:${portalId}:k`}, 0))`
    const began = performance.now()
    const waiting = Promise.all([one, one, two].map(({ gate }) => submit(gate, { key: "k" })))
    const others = await Promise.all(Array.from({ length: 20 }, () => submit(one.gate)))
    t.ok(others.every((other) => other.kind === "recorded"))
    t.ok(performance.now() - began < 1_500, "strangers are long recorded by then")
    t.same((await waiting).map(ending), Array(3).fill("request-in-progress"))
    const ms = performance.now() - began
    t.ok(ms >= 1_900 && ms < 4_000, "after two seconds")
  })
  t.equal(ending(await submit(two.gate, { key: "k" })), "recorded", "nothing stays locked")
  await exactly(t, one.sql, 21)
})

t.test("a transaction that sat idle past its limit is ended by Postgres and run again", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  const hold = gate.hold("after-write")
  const running = submit(gate.gate)
  await hold.reached
  t.equal(ending(await running), "recorded")
  hold.release()
  t.same(gate.retries, ["reconnect"])
  await exactly(t, gate.sql, 1)
})

t.test("if the first of two twins fails, the other is claimed anew", async (t) => {
  const { gate: one, sql, hold } = startGate(t, (await createDatabase(t)).url)
  const failing = hold("after-claim")
  const throwing = submit(one, { key: "k" }, (claimed) =>
    claimed.write(() => {
      throw new Error("a bug")
    }),
  )
  await failing.reached
  const twin = submit(one, { key: "k" })
  failing.release()
  t.same([ending(await throwing), ending(await twin)], ["internal", "recorded"])
  await exactly(t, sql, 1)
})

t.test("one portal's submission_id is recorded once, whatever the key, also when both arrive at once", async (t) => {
  const { url } = await createDatabase(t)
  const [one, two] = [startGate(t, url, { lanes: 2 }), startGate(t, url)]
  const settled = await Promise.all([
    submit(one.gate, { key: "a", submissionId: "S" }),
    submit(one.gate, { key: "b", submissionId: "S", award: "OTHER" }),
    submit(two.gate, { key: "c", submissionId: "S" }),
  ])
  t.same(settled.map(ending).sort(), ["duplicate-submission", "duplicate-submission", "recorded"])
  const other = await submit(two.gate, { key: "a", submissionId: "S", portal: "00000000-0000-7000-8000-000000000002" })
  t.equal(other.kind, "recorded", "another portal's number is another")
  await exactly(t, one.sql, 2)
})

t.test(
  "a voided key stays voided, a used one cannot be voided, and a void waits for a request under way",
  async (t) => {
    const gate = startGate(t, (await createDatabase(t)).url)
    const { ask } = makeSubmission({ key: "never" })
    t.equal(ending(await gate.gate.void(ask)), "voided")
    t.equal(ending(await gate.gate.void(makeSubmission({ key: "never" }).ask)), "voided", "again")
    t.equal(ending(await submit(gate.gate, { key: "never" })), "idempotency-key-voided")

    const hold = gate.hold("after-claim")
    const running = submit(gate.gate, { key: "k" })
    await hold.reached
    const voiding = gate.gate.void(makeSubmission({ key: "k" }).ask)
    t.equal(await gate.gate.inProgress(portalId, "k"), true)
    hold.release()
    t.same([ending(await running), ending(await voiding)], ["recorded", "already-applied"])
    t.equal(await gate.gate.inProgress(portalId, "k"), false)
    await exactly(t, gate.sql, 1)
  },
)

t.test("a key used for another request is a conflict: recorded, refused, and the original untouched", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  for (let round = 0; round < 20; round++) {
    const key = `k-${round}`
    const settled = await Promise.all([submit(gate.gate, { key, amount: 1 }), submit(gate.gate, { key, amount: 2 })])
    t.same(settled.map(ending).sort(), ["idempotency-key-reused", "recorded"])
    t.same(
      (await Promise.all([submit(gate.gate, { key, amount: 1 }), submit(gate.gate, { key, amount: 2 })]))
        .map(ending)
        .sort(),
      ["idempotency-key-reused", "replayed"],
    )
  }
  t.equal(gate.conflicts.length, 40, "each one is recorded")
  await exactly(t, gate.sql, 20)
})

t.test("requests of one group see those accepted before them, in the order of arrival", async (t) => {
  const gate = startGate(t, (await createDatabase(t)).url)
  const half = Math.floor(Number.MAX_SAFE_INTEGER / 2)
  const settled = await inOneGroup(gate, () => [
    submit(gate.gate, { award: "BIG", amount: half }),
    submit(gate.gate, { award: "BIG", amount: half + 2 }),
    submit(gate.gate, { award: "BIG", amount: half }),
    submit(gate.gate, { award: "NEW", currency: "EUR", amount: 5 }),
    submit(gate.gate, { award: "NEW", currency: "USD", amount: 5 }),
  ])
  t.same(settled.map(ending), ["recorded", "award-funds-exceeded", "recorded", "recorded", "currency-mismatch"])
})

t.test("a submission dated ahead of the database's clock is refused by the decision, not by the look-up", (t) => {
  const { ask } = makeSubmission()
  const origin = { id: ask.resourceId, portalId, portal: "test", idempotencyKey: ask.key }
  const submission = {
    award_id: "A",
    award_key: "A",
    amount_cents: 1,
    currency: "USD",
    submission_timestamp: "2026-07-01T09:05:00.001Z",
  }
  const facts = { now: "2026-07-01T09:00:00.000000Z", award: null, registeredOnly: false }
  t.match(decideDisbursement(submission as never, origin, facts), { code: "submission-timestamp-in-future" })
  t.match(decideDisbursement({ ...submission, submission_timestamp: "2026-07-01T09:05:00Z" } as never, origin, facts), {
    kind: "disbursement",
  })
  t.end()
})
