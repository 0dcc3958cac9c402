/**
 * One lane: one connection that commits groups one after another. Requests that arrive while a group runs form the next one; an idle lane commits a
 * group of one. Here lies what is done when a group fails: run it again, lock its awards first, take a new connection, or halve it until the bad
 * member stands alone. After anything but a clean ROLLBACK the connection is thrown away: a callback that outlives its transaction must never
 * write into the next one.
 */
import { setTimeout as delay } from "node:timers/promises"
import { type Connection, type ConnectOptions, connect, type Db, errorCode, isUnavailable } from "../db/client.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { type Attempt, AttemptOver, type GroupContext, runGroup, type Verdict } from "./group.js"
import { refused } from "./judge.js"
import type { Member } from "./member.js"
import { Outdated } from "./operation.js"
import { Queue } from "./queue.js"

export interface LaneOptions<Facts, Rows> extends GroupContext<Facts, Rows> {
  readonly url: string
  readonly preparedStatements: boolean
  readonly groupMembersMax: number
  /** Its award was found held since it was queued: in a group it would be waited for. */
  isHeld(member: Member<Facts, Rows>): boolean
  /** The final word on a member of a group that has ended. */
  end(member: Member<Facts, Rows>, verdict: Verdict): void
  /** The group's transaction failed and is run again, for this reason. */
  onRetry(reason: string): void
  onGroup(members: number): void
  /** The connection was lost or given up. */
  onLost(): void
}

/** What a failed attempt calls for. */
type Remedy = "careful" | "again" | "reconnect" | "halve"

export class Lane<Facts, Rows> {
  readonly #queue = new Queue<Facts, Rows>()
  readonly #options: LaneOptions<Facts, Rows>
  #connection: Connection | null = null
  #attempt: Attempt | null = null
  #running = false
  #failures = 0

  constructor(options: LaneOptions<Facts, Rows>) {
    this.#options = options
  }

  get waiting(): number {
    return this.#queue.size
  }

  /** Queues a member; a lane that is idle starts once this turn's arrivals are in. */
  push(member: Member<Facts, Rows>): void {
    this.#queue.push(member)
    if (this.#running) return
    this.#running = true
    setImmediate(() => void this.#run())
  }

  async discard(): Promise<void> {
    const connection = this.#connection
    this.#connection = null
    await connection?.discard()
  }

  async #run(): Promise<void> {
    const { groupMembersMax, end, isHeld } = this.#options
    for (;;) {
      const taken = this.#queue.take(groupMembersMax, limits.groupBytesMax, (member) =>
        end(member, member.lateRefusal()),
      )
      const members = taken.filter((member) => {
        const held = isHeld(member)
        if (held) end(member, { kind: "award-held" })
        return !held
      })
      if (members.length > 0)
        await this.#commit(
          members,
          members.some((member) => member.careful),
        )
      else if (this.#queue.size === 0) break
    }
    this.#running = false
  }

  /** Brings every member to a verdict. */
  async #commit(members: readonly Member<Facts, Rows>[], carefulAtFirst: boolean): Promise<void> {
    let careful = carefulAtFirst
    let group = members
    for (let tries = 0; ; tries++) {
      group = this.#alive(group)
      if (group.length === 0) return
      const failure = await this.#attemptGroup(group, careful)
      if (failure === null) return
      const remedy = remedyFor(failure.error, careful)
      this.#options.onRetry(remedy)
      if (remedy === "careful") careful = true
      else if (remedy === "again" && tries < limits.groupRetriesMax) await delay(Math.random() * 10 * (tries + 1))
      else if (remedy === "reconnect")
        await delay(Math.random() * Math.min(limits.reconnectMsMax, 20 * 2 ** Math.min(this.#failures, 8)))
      else if (group.length > 1) return this.#halve(this.#alive(group), careful)
      else return this.#endAlone(group, failure.error)
    }
  }

  async #halve(group: readonly Member<Facts, Rows>[], careful: boolean): Promise<void> {
    const middle = Math.ceil(group.length / 2)
    await this.#commit(group.slice(0, middle), careful)
    await this.#commit(group.slice(middle), careful)
  }

  /** A member that fails by itself: its award is held by what cannot be skipped, the database is too busy for it, or the fault is its own. */
  #endAlone(group: readonly Member<Facts, Rows>[], error: unknown): void {
    const code = errorCode(error) ?? ""
    for (const member of group) {
      if (error instanceof Outdated || code === "55P03") this.#options.end(member, { kind: "award-held" })
      else if (/^(?:40001|40P01|53200|57014)$/.test(code)) this.#options.end(member, member.lateRefusal())
      else this.#options.end(member, { kind: "failed", error })
    }
  }

