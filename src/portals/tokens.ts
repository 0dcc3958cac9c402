/**
 * Whose token it is, remembered for a moment so that a busy portal does not ask the database at each request. Only hashes are kept.
 * A revocation in this process counts at once; one in another process within `tokenCacheMs`. Unknown tokens are not remembered:
 * a new token works from the moment it exists.
 */
import { hash, timingSafeEqual } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import { isUnavailable, type Reads } from "../db/client.js"
import { bootstrapPortal } from "../db/reading.js"
import { limits } from "../limits.js"
import { type Caller, findByToken, hashToken, looksLikeToken } from "./portals.js"

export class Tokens {
  readonly #reads: Pick<Reads, "run">
  readonly #bootstrapSha256: Buffer | null
  readonly #known = new Map<string, { caller: Caller; untilMs: number }>()
  /** One look-up a token at a time, however many requests wait for it. */
  readonly #asking = new Map<string, Promise<Caller | null>>()
  /** Counts revocations: a look-up that began before one is not remembered after it. */
  #generation = 0

  constructor(reads: Pick<Reads, "run">, bootstrapToken: string | null) {
    this.#reads = reads
    this.#bootstrapSha256 = bootstrapToken === null ? null : hashToken(bootstrapToken)
  }

  /**
   * Who the token belongs to; null when to nobody. At once where that is known.
   * @throws (by rejecting) what the database throws when it cannot be asked
   */
  find(token: string): Caller | null | Promise<Caller | null> {
    const name = hash("sha256", token, "base64")
    const known = this.#known.get(name)
    if (known && known.untilMs > performance.now()) return known.caller
    const sha256 = Buffer.from(name, "base64")
    if (this.#bootstrapSha256 && timingSafeEqual(sha256, this.#bootstrapSha256)) {
      return { portalId: bootstrapPortal.id, portal: bootstrapPortal.name, role: "operator", keyRequired: false }
    }
    if (!looksLikeToken(token)) return null
    return this.#asking.get(name) ?? this.#ask(name, sha256)
  }

  /** Forgets all: a token was revoked. */
  clear(): void {
    this.#generation += 1
    this.#known.clear()
    this.#asking.clear()
  }

  #ask(name: string, sha256: Buffer): Promise<Caller | null> {
    const generation = this.#generation
    const asked = this.#look(sha256)
      .then((caller) => {
        if (caller && generation === this.#generation) this.#remember(name, caller)
        return caller
      })
      .finally(() => {
        if (this.#asking.get(name) === asked) this.#asking.delete(name)
      })
    this.#asking.set(name, asked)
    return asked
  }

  /** A database that refuses is asked again for a moment: it may be restarting. One that is silent has used up the time. */
  async #look(sha256: Buffer): Promise<Caller | null> {
    const untilMs = performance.now() + limits.readMs
    for (;;) {
      try {
        return await this.#reads.run((db) => findByToken(db, sha256), untilMs - performance.now())
      } catch (error) {
        if (!isUnavailable(error) || performance.now() + limits.readRetryMs >= untilMs) throw error
        await delay(limits.readRetryMs)
      }
    }
  }

  #remember(name: string, caller: Caller): void {
    // The oldest goes first: a Map keeps the order of insertion.
    this.#known.delete(name)
    if (this.#known.size >= limits.tokenCacheEntriesMax) {
      const oldest = this.#known.keys().next()
      if (!oldest.done) this.#known.delete(oldest.value)
    }
    this.#known.set(name, { caller, untilMs: performance.now() + limits.tokenCacheMs })
  }
}
