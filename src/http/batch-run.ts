/**
 * One batch under way: lines in, answers out, in the order of the lines. It reads on only while the window has room and the gate has places, and
 * the window empties only as fast as the client takes answers: nothing grows, whoever is slow. It ends early where going on would be a lie (the
 * database is lost, the service stops, nothing moves); the last line then says so, and whatever has no answer is safe to send again.
 */
import { Readable } from "node:stream"
import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises"
import type { BulkRoom } from "../gate/bulk-room.js"
import type { Gate } from "../gate/gate.js"
import type { Settled } from "../gate/operation.js"
import type { AllFacts, Rows } from "../ledger/book.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { answerLine, type BatchContext, type LineAsk, problemLine, readLine, refuseLine } from "./batch-line.js"
import { type ByteLine, ByteLines, isBlank } from "./byte-lines.js"
import { problemOf } from "./problem-replies.js"

/** A line whose answer is not yet taken. */
interface Place {
  /** null: still in the gate. */
  answer: string | null
  /** The answer is the batch's last. */
  last: boolean
  readonly bytes: number
}

export class BatchRun extends Readable {
  readonly #context: BatchContext
  readonly #gate: Gate<AllFacts, Rows>
  readonly #room: BulkRoom
  readonly #lines = new ByteLines(limits.bodyBytesMax)
  readonly #window: Place[] = []
  #windowBytes = 0
  /** Lines under way by what no two may have at once: of twins, the one that came first goes first. */
  readonly #underWay = new Map<string, Promise<unknown>>()
  /** The client takes more. */
  #wanted = false
  /** No more lines are taken. */
  #closed = false
  /** The first line that was not taken. */
  #next = 1
  /** What the last line says, where the lines did not end by themselves. */
  #lastLine: string | null = null
  #onRoom: (() => void) | null = null
  #turnMs = performance.now()

  constructor(context: BatchContext, gate: Gate<AllFacts, Rows>, room: BulkRoom) {
    super({ highWaterMark: limits.batchPieceCharsMax })
    this.#context = context
    this.#gate = gate
    this.#room = room
  }

