/** Webhooks against a real HTTP receiver that checks signatures with the reference library, refuses, stalls, cuts and lies. */
import { randomBytes } from "node:crypto"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Webhook } from "standardwebhooks"
import t, { type Test } from "tap"
import { isPrivate, webhookBroker } from "../../src/broker/webhook.js"
import { messageOf } from "../../src/outbox/cloud-event.js"

const secret = () => `whsec_${randomBytes(32).toString("base64")}`
const message = messageOf(
  {
    seq: "42",
    attempts: 1,
    id: "0197c3a4-1f7a-7d20-9b3c-8e6f5a4d3c2b",
    type: "disbursement.recorded",
    aggregatetype: "award",
    aggregateid: "KÖLN 7",
    payload: '{"amount_cents": 9007199254740991, "note": "Zuwendung für Köln 🏛"}',
    at: "2025-07-01T09:12:44.020115Z",
  },
  "urn:test",
)

async function receiver(t: Test, answer: (request: IncomingMessage, response: ServerResponse, body: string) => void) {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => answer(request, response, Buffer.concat(chunks).toString()))
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`
}

function open(t: Test, url: string, secrets: readonly string[], allowPrivate = true) {
  const broker = webhookBroker({ url, secrets, allowPrivate, userAgent: "test" })
  t.teardown(() => broker.close())
  return broker
}

t.test("either secret in rotation verifies a message; one byte changed, and none does", async (t) => {
  const [old, next] = [secret(), secret()]
  const seen: { body: string; headers: Record<string, string> }[] = []
  const url = await receiver(t, (request, response, body) => {
    seen.push({ body, headers: request.headers as Record<string, string> })
    response.end()
  })
  t.same(await open(t, url, [old, next]).publish(message, 5_000), { kind: "delivered" })
  const [{ body, headers } = { body: "", headers: {} }] = seen
  for (const one of [old, next]) {
    t.match(new Webhook(one).verify(body, headers), { specversion: "1.0", id: message.id, subject: "KÖLN 7" })
    t.throws(() => new Webhook(one).verify(body.replace("91", "92"), headers))
  }
  t.throws(() => new Webhook(secret()).verify(body, headers))
  t.match(body, '"amount_cents": 9007199254740991', "numbers as stored")
  t.match(headers, { "content-type": /^application\/cloudevents\+json/, "webhook-id": message.id })
})

t.test("what a receiver answers is taken for what it says, and nothing else for a delivery", async (t) => {
  let write: (response: ServerResponse) => void = () => {}
  const url = await receiver(t, (_request, response) => write(response))
  const broker = open(t, url, [secret()])
  for (const [status, headers, kind] of [
    [204, {}, "delivered"],
    [302, { location: "/elsewhere" }, "failed"],
    [400, {}, "refused"],
    [401, {}, "failed"],
    [410, {}, "gone"],
    [429, {}, "throttled"],
    [500, {}, "failed"],
    [503, {}, "failed"],
  ] as const) {
    write = (response) => response.writeHead(status, headers).end("x".repeat(100_000))
    t.equal((await broker.publish(message, 5_000)).kind, kind, `${status}`)
  }
  write = (response) => response.writeHead(503, { "retry-after": "7" }).end()
  t.match(await broker.publish(message, 5_000), { kind: "throttled", ms: 7_000 })
  write = (response) => response.destroy()
  t.equal((await broker.publish(message, 5_000)).kind, "failed", "cut: it may have the message")
  write = () => {}
  t.equal((await broker.publish(message, 200)).kind, "failed", "silence")
  const nobody = open(t, "http://127.0.0.1:1/", [secret()])
  t.equal((await nobody.publish(message, 2_000)).kind, "unreachable")
})

t.test("private addresses are refused unless allowed, by name as well, and where the socket connects", async (t) => {
  for (const address of [
    "127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "192.168.0.1",
    "::1",
    "fe80::1",
    "::ffff:127.0.0.1",
  ])
    t.ok(isPrivate(address), address)
  for (const address of ["93.184.216.34", "2606:2800:220:1::1"]) t.notOk(isPrivate(address), address)
  t.throws(() =>
    webhookBroker({ url: "http://127.0.0.1/", secrets: [secret()], allowPrivate: false, userAgent: "test" }),
  )
  let asked = 0
  const url = await receiver(t, (_request, response) => {
    asked += 1
    response.end()
  })
  const named = open(t, url.replace("127.0.0.1", "localhost"), [secret()], false)
  t.match(await named.publish(message, 5_000), { kind: "unreachable", reason: /private/ })
  await t.rejects(named.check(2_000), /private/)
  t.equal(asked, 0)
})
