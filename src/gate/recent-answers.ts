/**
 * What this process lately saw committed: answers by key, so that a retry right after its request costs the database nothing. Committed answers
 * never change, so what is remembered is true for as long as the database that committed it is the one asked: all is forgotten when a connection
 * is lost (a failover may have lost what was committed last), and each answer soon after it was heard. For any request that is not the same, an entry
 * is only a hint to look the key up at once. Two generations, so that forgetting costs nothing; holds at most `max` keys.
 */
import { limits } from "../limits.js"
import type { Answer, Ask } from "./operation.js"

/** A committed answer; null where a key was voided. */
export interface Remembered {
  readonly fingerprint: string
  readonly answer: Answer
  readonly resourceId: string
  /** When the database said so, by the process's own clock. */
  readonly heardMs: number
}

export class RecentAnswers {
  readonly #half: number
  #young = new Map<string, Remembered | null>()
  #old = new Map<string, Remembered | null>()

  constructor(max: number) {
    this.#half = Math.ceil(max / 2)
  }

  /** Something is recorded under the key: to be looked up, unless `answerTo` knows it. */
  has(identity: string): boolean {
    return this.#young.has(identity) || this.#old.has(identity)
  }

  /** The answer to exactly this request, if it was heard of a moment ago. */
  answerTo(identity: string, ask: Ask): Remembered | null {
    const known = this.#young.get(identity) ?? this.#old.get(identity)
    if (!known || known.fingerprint !== ask.fingerprint) return null
    return performance.now() - known.heardMs < limits.recentAnswerMs ? known : null
  }

  add(identity: string, answer: Remembered | null): void {
    if (this.#young.size >= this.#half && !this.#young.has(identity)) {
      this.#old = this.#young
      this.#young = new Map()
    }
    this.#young.set(identity, answer)
  }

  /** Nothing that was heard so far is sure any more. */
  clear(): void {
    this.#young.clear()
    this.#old.clear()
  }
}
