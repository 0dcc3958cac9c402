/** Connections that are lost: whoever used them hears of it, and the process goes on. */
import { once } from "node:events"
import { connect as connectSocket, createServer, type Socket } from "node:net"
import { sql } from "drizzle-orm"
import t, { type Test } from "tap"
import { connect, isUnavailable } from "../../src/db/client.js"
import { createDatabase } from "../support/database.js"

// After sockets were reset while they connected, node 20 can spin for ever in the clean-up of an exit that comes by itself; one that is asked for has none.
process.once("beforeExit", () => setImmediate(() => process.exit()))

/** A way to the database whose connections can be cut, politely or with a reset. */
interface Relay {
  readonly url: string
  cut(how: "end" | "reset"): void
  /** Called for each piece that the database sends on a connection, with its number on it from 1, before it goes on. */
  onAnswer: (piece: number) => void
}

async function startRelay(t: Test, databaseUrl: string): Promise<Relay> {
  const target = new URL(databaseUrl)
  const pairs = new Set<[Socket, Socket]>()
  const relay = createServer((client) => {
    const upstream = connectSocket(Number(target.port), target.hostname)
    const pair: [Socket, Socket] = [client, upstream]
    pairs.add(pair)
    for (const socket of pair) socket.on("error", () => {})
    client.pipe(upstream)
    let piece = 0
    upstream.on("data", (bytes) => {
      self.onAnswer(++piece)
      client.write(bytes)
    })
    upstream.on("end", () => client.end())
  }).listen(0, "127.0.0.1")
  await once(relay, "listening")
  const cut = (how: "end" | "reset") => {
    for (const [client, upstream] of pairs) {
      if (how === "reset") client.resetAndDestroy()
      else client.end()
      upstream.destroy()
    }
    pairs.clear()
  }
  t.teardown(() => {
    cut("end")
    relay.close()
  })
  const { port } = relay.address() as { port: number }
  const url = `postgres://${target.username}:${target.password}@127.0.0.1:${port}${target.pathname}`
  const self: Relay = { url, cut, onAnswer: () => {} }
  return self
}

for (const how of ["end", "reset"] as const) {
  t.test(`a transaction whose connection is lost (${how}) rejects, and nothing more is sent on it`, async (t) => {
    const relay = await startRelay(t, (await createDatabase(t)).url)
    for (const afterwards of ["rejects", "sends more", "rejects later"] as const) {
      let closed = () => {}
      const lost = new Promise<void>((resolve) => {
        closed = resolve
      })
      const { db, discard } = connect(relay.url, { max: 1, preparedStatements: true, onClose: () => closed() })
      const running = db.transaction(async (tx) => {
        await tx.execute(sql`SELECT 1`)
        const statement = tx.execute(sql`SELECT pg_sleep(10)`)
        setImmediate(() => relay.cut(how))
        if (afterwards === "rejects") return statement
        await Promise.allSettled([statement, lost])
        if (afterwards === "sends more") return tx.execute(sql`SELECT 2`)
        throw new Error("as a handler that finds out")
      })
      await t.rejects(running, afterwards)
      t.ok(isUnavailable(await running.catch((error: unknown) => error)), "as unavailable")
      // The turns in which a statement for a lost connection would be written.
      for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
      await discard()
      const next = connect(relay.url, { max: 1, preparedStatements: true })
      t.equal((await next.db.execute(sql`SELECT 3 AS n`))[0]?.n, 3, "the next connection serves")
      await next.discard()
    }
  })
}

t.test("a connection that is lost at any moment of its beginning costs an error, and not the process", async (t) => {
  const relay = await startRelay(t, (await createDatabase(t)).url)
  let answered = false
  for (let moment = 1; !answered; moment++) {
    for (const how of ["end", "reset"] as const) {
      relay.onAnswer = (piece) => piece === moment && relay.cut(how)
      const { db, discard } = connect(relay.url, { max: 1, preparedStatements: true })
      const asked = Promise.race([
        db.execute(sql`SELECT 1`).then(
          () => "answered",
          () => "refused",
        ),
        // It may go on trying with the next connection, which meets the same end.
        new Promise<string>((resolve) => setTimeout(resolve, 500, "tries again")),
      ])
      answered = (await asked) === "answered"
      await discard()
    }
    t.pass(`lost at piece ${moment}`)
  }
  relay.onAnswer = () => {}
  const { db, discard } = connect(relay.url, { max: 1, preparedStatements: true })
  const items = ["a", 'b"', "c\\", "", "NULL", "{,}", "ä"]
  const [row] = await db.execute(sql`SELECT array_to_json(${sql.param(items)}::text[]) AS items`)
  t.same(row?.items, items, "and an array of text arrives as it was")
  await discard()
})