  /** Takes the lines of the body as they come. */
  readFrom(body: Readable): void {
    let taken = Promise.resolve()
    body.on("data", (chunk: Buffer) => {
      if (this.#closed) return
      body.pause()
      taken = this.#takeAll(this.#lines.push(chunk)).then(() => void body.resume())
    })
    // A stream that is paused within its last chunk says so all the same.
    body.on("end", () => void taken.then(() => this.#takeAll(this.#lines.end())).then(() => this.#close()))
    // The client is gone; what it sent whole is finished, and the rest of a line is nobody's wish.
    body.on("error", () => this.destroy())
  }

  /** The service stops: what is in the gate is answered, then the batch ends. */
  stop(): void {
    const problem = new Problem(
      "unavailable",
      "The service is stopping. Neither this line nor what follows it was recorded by this request.",
    )
    this.#endEarly(problemLine(this.#context, this.#next, problem))
  }

  /** Nothing has moved on the connection for `connectionMs`. */
  stall(): void {
    // Answers are ready and nobody takes them.
    if (!this.#wanted) this.destroy()
    else if (this.#window.length === 0) {
      const detail = "Nothing came for too long. Neither this line nor what follows it was recorded by this request."
      const problem = new Problem("invalid-request", detail, { errors: [{ pointer: "", code: "unreadable", detail }] })
      this.#endEarly(problemLine(this.#context, this.#next, problem, 408))
    }
  }

  override _read(): void {
    this.#wanted = true
    this.#flush()
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#closed = true
    this.#letOn()
    callback(error)
  }

  #endEarly(lastLine: string): void {
    if (this.#closed) return
    this.#lastLine = lastLine
    this.#close()
  }

  #close(): void {
    this.#closed = true
    this.#letOn()
    this.#flush()
  }

  async #takeAll(lines: Iterable<ByteLine>): Promise<void> {
    for (const line of lines) {
      if (performance.now() - this.#turnMs > limits.batchTurnMs) {
        await nextTurn()
        this.#turnMs = performance.now()
      }
      while (!this.#closed && this.#isFull()) {
        await new Promise<void>((resolve) => {
          this.#onRoom = resolve
        })
      }
      if (this.#closed) return
      if (line.bytes === null || !isBlank(line.bytes)) await this.#take(line)
      else this.#next = line.line + 1
    }
  }

  async #take(line: ByteLine): Promise<void> {
    let read: LineAsk
    try {
      read = readLine(this.#context, line)
    } catch (error) {
      const answer = refuseLine(this.#context, line.line, this.#problemOf(error))
      this.#push(line, { answer, last: false, bytes: 0 })
      this.#flush()
      return
    }
    const { length: bytes } = read.ask.requestText
    const waiting = this.#room.enter(bytes)
    if (waiting) await waiting
    if (this.#closed) {
      this.#room.leave(bytes)
      return
    }
    const place: Place = { answer: null, last: false, bytes }
    this.#push(line, place)
    void this.#inTurn(read).then((settled) => {
      this.#room.leave(bytes)
      place.answer = answerLine(this.#context, line.line, read, settled)
      place.last = settled.kind === "refused" && settled.problem.code === "unavailable"
      if (this.#window[0] === place) this.#flush()
    })
  }

  /** Through the gate, after those before it that are the same one. */
  async #inTurn({ ask, decide }: LineAsk): Promise<Settled> {
    const identities = ask.submissionId === null ? [`k${ask.key}`] : [`k${ask.key}`, `s${ask.submissionId}`]
    const before = identities.flatMap((identity) => this.#underWay.get(identity) ?? [])
    const settling =
      before.length === 0 ? this.#settle(ask, decide) : Promise.all(before).then(() => this.#settle(ask, decide))
    for (const identity of identities) this.#underWay.set(identity, settling)
    const settled = await settling
    for (const identity of identities) if (this.#underWay.get(identity) === settling) this.#underWay.delete(identity)
    return settled
  }

  /** Who comes in bulk waits where a single request would be told to come again. */
  async #settle(ask: LineAsk["ask"], decide: LineAsk["decide"]): Promise<Settled> {
    for (const from = performance.now(); ; ) {
      const outcome = await this.#gate.claim(ask)
      const settled = outcome.kind === "claimed" ? await outcome.write(decide) : outcome
      const turnedAway = settled.kind === "refused" && settled.problem.code === "overloaded"
      if (!turnedAway || this.#closed || performance.now() - from > limits.bulkPatienceMs) return settled
      await delay(limits.bulkRetryMs)
    }
  }

  #isFull(): boolean {
    return this.#window.length >= limits.batchLinesMax || this.#windowBytes > limits.batchBytesMax - limits.bodyBytesMax
  }

  #push({ line }: ByteLine, place: Place): void {
    this.#next = line + 1
    this.#window.push(place)
    this.#windowBytes += place.bytes
  }

  /** Hands on what is answered, in order, while the client takes it. */
  #flush(): void {
    while (this.#wanted && !this.destroyed) {
      let text = ""
      let last = false
      for (
        let place = this.#window[0];
        place?.answer && !last && text.length < limits.batchPieceCharsMax;
        place = this.#window[0]
      ) {
        text += place.answer
        last = place.last
        this.#windowBytes -= place.bytes
        this.#window.shift()
      }
      if (last) {
        // What is behind it in the gate ends there by itself, recorded or not.
        this.#lastLine = null
        this.#window.length = 0
        this.#closed = true
      }
      if (this.#closed && this.#window.length === 0) {
        this.#wanted = false
        this.#letOn()
        text += this.#lastLine ?? ""
        if (text !== "") this.push(text)
        this.push(null)
        return
      }
      if (text === "") return
      this.#wanted = this.push(text)
      this.#letOn()
    }
  }

  #letOn(): void {
    const onRoom = this.#onRoom
    this.#onRoom = null
    onRoom?.()
  }

  #problemOf(error: unknown): Problem {
    if (!(error instanceof Problem)) this.#context.log.error({ err: error }, "a line failed")
    return problemOf(error)
  }
}
