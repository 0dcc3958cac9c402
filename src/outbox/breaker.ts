/**
 * Whether a destination is tried now: all of it, one event as a trial, or nothing. Opens when the destination is down or asks to wait; knows
 * nothing of events, and spends no attempt of any.
 */
import { limits } from "../limits.js"

type Mode = "closed" | "open" | "trial"

/** A random time around `ms`, so that many who wait do not come back at once. */
export function jitter(ms: number): number {
  return Math.round(ms * (0.5 + Math.random()))
}

/** `ms` doubled for each attempt before, up to `max`, with jitter. */
export function backOffMs(attempts: number, min: number, max: number): number {
  return jitter(Math.min(max, min * 2 ** Math.min(attempts - 1, 30)))
}

export class Breaker {
  #opened = 0
  /** By `performance.now()`; null: closed. */
  #until: number | null = null
  #reason: string | null = null

  get mode(): Mode {
    if (this.#until === null) return "closed"
    return performance.now() < this.#until ? "open" : "trial"
  }

  /** Why it is not closed. */
  get reason(): string | null {
    return this.#reason
  }

  /** The destination is down. @returns true when that is news; what was on its way when it opened changes nothing more */
  open(reason: string): boolean {
    if (this.mode === "open") return false
    this.#opened += 1
    this.#until = performance.now() + backOffMs(this.#opened, limits.breakerMsMin, limits.breakerMsMax)
    const isNews = this.#reason === null
    this.#reason = reason
    return isNews
  }

  /** The destination asks to be left alone for this long: no less, and then with a trial. */
  wait(ms: number, reason: string): void {
    this.#until = Math.max(this.#until ?? 0, performance.now() + ms)
    this.#reason = reason
  }

  /** Something was delivered. @returns true when it was not closed before */
  close(): boolean {
    const was = this.#until !== null
    this.#opened = 0
    this.#until = null
    this.#reason = null
    return was
  }
}
