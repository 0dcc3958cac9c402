/**
 * One request on its way through the gate: its two promises (claimed, then settled), its deadlines, what its handler decided.
 * It settles once; whatever comes later is ignored.
 */
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { type Claimant, keyLock, sharedLocks, submissionIdLock } from "./claim.js"
import { refused } from "./judge.js"
import type { Ask, Claimed, Decide, Settled } from "./operation.js"
import type { Remembered } from "./recent-answers.js"

let arrivals = 0

export class Member<Facts, Rows> implements Claimant {
  /** Order of arrival in this process. */
  readonly arrival = ++arrivals
  readonly arrivedMs = performance.now()
  readonly bytes: number
  readonly keyIdentity: string
  /** What no two requests may have under way at once: its key, and its submission_id. */
  readonly identities: readonly string[]
  /** What its group must hold, and members of one group may share: see `Ask.undoes`, `Ask.account`. */
  readonly sharedLocks: readonly string[]
  /** Resolves to the claim, or to the end when it ends before its handler runs. */
  readonly outcome: Promise<Claimed<Facts, Rows> | Settled>
  /** A group's transaction is running with this member in it: from here its outcome is unknown until that has ended. */
  inGroup = false
  /** A COMMIT with this member in it was sent and its outcome never heard. */
  commitUnheard = false
  /** Its award was found held: lock awards first. */
  careful = false
  /** Tries so far that ended with something held. */
  heldTries = 0

  /** Its identities are its own in this process. */
  flying = false
  #waitTimer: NodeJS.Timeout | null = null
  #decide: Decide<Facts, Rows> | null = null
  #abandoned = false
  #handed = false
  #settled: Settled | null = null
  #onReady: (() => void) | null = null
  #resolveOutcome!: (outcome: Claimed<Facts, Rows> | Settled) => void
  #resolveWritten: ((settled: Settled) => void) | null = null
  readonly #deadline: NodeJS.Timeout

  constructor(
    readonly ask: Ask,
    readonly voiding: boolean,
  ) {
    this.bytes = ask.requestText.length
    this.keyIdentity = keyLock(ask)
    this.identities = ask.submissionId === null ? [this.keyIdentity] : [this.keyIdentity, submissionIdLock(ask)]
    this.sharedLocks = sharedLocks(ask)
    this.outcome = new Promise((resolve) => {
      this.#resolveOutcome = resolve
    })
    this.#deadline = setTimeout(() => this.settle(this.lateRefusal()), limits.memberMs)
  }

  get settled(): boolean {
    return this.#settled !== null
  }

  /** Something is recorded under its key. */
  get tookEffect(): boolean {
    const kind = this.#settled?.kind
    return kind === "recorded" || kind === "replayed" || kind === "voided"
  }

  /** What may be remembered of it, once it took effect. */
  remembered(): Remembered | null {
    const settled = this.#settled
    if (settled?.kind !== "recorded" && settled?.kind !== "replayed") return null
    const { answer, resourceId } = settled
    return { fingerprint: this.ask.fingerprint, answer, resourceId, heardMs: performance.now() }
  }

  /** Decided, abandoned, or a void, which decides nothing. */
  get ready(): boolean {
    return this.voiding || this.#decide !== null || this.#abandoned
  }

  get decide(): Decide<Facts, Rows> | null {
    return this.#decide
  }

  get abandoned(): boolean {
    return this.#abandoned
  }

  ageMs(): number {
    return performance.now() - this.arrivedMs
  }

  /** Tells the preHandler that the key is claimed, once; the handler then says what to write. */
  hand(): void {
    if (this.#handed || this.voiding) return
    this.#handed = true
    this.#resolveOutcome({
      kind: "claimed",
      write: (decide) => {
        if (this.#settled) return Promise.resolve(this.#settled)
        return new Promise((resolve) => {
          this.#resolveWritten = resolve
          this.#decide = decide
          this.#onReady?.()
        })
      },
      abandon: () => {
        if (this.#decide !== null || this.#settled) return
        this.#abandoned = true
        this.#onReady?.()
      },
    })
  }

  /** Calls back once, when the handler has decided or given up. */
  whenReady(callback: () => void): void {
    this.#onReady = () => {
      this.#onReady = null
      callback()
    }
  }

  /** Waits outside for something that is held, `ms` from its arrival at most; then `callback`, unless `endWait` came first. */
  wait(ms: number, callback: () => void): void {
    this.endWait()
    this.#waitTimer = setTimeout(callback, Math.max(0, ms - this.ageMs()))
  }

  endWait(): void {
    if (this.#waitTimer) clearTimeout(this.#waitTimer)
    this.#waitTimer = null
  }

  settle(settled: Settled): void {
    if (this.#settled) return
    this.#settled = settled
    clearTimeout(this.#deadline)
    if (this.#handed) this.#resolveWritten?.(settled)
    else this.#resolveOutcome(settled)
  }

  /** Why it ends without the database's word. */
  lateRefusal(): Settled {
    const unknown = this.inGroup || this.commitUnheard
    return refused(
      new Problem(
        "unavailable",
        unknown
          ? "The database did not confirm in time. The request may have been recorded: the same key makes the retry safe."
          : "The database could not be reached in time. Nothing was recorded.",
        { outcome: unknown ? "unknown" : "not_applied" },
      ),
    )
  }
}
