/**
 * Sends lines as batches until each has its answer: reads answers while it sends, and when the connection or the service is lost, waits and sends
 * what has none again. That is safe because of the keys; it holds only what is sent and not yet answered.
 */
import { Readable } from "node:stream"
import { setTimeout as delay } from "node:timers/promises"
import { Agent, type Dispatcher, request } from "undici"
import { limits } from "../limits.js"
import type { Retry } from "../problems.js"
import { CommandError } from "./command.js"
import type { FileLine } from "./submit-file.js"

/** The members of a problem that matter to a sender. */
export interface LineProblem {
  readonly code: string
  readonly detail: string
  readonly retry: Retry
  readonly errors?: readonly { readonly pointer: string; readonly detail: string }[]
  readonly differs?: readonly string[]
  readonly disbursement_id?: string
}

interface LineAnswer {
  readonly line: number
  readonly status: number
  readonly problem?: LineProblem
}

export interface Target {
  readonly url: string
  readonly token: string
  /** Without any answer it gives up after so long. */
  readonly patienceMs: number
}

/** Told once of each line, in the order of the answers. `status` null: it was not sent, because it cannot be; the problem is then a sentence. */
export type OnAnswer = (line: FileLine, status: number | null, problem: LineProblem | string | null) => void

interface Waiting {
  readonly line: FileLine
  readonly json: Buffer
  tries: number
}

/** @throws CommandError when it cannot go on: refused as a whole, or out of patience */
export async function submitLines(
  source: AsyncGenerator<FileLine, void, undefined>,
  target: Target,
  onAnswer: OnAnswer,
): Promise<void> {
  const dispatcher = new Agent({ headersTimeout: limits.submitAnswerMs, bodyTimeout: limits.submitAnswerMs })
  const sender = new Sender(source, target, onAnswer, dispatcher)
  try {
    await sender.run()
  } finally {
    await dispatcher.destroy()
    await source.return()
  }
}

class Sender {
  readonly #source: AsyncGenerator<FileLine, void, undefined>
  readonly #target: Target
  readonly #onAnswer: OnAnswer
  readonly #dispatcher: Dispatcher
  /** To be sent before anything more is read. */
  #backlog: Waiting[] = []
  /** Sent and not answered, in order. */
  #sent: Waiting[] = []
  #sentBytes = 0
  /** Answered with "the same again". */
  #again: Waiting[] = []
  #sourceEnded = false
  #sourceError: unknown = null
  #reading: Promise<void> | null = null
  #onRoom: (() => void) | null = null
  #answeredMs = performance.now()

  constructor(
    source: AsyncGenerator<FileLine, void, undefined>,
    target: Target,
    onAnswer: OnAnswer,
    dispatcher: Dispatcher,
  ) {
    this.#source = source
    this.#target = target
    this.#onAnswer = onAnswer
    this.#dispatcher = dispatcher
  }