  /** Drops the settled; their identities are free again only now that no transaction can hold them. */
  #alive(group: readonly Member<Facts, Rows>[]): Member<Facts, Rows>[] {
    return group.filter((member) => {
      if (member.settled) this.#options.end(member, member.lateRefusal())
      return !member.settled
    })
  }

  /** @returns null when the group ended, with its members' verdicts given; else why it failed */
  async #attemptGroup(group: readonly Member<Facts, Rows>[], careful: boolean): Promise<{ error: unknown } | null> {
    const attempt: Attempt = { over: false, committing: false }
    this.#attempt = attempt
    for (const member of group) member.inGroup = true
    let timer: NodeJS.Timeout | undefined
    try {
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => {
          attempt.over = true
          reject(new AttemptOver(`no end within ${limits.groupAttemptMs} ms`))
        }, limits.groupAttemptMs)
      })
      const verdicts = await Promise.race([runGroup(this.#db(), group, careful, attempt, this.#options), late])
      this.#failures = 0
      this.#options.onGroup(group.length)
      this.#leave(group)
      for (const member of group) this.#options.end(member, verdicts.get(member) ?? { kind: "again" })
      return null
    } catch (error) {
      const clean = !attempt.over && isCleanRollback(error)
      attempt.over = true
      if (!clean) {
        this.#failures += 1
        for (const member of group) if (attempt.committing) member.commitUnheard = true
        this.#options.onLost()
        void this.discard()
      }
      this.#leave(group)
      return { error }
    } finally {
      clearTimeout(timer)
    }
  }

  #leave(group: readonly Member<Facts, Rows>[]): void {
    for (const member of group) member.inGroup = false
  }

  #db(): Db {
    if (!this.#connection) {
      const options: ConnectOptions = {
        max: 1,
        preparedStatements: this.#options.preparedStatements,
        // Synchronously, before the callback of a lost transaction can send its next statement to whatever comes after.
        onClose: () => {
          this.#options.onLost()
          if (this.#connection === connection && this.#attempt) this.#attempt.over = true
        },
      }
      const connection = connect(this.#options.url, options)
      this.#connection = connection
    }
    return this.#connection.db
  }
}

/** A server's ERROR that left the session usable and was followed by ROLLBACK: nothing committed, nothing lingers. */
function isCleanRollback(error: unknown): boolean {
  if (error instanceof Outdated) return true
  const code = errorCode(error)
  return code !== null && /^[0-9A-Z]{5}$/.test(code) && !/^(08|57P0|25P0|25006|53)/.test(code)
}

function remedyFor(error: unknown, careful: boolean): Remedy {
  if (error instanceof Outdated) return careful ? "again" : "careful"
  if (error instanceof AttemptOver) return "reconnect"
  const code = errorCode(error)
  if (code === "55P03") return careful ? "halve" : "careful"
  if (code === "40001" || code === "40P01") return "again"
  // Out of lock table, or a statement too long for its time: a smaller group may pass.
  if (code === "53200" || code === "57014") return "halve"
  // Beyond these, an error is the fault of some member.
  return isUnavailable(error) ? "reconnect" : "halve"
}

/** For a member whose handler or rows failed: nothing of it was recorded. */
export function failedRefusal(): ReturnType<typeof refused> {
  return refused(
    new Problem("internal", "The service failed while it decided this request. Nothing was recorded.", {
      outcome: "not_applied",
    }),
  )
}
