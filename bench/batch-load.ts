/**
 * One batch, as a program: lines made ahead are sent while their answers are read, a bounded number of them unanswered, until the time is up.
 * Prints one JSON object.
 */
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { type ClientRequest, type IncomingMessage, request } from "node:http"
import type { Load, Measured } from "./load.js"

/** Lines made ahead are sent as one piece; so many pieces may be unanswered. */
const pieceLines = 128
const piecesAhead = 24
const perSecondMax = 20_000

const load = JSON.parse(process.argv[2] ?? "") as Load
const pieces = Array.from({ length: Math.ceil((perSecondMax * load.seconds) / pieceLines) }, makePiece)
const cpuBefore = process.cpuUsage()
const from = performance.now()
const until = from + load.seconds * 1_000
const times: number[] = []
const sentAt: number[] = []
let answers = 0
let recorded = 0
let onAnswers = (): void => {}

const outgoing = request(load.url, {
  method: "POST",
  headers: { authorization: `Bearer ${load.token}`, "content-type": "application/x-ndjson" },
})
const reading = once(outgoing, "response").then(([response]) => read(response as IncomingMessage))
await sendAll(outgoing)
await reading
const seconds = (performance.now() - from) / 1_000
const cpu = process.cpuUsage(cpuBefore)
times.sort((a, b) => a - b)
const measured: Measured = {
  answers,
  seconds,
  refused: answers - recorded,
  broken: sentAt.length * pieceLines - answers,
  p50Ms: times[Math.floor(times.length * 0.5)] ?? 0,
  p99Ms: times[Math.floor(times.length * 0.99)] ?? 0,
  maxMs: times.at(-1) ?? 0,
  generatorCpuSeconds: (cpu.user + cpu.system) / 1e6,
}
process.stdout.write(JSON.stringify(measured))

async function sendAll(to: ClientRequest): Promise<void> {
  for (const piece of pieces) {
    while (sentAt.length * pieceLines - answers >= piecesAhead * pieceLines)
      await new Promise<void>((resolve) => {
        onAnswers = resolve
      })
    if (performance.now() > until) break
    sentAt.push(performance.now())
    if (!to.write(piece)) await once(to, "drain")
  }
  to.end()
}

/** Counts answers by their status; a piece's time is that of its last line. */
async function read(response: IncomingMessage): Promise<void> {
  let rest = ""
  for await (const chunk of response.setEncoding("utf8")) {
    const lines = (rest + chunk).split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) {
      answers += 1
      if (line.includes('"status":201')) recorded += 1
      if (answers % pieceLines === 0) times.push(performance.now() - (sentAt[answers / pieceLines - 1] ?? 0))
    }
    onAnswers()
  }
}

function makePiece(): string {
  let text = ""
  for (let i = 0; i < pieceLines; i++) {
    const award = String(1 + Math.floor(Math.random() * load.awards)).padStart(4, "0")
    const cents = 1 + Math.floor(Math.random() * 1_000_000)
    text += `{"award_id":"A-2025-${award}","submission_timestamp":"2025-07-01T09:00:00Z","amount_cents":${cents},"currency":"USD","invoice_ref":"INV-${String(i).padStart(6, "0")}","idempotency_key":"${randomUUID()}"}\n`
  }
  return text
}
