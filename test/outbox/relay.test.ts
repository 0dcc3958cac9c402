/** The relay on real Postgres, with destinations that a test decides for: nothing lost, an award's order kept, nobody waits for a stranger. */
import { randomInt, randomUUID } from "node:crypto"
import t from "tap"
import type { Outcome } from "../../src/broker/broker.js"
import { commandLine } from "../../src/evidence/operator-actions.js"
import { limits } from "../../src/limits.js"
import { listParked, readBacklog, redriveParked, skipParked } from "../../src/outbox/backlog.js"
import { leaseBatch, settleDelivered } from "../../src/outbox/deliveries.js"
import { pauseDestination, removeDestination } from "../../src/outbox/destinations.js"
import { createDatabase } from "../support/database.js"
import { delivered, firstTimes, memoryBroker, relayWorld, until } from "../support/relay.js"

t.setTimeout(240_000)

const refused: Outcome = { kind: "refused", reason: "HTTP 422" }

t.test("what was committed is delivered, what was rolled back is not, in order per award, by two relays", async (t) => {
  const world = relayWorld(t, (await createDatabase(t)).url)
  const first = await world.destination("one")
  await world.destination("two")
  const [one, two] = [memoryBroker(), memoryBroker()]
  world.relay({ one, two })
  world.relay({ one, two })
  const byAward = new Map<string, string[]>()
  await Promise.all(
    Array.from({ length: 64 }, async () => {
      for (let turn = 0; turn < 5; turn++) {
        const award = `A-${randomInt(10)}`
        const options = { holdMs: randomInt(60), rollback: randomInt(10) === 0 }
        const ids = await world.write(award, randomInt(1, 4), options)
        byAward.set(award, [...(byAward.get(award) ?? []), ...ids])
      }
    }),
  )
  const all = new Set([...byAward.values()].flat())
  for (const broker of [one, two]) {
    await until("all are delivered", () => broker.confirmed().length >= all.size)
    t.same(new Set(broker.confirmed()), all, "exactly what was committed")
    t.equal(broker.got.length, all.size, "and nobody was in a hurry to repeat")
    for (const [award] of byAward) {
      const rows = await world.sql<{ id: string }[]>`SELECT id FROM outbox WHERE aggregateid = ${award} ORDER BY seq`
      t.same(
        firstTimes(broker.got, award),
        rows.map((row) => row.id),
        "in the order of their writing",
      )
    }
  }
  await until("all are settled", async () => (await world.reads.run(readBacklog)).every((row) => row.pending === 0))
  const [receipts] =
    await world.sql`SELECT count(*)::int AS n, max(attempts) AS most FROM delivery_receipts WHERE destination_id = ${first}`
  t.same(receipts, { n: all.size, most: 1 }, "a receipt each")
  await t.rejects(world.sql`DELETE FROM delivery_receipts`, "that stays")
  const types = await world.sql`SELECT DISTINCT jsonb_typeof(payload) AS type FROM outbox`
  t.same([...types], [{ type: "object" }])
})

t.test("a writer that dawdles delays nobody, and its event arrives", async (t) => {
  const world = relayWorld(t, (await createDatabase(t)).url)
  await world.destination("one")
  const one = memoryBroker()
  world.relay({ one })
  const late = world.write("LATE", 1, { holdMs: 3_000 })
  await until("it has its row", async () => {
    const [held] =
      await world.sql`SELECT count(*)::int AS n FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()`
    return held?.n > 0
  })
  for (let i = 0; i < 20; i++) await world.write(`A-${i}`, 100)
  await until("the others are there", () => one.confirmed().length === 2_000, 2_500)
  const [id] = await late
  await until("the late one arrives", () => one.confirmed().includes(id ?? ""))
  t.equal(one.got.length, 2_001, "and each once")
})