  async run(): Promise<void> {
    let waitMs: number = limits.submitRetryMsMin
    for (;;) {
      await this.#refill()
      if (this.#backlog.length === 0) return
      const before = this.#answeredMs
      const why = await this.#attempt()
      // First what was sent first; what is to come again is not in a hurry.
      this.#backlog = [...this.#sent.splice(0), ...this.#again.splice(0), ...this.#backlog]
      this.#sentBytes = 0
      if (this.#sourceError) throw this.#sourceError
      if (this.#backlog.length === 0 && this.#sourceEnded) return
      waitMs = this.#answeredMs > before ? limits.submitRetryMsMin : Math.min(waitMs * 2, limits.submitRetryMsMax)
      if (performance.now() - this.#answeredMs > this.#target.patienceMs)
        throw new CommandError(
          `${why ?? "Some lines are held up."} No answer for ${this.#target.patienceMs / 1_000} s: given up. Run it again: only the rest is recorded.`,
          2,
        )
      await delay(waitMs)
    }
  }

  /** One batch, as far as it goes. @returns why it ended early; null: it did not */
  async #attempt(): Promise<string | null> {
    const over = new AbortController()
    try {
      const { statusCode, body } = await request(`${this.#target.url.replace(/\/+$/, "")}/v1/submissions/batch`, {
        method: "POST",
        dispatcher: this.#dispatcher,
        signal: over.signal,
        headers: { authorization: `Bearer ${this.#target.token}`, "content-type": "application/x-ndjson" },
        body: Readable.from(this.#pieces(over.signal), { highWaterMark: 1 }),
      })
      if (statusCode !== 200) return refusal(statusCode, await body.text())
      return await this.#readAnswers(body)
    } catch (error) {
      if (error instanceof CommandError || this.#sourceError) throw this.#sourceError ?? error
      return "The connection to the service was lost, or there is none."
    } finally {
      over.abort()
      this.#letOn()
    }
  }

  /** What is to be sent, some lines a piece, while there is room for more that is not answered. */
  async *#pieces(over: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
    let piece: Buffer[] = []
    let bytes = 0
    for (;;) {
      if (this.#backlog.length === 0) await this.#refill()
      const full = this.#sent.length >= limits.submitLinesMax || this.#sentBytes > limits.submitBytesMax
      const next = full || over.aborted ? undefined : this.#backlog.shift()
      if (next) {
        this.#sent.push(next)
        this.#sentBytes += next.json.length
        piece.push(next.json, lf)
        bytes += next.json.length
        if (bytes < limits.submitPieceChars) continue
      }
      if (piece.length > 0) yield Buffer.concat(piece)
      piece = []
      bytes = 0
      if (over.aborted || (!next && !full)) return
      if (full && this.#sent.length > 0)
        await new Promise<void>((resolve) => {
          this.#onRoom = resolve
        })
    }
  }

  async #readAnswers(body: AsyncIterable<Buffer>): Promise<string | null> {
    let answered = 0
    let rest = ""
    const decoder = new TextDecoder()
    for await (const chunk of body) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n")
      rest = lines.pop() ?? ""
      for (const text of lines) {
        const answer = JSON.parse(text) as LineAnswer
        answered += 1
        if (answer.line !== answered) throw new CommandError("What answers there is not grantgate.", 2)
        // Its last line, about a line that may not even have been sent: that, and what follows, comes again.
        if (answer.status === 408 || answer.problem?.code === "unavailable") return answer.problem?.detail ?? ""
        const sent = this.#sent.shift()
        if (!sent) throw new CommandError("What answers there is not grantgate.", 2)
        this.#sentBytes -= sent.json.length
        this.#settle(sent, answer)
      }
      this.#letOn()
    }
    return null
  }

  #settle(sent: Waiting, { status, problem }: LineAnswer): void {
    sent.tries += 1
    if (problem?.retry === "same-key" && sent.tries < limits.submitTriesMax) this.#again.push(sent)
    else {
      this.#answeredMs = performance.now()
      this.#onAnswer(sent.line, status, problem ?? null)
    }
  }

  /** Reads on in the file until there is something to send. One reading at a time: what it reads is never anybody's own. */
  #refill(): Promise<void> {
    this.#reading ??= this.#readOn().finally(() => {
      this.#reading = null
    })
    return this.#reading
  }

  async #readOn(): Promise<void> {
    try {
      while (this.#backlog.length === 0 && !this.#sourceEnded) {
        const { done, value } = await this.#source.next()
        if (done) this.#sourceEnded = true
        else if ("json" in value.sent) this.#backlog.push({ line: value, json: value.sent.json, tries: 0 })
        else this.#onAnswer(value, null, value.sent.fault)
      }
    } catch (error) {
      this.#sourceEnded = true
      this.#sourceError = error
      throw error
    }
  }

  #letOn(): void {
    const onRoom = this.#onRoom
    this.#onRoom = null
    onRoom?.()
  }
}

const lf = Buffer.from("\n")

/** What a refusal of the whole request means. @returns why, where another try may help */
function refusal(status: number, text: string): string {
  let detail = `It answered with status ${status}.`
  try {
    detail = (JSON.parse(text) as LineProblem).detail ?? detail
  } catch {
    // Not a problem of ours: a proxy's page, say.
  }
  if (status === 408 || status === 429 || status >= 500) return detail
  throw new CommandError(`The service refused the batch. ${detail}`, 2)
}
