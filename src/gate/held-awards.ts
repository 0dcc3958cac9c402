/**
 * Awards that another transaction holds, and the members that wait for them outside the lanes, so that one held award never stalls strangers.
 * Of each such award one member at a time goes into a group to try (locking its award first, skipping if it is still held, so that nothing waits);
 * when one gets through, all go. Who has waited `heldMs` since its arrival is refused as `award-busy`.
 */
import { limits } from "../limits.js"
import type { Member } from "./member.js"

interface HeldAward<Facts, Rows> {
  waiters: Member<Facts, Rows>[]
  /** The one that is trying now. */
  probe: Member<Facts, Rows> | null
  tries: number
  /** When the next one tries; or, where nobody waits, when the award is forgotten. */
  timer: NodeJS.Timeout | null
  forgetting: boolean
}

export class HeldAwards<Facts, Rows> {
  readonly #awards = new Map<string, HeldAward<Facts, Rows>>()
  readonly #enterLane: (member: Member<Facts, Rows>) => void
  readonly #busy: (member: Member<Facts, Rows>) => void

  /**
   * @param enterLane sends a member into its lane
   * @param busy ends a member that has waited long enough
   */
  constructor(enterLane: (member: Member<Facts, Rows>) => void, busy: (member: Member<Facts, Rows>) => void) {
    this.#enterLane = enterLane
    this.#busy = busy
  }

  has(awardKey: string | null): boolean {
    return awardKey !== null && this.#awards.has(awardKey)
  }

  /** A new member waits with the others if its award is known as held. @returns false when it is not */
  join(member: Member<Facts, Rows>): boolean {
    const award = this.#of(member)
    if (!award) return false
    this.#wait(award, member)
    return true
  }

  /** A member's group found its award held. */
  hold(member: Member<Facts, Rows>): void {
    const key = member.ask.awardKey
    if (key === null) throw new Error("only a member with an award can find it held")
    let award = this.#awards.get(key)
    if (!award) {
      award = { waiters: [], probe: null, tries: 0, timer: null, forgetting: false }
      this.#awards.set(key, award)
    }
    if (award.probe === member) {
      award.probe = null
      award.tries += 1
    }
    this.#wait(award, member)
  }

  /** A member has ended, or left its group for another reason than its award. @param through it got hold of the award */
  ended(member: Member<Facts, Rows>, through: boolean): void {
    const award = this.#of(member)
    if (award?.probe !== member) return
    award.probe = null
    if (through) this.#release(member.ask.awardKey as string, award)
    else this.#schedule(award, 0)
  }

  #of(member: Member<Facts, Rows>): HeldAward<Facts, Rows> | undefined {
    return member.ask.awardKey === null ? undefined : this.#awards.get(member.ask.awardKey)
  }

  #wait(award: HeldAward<Facts, Rows>, member: Member<Facts, Rows>): void {
    award.waiters.push(member)
    member.wait(limits.heldMs, () => {
      award.waiters.splice(award.waiters.indexOf(member), 1)
      this.#busy(member)
    })
    // The first after a pause tries at once; its group, careful from the start, waits for nothing.
    const ms = award.forgetting ? 0 : Math.min(limits.heldRetryMsMin * 2 ** award.tries, limits.heldRetryMsMax)
    this.#schedule(award, ms)
  }

  #schedule(award: HeldAward<Facts, Rows>, ms: number): void {
    if (award.probe || (award.timer && !award.forgetting)) return
    if (award.timer) clearTimeout(award.timer)
    award.forgetting = false
    award.timer = setTimeout(() => {
      award.timer = null
      const probe = award.waiters.shift()
      if (!probe) {
        this.#remember(award)
        return
      }
      award.probe = probe
      probe.endWait()
      probe.careful = true
      this.#enterLane(probe)
    }, ms)
  }

  /** Nobody waits any more. A new one that did not know would stall its lane for `lockMs`, so the award is remembered a while. */
  #remember(award: HeldAward<Facts, Rows>): void {
    award.forgetting = true
    award.tries = 0
    award.timer = setTimeout(() => this.#forget(award), limits.heldMemoryMs)
    award.timer.unref()
  }

  #release(awardKey: string, award: HeldAward<Facts, Rows>): void {
    this.#awards.delete(awardKey)
    if (award.timer) clearTimeout(award.timer)
    for (const member of award.waiters) {
      member.endWait()
      this.#enterLane(member)
    }
    award.waiters = []
  }

  #forget(award: HeldAward<Facts, Rows>): void {
    for (const [key, held] of this.#awards) if (held === award) this.#awards.delete(key)
  }
}