t.test(
  "an event that is refused keeps back its own award, is parked, and goes on in order when redriven",
  async (t) => {
    const world = relayWorld(t, (await createDatabase(t)).url)
    await world.destination("one")
    const one = memoryBroker()
    const [bad, ...behind] = await world.write("BAD", 3)
    one.answer = ({ id }) => (id === bad ? refused : delivered)
    world.relay({ one })
    const others = (await Promise.all(Array.from({ length: 20 }, (_, i) => world.write(`A-${i}`, 10)))).flat()
    await until("others flow", () => one.confirmed().length === others.length, 5_000)
    const parked = () => world.reads.run((db) => listParked(db, null, null, 10))
    await until("it is parked", async () => (await parked()).length === 1)
    const later = await world.write("BAD", 2)
    t.match((await parked())[0], { id: bad, subject: "BAD", reason: "HTTP 422", attempts: limits.refusedAttemptsMax })
    t.equal(one.got.filter(({ id }) => id === bad).length, limits.refusedAttemptsMax, "tried as often as it says")
    t.same(firstTimes(one.got, "BAD"), [bad], "nothing overtook it")

    one.answer = () => delivered
    const n = await world.reads.run((db) =>
      redriveParked(db, { eventId: bad ?? "", destination: null }, commandLine, "fixed"),
    )
    t.equal(n, 1)
    await until("all arrive", () => firstTimes(one.got, "BAD").length === 5)
    t.same(firstTimes(one.got, "BAD"), [bad, ...behind, ...later], "in order")
    const [action] = await world.sql`SELECT action, subject, reason FROM operator_actions WHERE action LIKE 'event.%'`
    t.same(action, { action: "event.redrive", subject: bad, reason: "fixed" })
    t.equal(
      await world.reads.run((db) => redriveParked(db, { eventId: bad ?? "", destination: null }, commandLine, null)),
      0,
    )
  },
)

t.test("a parked award that owns the oldest rows costs others nothing; skipped, the rest of it flows", async (t) => {
  const world = relayWorld(t, (await createDatabase(t)).url)
  const id = await world.destination("one")
  const one = memoryBroker()
  const ids = await world.write("BAD", 5_000)
  one.answer = (message) => (message.id === ids[0] ? refused : delivered)
  world.relay({ one })
  await until("it is parked", async () => (await world.reads.run((db) => listParked(db, null, null, 1))).length === 1)
  await until("its rows are out of the way", async () => {
    const [row] = await world.sql`SELECT count(*)::int AS n FROM outbox_delivery WHERE destination_id = ${id}`
    return row?.n === 0
  })
  const began = performance.now()
  for (let i = 0; i < 10; i++) await world.write(`A-${i}`, 100)
  await until("the others are delivered", () => one.confirmed().length === 1_000, 5_000)
  t.comment(`1,000 others in ${Math.round(performance.now() - began)} ms`)
  t.match(await world.reads.run(readBacklog), [{ parked: 1, blocked_awards: 1 }])
  await world.reads.run((db) => skipParked(db, { eventId: ids[0] ?? "", destination: "one" }, commandLine, null))
  await until("the rest flows", () => one.confirmed().length === 5_999)
  t.same(firstTimes(one.got, "BAD"), ids, "in order; the first one as it was tried")
})

t.test("who lost a lease changes nothing with what it says later", async (t) => {
  const world = relayWorld(t, (await createDatabase(t)).url)
  const id = await world.destination("one")
  await world.write("A", 3)
  const ask = { destinationId: id, leaseMs: 1, rowsMax: 10, windowRows: 100, suspects: true, trial: false }
  const frozen = randomUUID()
  const lost = await world.reads.run((db) => leaseBatch(db, { ...ask, token: frozen }))
  t.equal(lost.rows.length, 3)
  const owner = randomUUID()
  await until("it is taken over", async () => {
    const taken = await world.reads.run((db) => leaseBatch(db, { ...ask, token: owner, leaseMs: 60_000 }))
    return taken.rows.length === 3
  })
  const say = (token: string) => lost.rows.map(({ seq }) => ({ seq, token }))
  t.equal(await world.reads.run((db) => settleDelivered(db, id, say(frozen))), 0, "the late word")
  t.equal(await world.reads.run((db) => settleDelivered(db, id, say(owner))), 3, "the owner's")
  t.equal(await world.reads.run((db) => settleDelivered(db, id, say(owner))), 0, "which counts once")
})

