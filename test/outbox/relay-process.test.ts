/** The relay as a process, delivering to a real HTTP receiver: killed in the middle of it, and asked to stop. */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import t from "tap"
import { createDatabase } from "../support/database.js"
import { relayWorld, until } from "../support/relay.js"
import { startProcess } from "../support/server.js"

t.setTimeout(240_000)

t.test(
  "a relay killed with hundreds leased loses nothing: the next delivers all within a lease, and repeats carry the same id",
  async (t) => {
    const { url } = await createDatabase(t)
    const world = relayWorld(t, url)
    const got: string[] = []
    const server = createServer((request, response) => {
      got.push(String(request.headers["webhook-id"]))
      request.resume()
      setTimeout(() => response.end(), 5)
    })
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening))
    t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
    const env = {
      DATABASE_URL: url,
      GRANTGATE_RELAY_PORT: "0",
      GRANTGATE_WEBHOOK_PRIVATE: "true",
      GRANTGATE_DESTINATION_X: `whsec_${Buffer.alloc(32, 7).toString("base64")}`,
    }
    const teardown = (work: () => Promise<unknown>) => t.teardown(work)
    const add = startProcess(
      teardown,
      "src/cli.ts",
      [
        "destination",
        "add",
        "webhook",
        "x",
        "--url",
        `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
        "--secret-env",
        "GRANTGATE_DESTINATION_X",
      ],
      env,
    )
    t.match(await add.ended, { code: 0 }, add.output())
    const ids = (await Promise.all(Array.from({ length: 40 }, (_, i) => world.write(`A-${i}`, 50)))).flat()
    const one = startProcess(teardown, "src/cli.ts", ["relay"], env)
    await until("some are delivered", () => got.length > 300, 60_000)
    await one.kill("SIGKILL")
    t.ok(got.length < ids.length, "it was killed in the middle")
    const two = startProcess(teardown, "src/cli.ts", ["relay"], env)
    await until("all are delivered", () => new Set(got).size === ids.length, 60_000)
    t.comment(`${got.length} for ${ids.length}`)
    t.same(new Set(got), new Set(ids))
    t.match(await two.kill("SIGTERM"), { code: 0 }, "stopped in order")
  },
)
