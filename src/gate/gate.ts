/**
 * The gate: every request that may move money comes through here, whatever way it came in. It keeps twins of one process apart (one flight a key),
 * answers what is recorded already outside the lanes, deals the rest out to the lanes, and lets those wait outside whose key or award is held
 * elsewhere. It knows neither HTTP nor money. Nothing it keeps in memory is needed for safety: that is the unique indexes' work.
 */
import type { Reads } from "../db/client.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { type Claimant, type Found, isLocked, keyLock, readClaims } from "./claim.js"
import type { Held, Stage, Verdict } from "./group.js"
import { HeldAwards } from "./held-awards.js"
import { type Conflict, conflictRefusal, judge, refused } from "./judge.js"
import { failedRefusal, Lane } from "./lane.js"
import { Member } from "./member.js"
import type { Ask, Claimed, Ledger, Settled } from "./operation.js"
import { RecentAnswers } from "./recent-answers.js"

export interface GateOptions<Facts, Rows> {
  readonly url: string
  readonly reads: Reads
  readonly preparedStatements: boolean
  readonly lanes: number
  readonly groupMembersMax: number
  readonly ledger: Ledger<Facts, Rows>
  /** Records a refused reuse; the refusal is answered when it has. */
  recordConflict(conflict: Conflict): Promise<void>
  /** A handler or its rows failed: for the log. Carries no values. */
  onFailure?(error: unknown): void
  onRetry?(reason: string): void
  onGroup?(members: number): void
  readonly onStage?: (stage: Stage) => void | Promise<void>
}

export class Gate<Facts, Rows> {
  readonly #options: GateOptions<Facts, Rows>
  readonly #lanes: Lane<Facts, Rows>[]
  readonly #heldAwards: HeldAwards<Facts, Rows>
  readonly #recent = new RecentAnswers(limits.recentKeysMax)
  /** Who is under way, by identity, and who waits for that to end. */
  readonly #flying = new Map<string, { member: Member<Facts, Rows>; waiters: Member<Facts, Rows>[] }>()
  /** Waiting for the next look-up. */
  #asked: Member<Facts, Rows>[] = []
  #looking = 0
  #members = 0
  #bytes = 0
  #stopping = false
  #onIdle: (() => void) | null = null