t.test(
  "what a relay had leased when it froze is delivered by another within the lease; the repeat has the same id",
  async (t) => {
    const world = relayWorld(t, (await createDatabase(t)).url)
    await world.destination("one")
    const frozen = memoryBroker()
    let thaw: (outcome: Outcome) => void = () => {}
    const silence = new Promise<Outcome>((resolve) => {
      thaw = resolve
    })
    frozen.answer = () => silence
    world.relay({ one: frozen }, 1_000)
    const ids = (await Promise.all(Array.from({ length: 50 }, (_, i) => world.write(`A-${i}`, 4)))).flat()
    await until("it has some", () => frozen.got.length >= limits.webhookConnectionsMax)
    const one = memoryBroker()
    world.relay({ one }, 1_000)
    await until("the other delivers all", () => one.confirmed().length === ids.length, 10_000)
    thaw(delivered)
    await until("all are settled", async () => (await world.reads.run(readBacklog)).every((row) => row.pending === 0))
    t.same(new Set(one.confirmed()), new Set(ids))
    const [receipts] = await world.sql`SELECT count(*)::int AS n FROM delivery_receipts`
    t.equal(receipts?.n, ids.length, "a receipt each, not two")
  },
)

t.test("a destination that is down costs no event an attempt, and no other destination anything", async (t) => {
  const world = relayWorld(t, (await createDatabase(t)).url)
  await world.destination("down")
  await world.destination("up")
  const [down, up] = [memoryBroker(), memoryBroker()]
  const kinds = ["unreachable", "failed"] as const
  let turn = 0
  down.answer = () => ({ kind: kinds[turn++ % 2] ?? "failed", reason: "away" })
  world.relay({ down, up })
  const ids = (await Promise.all(Array.from({ length: 30 }, (_, i) => world.write(`A-${i % 5}`, 10)))).flat()
  await until("the other has all", () => up.confirmed().length === ids.length, 5_000)
  await until("it was tried several times", () => down.got.length > 3)
  t.equal((await world.reads.run(readBacklog)).find((row) => row.destination === "down")?.blocked_awards, 0, "no hold")
  down.answer = () => delivered
  await until("it comes back by itself", () => down.confirmed().length === ids.length)
  for (let i = 0; i < 5; i++) {
    const rows = await world.sql<{ id: string }[]>`SELECT id FROM outbox WHERE aggregateid = ${`A-${i}`} ORDER BY seq`
    t.same(
      down.confirmed().filter((id) => rows.some((row) => row.id === id)),
      rows.map((row) => row.id),
      "in order",
    )
  }
  t.ok(world.notes.includes("down: a destination is down") && world.notes.includes("down: a destination is back"))
  t.notOk(world.notes.some((note) => note.startsWith("up:")))
})

t.test("an event that fails while others are delivered is to blame itself: it waits, and others do not", async (t) => {
  const world = relayWorld(t, (await createDatabase(t)).url)
  await world.destination("one")
  const one = memoryBroker()
  const [bad] = await world.write("BAD", 1)
  one.answer = ({ id }, nth) => (id === bad && nth < 4 ? { kind: "failed", reason: "HTTP 500" } : delivered)
  world.relay({ one })
  for (let i = 0; i < 40 && !one.confirmed().includes(bad ?? ""); i++) {
    const [id] = await world.write(`A-${i}`, 1)
    await until("others go on", () => one.confirmed().includes(id ?? ""), 5_000)
  }
  await until("it arrives at last", () => one.confirmed().includes(bad ?? ""))
  t.equal(one.got.filter(({ id }) => id === bad).length, 4)
})

t.test("a destination that asks to wait is left alone for that long", async (t) => {
  const world = relayWorld(t, (await createDatabase(t)).url)
  await world.destination("one")
  const one = memoryBroker()
  let asked = 0
  one.answer = (_message, nth) => {
    if (asked > 0 || nth > 1) return delivered
    asked = performance.now()
    return { kind: "throttled", ms: 1_000, reason: "HTTP 429" }
  }
  world.relay({ one })
  const [id] = await world.write("A", 1)
  await until("it is delivered", () => one.confirmed().includes(id ?? ""))
  t.ok(performance.now() - asked >= 1_000, "no sooner")
})

t.test(
  "an event that ends each process which takes it is parked after three, and its neighbours are delivered",
  async (t) => {
    const world = relayWorld(t, (await createDatabase(t)).url)
    const id = await world.destination("one")
    const [killer] = await world.write("KILLER", 1)
    const neighbours = (await Promise.all(Array.from({ length: 5 }, (_, i) => world.write(`A-${i}`, 2)))).flat()
    const ask = { destinationId: id, leaseMs: 1, rowsMax: 100, windowRows: 100, suspects: true, trial: false }
    const sizes: number[] = []
    while (sizes.length < 2) {
      // A lease that nobody says anything of.
      const { rows } = await world.reads.run((db) => leaseBatch(db, { ...ask, token: randomUUID() }))
      if (rows.length > 0) sizes.push(rows.length)
    }
    t.same(sizes, [11, 11])
    await until("the third is of it alone", async () => {
      const { rows } = await world.reads.run((db) => leaseBatch(db, { ...ask, token: randomUUID() }))
      if (rows.length > 0)
        t.same(
          rows.map((row) => row.id),
          [killer],
          "what was lost twice goes alone",
        )
      return rows.length > 0
    })
    const one = memoryBroker()
    world.relay({ one })
    await until("neighbours are delivered", () => one.confirmed().length === neighbours.length)
    await until("it is parked", async () => (await world.reads.run((db) => listParked(db, null, null, 1))).length === 1)
    t.notOk(
      one.got.some((message) => message.id === killer),
      "without being sent again",
    )
  },
)

t.test(
  "a destination that is added while events are written gets each one once, from the beginning or from now on",
  async (t) => {
    const world = relayWorld(t, (await createDatabase(t)).url)
    const ids: string[] = []
    let writing = true
    const writers = Array.from({ length: 8 }, async (_, i) => {
      while (writing) ids.push(...(await world.write(`A-${i}`, 2, { holdMs: 5 })))
    })
    await until("some are there", () => ids.length > 50)
    const all = memoryBroker()
    const some = memoryBroker()
    const relay = world.relay({ all, some })
    await world.destination("all", true)
    await world.destination("some")
    const before = ids.length
    await until("more are there", () => ids.length > before + 50)
    writing = false
    await Promise.all(writers)
    await until("all are delivered", () => all.confirmed().length === ids.length)
    t.same(new Set(all.confirmed()), new Set(ids))
    t.equal(all.got.length, ids.length, "once each")
    await until("the other has its own", async () => {
      return (await world.reads.run(readBacklog)).every((row) => row.pending === 0)
    })
    const got = some.confirmed().length
    t.ok(got >= ids.length - before - 16 && got < ids.length, "from then on")

    await world.reads.run((db) => pauseDestination(db, "some", true, commandLine))
    await until("it is left alone", () => relay.states().every((state) => state.destination !== "some"))
    const kept = some.confirmed().length
    const [id] = await world.write("A-1", 1)
    await until("the other has it", () => all.confirmed().includes(id ?? ""))
    t.equal(some.confirmed().length, kept)
    const waiting = (await world.reads.run(readBacklog)).find((row) => row.destination === "some")?.pending ?? 0
    t.equal(await world.reads.run((db) => removeDestination(db, "some", commandLine)), waiting)
    const [left] = await world.sql`SELECT count(DISTINCT destination_id)::int AS n FROM outbox_delivery`
    t.ok(left?.n <= 1, "nothing is left of it")
  },
)