  constructor(options: GateOptions<Facts, Rows>) {
    this.#options = options
    this.#heldAwards = new HeldAwards(
      (member) => this.#enterLane(member),
      (member) => this.#settle(member, heldRefusal("award")),
    )
    this.#lanes = Array.from(
      { length: options.lanes },
      () =>
        new Lane<Facts, Rows>({
          url: options.url,
          preparedStatements: options.preparedStatements,
          groupMembersMax: options.groupMembersMax,
          ledger: options.ledger,
          onStage: options.onStage,
          isHeld: (member) => !member.careful && this.#heldAwards.has(member.ask.awardKey),
          early: (member, verdict) => this.#settleEarly(member, verdict),
          end: (member, verdict) => this.#end(member, verdict),
          onRetry: (reason) => options.onRetry?.(reason),
          onGroup: (members) => options.onGroup?.(members),
          onLost: () => this.#recent.clear(),
        }),
    )
  }

  /** Requests inside, those that wait included. */
  get members(): number {
    return this.#members
  }

  /**
   * Claims the key. Resolves to `claimed` inside an open transaction, whose handler then calls `write`; or to how the request ended: replayed,
   * or refused (conflict, in progress, voided, duplicate, busy, unavailable, overloaded). Never rejects, and settles within `memberMs`.
   */
  claim(ask: Ask): Promise<Claimed<Facts, Rows> | Settled> {
    return this.#admit(ask, false)
  }

  /** Makes it final that the key is not used: `voided` (again, too), or refused because it is used already or was purged. */
  async void(ask: Ask): Promise<Settled> {
    const settled = await this.#admit(ask, true)
    if (settled.kind === "claimed") throw new Error("a void is decided by the gate itself")
    return settled
  }

  /** True while a request with this key runs, in this process or another. */
  async inProgress(portalId: string, key: string): Promise<boolean> {
    const lock = keyLock({ portalId, key })
    return this.#flying.has(lock) || this.#options.reads.run((db) => isLocked(db, lock))
  }

  /** Refuses new requests, waits until those inside have ended, closes the connections. */
  async stop(): Promise<void> {
    this.#stopping = true
    if (this.#members > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve
      })
    }
    await Promise.all(this.#lanes.map((lane) => lane.discard()))
  }

  #admit(ask: Ask, voiding: boolean): Promise<Claimed<Facts, Rows> | Settled> {
    const full = this.#members >= limits.queueMembersMax || this.#bytes + ask.requestText.length > limits.queueBytesMax
    if (full || this.#stopping) {
      const why = this.#stopping ? "The service is stopping." : "Too many requests are waiting."
      return Promise.resolve(refused(new Problem("overloaded", `${why} Nothing was recorded.`)))
    }
    const known = voiding ? null : this.#recent.answerTo(keyLock(ask), ask)
    if (known) return Promise.resolve({ kind: "replayed", answer: known.answer, resourceId: known.resourceId })
    const member = new Member<Facts, Rows>(ask, voiding)
    this.#members += 1
    this.#bytes += member.bytes
    // A hint: what was recorded lately is looked up at once, instead of being claimed in vain.
    if (this.#recent.has(member.keyIdentity) || this.#heldAwards.has(ask.awardKey)) this.#lookUp(member)
    else this.#board(member)
    return member.outcome
  }

  /** Into a lane; or behind a twin that is under way; or to those who wait for the same held award. */
  #board(member: Member<Facts, Rows>): void {
    if (member.settled) {
      this.#leave(member)
      return
    }
    for (const identity of member.identities) {
      const flight = this.#flying.get(identity)
      if (!flight) continue
      flight.waiters.push(member)
      member.wait(limits.heldMs, () => {
        flight.waiters.splice(flight.waiters.indexOf(member), 1)
        this.#settle(member, heldRefusal(identity === member.keyIdentity ? "key" : "submission_id"))
      })
      return
    }
    for (const identity of member.identities) this.#flying.set(identity, { member, waiters: [] })
    member.flying = true
    if (!this.#heldAwards.join(member)) this.#enterLane(member)
  }

  #enterLane(member: Member<Facts, Rows>): void {
    const lane = this.#lanes[laneOf(member.ask, this.#lanes.length)]
    if (!lane) throw new Error("a lane for each member")
    lane.push(member)
  }

  /** Reads what is recorded, outside the lanes, for all who ask at this time; who finds nothing goes on. */
  #lookUp(member: Member<Facts, Rows>): void {
    this.#asked.push(member)
    if (this.#looking < limits.lookUpsMax) {
      this.#looking += 1
      setImmediate(() => void this.#runLookUps())
    }
  }

  async #runLookUps(): Promise<void> {
    while (this.#asked.length > 0) {
      const members = this.#asked.splice(0, limits.groupMembersMax)
      let found: Awaited<ReturnType<typeof readClaims>>
      try {
        found = await this.#options.reads.run((db) =>
          readClaims(
            db,
            members.map((member) => member.ask),
          ),
        )
      } catch {
        // The lane finds out the same, and knows what to do about it.
        found = members.map(() => null)
      }
      members.forEach((member, i) => {
        const row = found[i]
        if (row) this.#end(member, judgeSafely(member, row))
        else this.#board(member)
      })
    }
    this.#looking -= 1
  }

  /** A group's word on one member, before the group has ended: answered now, gone when the group has. */
  #settleEarly(member: Member<Facts, Rows>, verdict: Verdict): void {
    if (isSettled(verdict)) member.settle(verdict)
  }

  /** The word on a member whose group, or look-up, has ended. */
  #end(member: Member<Facts, Rows>, verdict: Verdict): void {
    if (member.settled) {
      this.#heldAwards.ended(member, false)
      this.#leave(member)
    } else if (verdict.kind === "award-held") this.#heldAwards.hold(member)
    else {
      this.#heldAwards.ended(member, verdict.kind === "recorded" || verdict.kind === "refused")
      if (verdict.kind === "held") this.#comeAgain(member, verdict.what)
      else if (verdict.kind === "again") this.#comeAgain(member, "key")
      else if (verdict.kind === "conflict") void this.#refuseConflict(member, verdict)
      else if (verdict.kind === "failed") {
        this.#options.onFailure?.(verdict.error)
        this.#settle(member, failedRefusal())
      } else this.#settle(member, verdict)
    }
  }

  /** Waits outside, longer each time, until `heldMs` after its arrival. */
  #comeAgain(member: Member<Facts, Rows>, what: Held): void {
    const ms = Math.min(limits.heldRetryMsMin * 2 ** member.heldTries++, limits.heldRetryMsMax)
    setTimeout(
      () => {
        if (member.ageMs() >= limits.heldMs) this.#settle(member, heldRefusal(what))
        else this.#enterLane(member)
      },
      Math.min(ms, Math.max(0, limits.heldMs - member.ageMs())),
    )
  }

  async #refuseConflict(member: Member<Facts, Rows>, conflict: Conflict): Promise<void> {
    try {
      await this.#options.recordConflict(conflict)
      this.#settle(member, conflictRefusal(conflict))
    } catch (error) {
      this.#options.onFailure?.(error)
      this.#settle(
        member,
        refused(
          new Problem(
            "unavailable",
            "The key was used for another request, and that could not be recorded for investigation. This request was not recorded.",
          ),
        ),
      )
    }
  }

  #settle(member: Member<Facts, Rows>, settled: Settled): void {
    member.settle(settled)
    this.#leave(member)
  }

  /** Out of the gate; whoever waited behind it goes on: to look for what it recorded, or in its place. */
  #leave(member: Member<Facts, Rows>): void {
    this.#members -= 1
    this.#bytes -= member.bytes
    member.endWait()
    if (member.tookEffect) this.#recent.add(member.keyIdentity, member.remembered())
    if (member.flying) {
      for (const identity of member.identities) {
        const flight = this.#flying.get(identity)
        this.#flying.delete(identity)
        for (const waiter of flight?.waiters ?? []) {
          waiter.endWait()
          if (member.tookEffect) this.#lookUp(waiter)
          else this.#board(waiter)
        }
      }
    }
    if (this.#members === 0) this.#onIdle?.()
  }
}

/** A record that contradicts itself fails the one who asked for it, not those looked up with it. */
function judgeSafely(member: Claimant, found: Found): Verdict {
  try {
    return judge(member, found)
  } catch (error) {
    return { kind: "failed", error }
  }
}

function isSettled(verdict: Verdict): verdict is Settled {
  return (
    verdict.kind === "recorded" ||
    verdict.kind === "replayed" ||
    verdict.kind === "voided" ||
    verdict.kind === "refused"
  )
}

/** Members of one award, or one account, share a lane, so that none waits for another of its own process. */
function laneOf(ask: Ask, lanes: number): number {
  if (lanes === 1) return 0
  const text = ask.awardKey ?? ask.account ?? ask.key
  let hash = 0
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0
  return Math.abs(hash) % lanes
}

function heldRefusal(what: Held | "award"): Settled {
  return refused(
    what === "key"
      ? new Problem(
          "request-in-progress",
          "A request with this key is still running. What it records will be the answer to this one too.",
        )
      : new Problem("award-busy", `The ${what} is held by another request. Nothing was recorded.`),
  )
}
