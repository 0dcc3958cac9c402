/**
 * Who waits for a lane: first come first served within a portal, round-robin between portals, so that one noisy portal does not starve the others.
 * Those of batches and brokers stand apart and take at most half of a group while single requests wait.
 * Bounded by the gate, which refuses at the door; a queue itself never drops anyone.
 */
import type { Member } from "./member.js"

export class Queue<Facts, Rows> {
  readonly #singles = new Line<Facts, Rows>()
  readonly #bulk = new Line<Facts, Rows>()
  #bulkTurn = false

  get size(): number {
    return this.#singles.size + this.#bulk.size
  }

  push(member: Member<Facts, Rows>): void {
    const line = member.ask.bulk ? this.#bulk : this.#singles
    line.push(member)
  }

  /**
   * Takes the next group, in order of arrival. Settled members (past their deadline) are dropped on the way and handed to `drop`.
   * A member larger than `bytesMax` still goes, alone.
   */
  take(membersMax: number, bytesMax: number, drop: (member: Member<Facts, Rows>) => void): Member<Facts, Rows>[] {
    if (this.#bulk.size === 0) return this.#singles.take(membersMax, bytesMax, drop)
    if (this.#singles.size === 0) return this.#bulk.take(membersMax, bytesMax, drop)
    if (membersMax === 1) {
      // No half to give: by turns.
      this.#bulkTurn = !this.#bulkTurn
      return (this.#bulkTurn ? this.#bulk : this.#singles).take(1, bytesMax, drop)
    }
    const bulk = this.#bulk.take(Math.floor(membersMax / 2), bytesMax / 2, drop)
    const singles = this.#singles.take(membersMax - bulk.length, bytesMax / 2, drop)
    return [...bulk, ...singles].sort((a, b) => a.arrival - b.arrival)
  }
}

/** One kind of those who wait. */
class Line<Facts, Rows> {
  readonly #byPortal = new Map<string, Member<Facts, Rows>[]>()
  #size = 0

  get size(): number {
    return this.#size
  }

  push(member: Member<Facts, Rows>): void {
    const line = this.#byPortal.get(member.ask.portalId)
    if (line) line.push(member)
    else this.#byPortal.set(member.ask.portalId, [member])
    this.#size += 1
  }

  take(membersMax: number, bytesMax: number, drop: (member: Member<Facts, Rows>) => void): Member<Facts, Rows>[] {
    const taken: Member<Facts, Rows>[] = []
    let bytes = 0
    if (this.#size > membersMax && this.#byPortal.size > 1) {
      // One from each portal in turn; a portal that was served goes to the end.
      const cursor = new Map<string, number>()
      for (let more = true; more && taken.length < membersMax; ) {
        more = false
        for (const [portal, line] of this.#byPortal) {
          const at = cursor.get(portal) ?? 0
          const member = line[at]
          if (!member || taken.length >= membersMax || (taken.length > 0 && bytes + member.bytes > bytesMax)) continue
          cursor.set(portal, at + 1)
          more = true
          if (member.settled) drop(member)
          else {
            taken.push(member)
            bytes += member.bytes
          }
        }
      }
      for (const [portal, served] of cursor) this.#remove(portal, served)
    } else {
      for (const [portal, line] of this.#byPortal) {
        let served = 0
        for (const member of line) {
          if (taken.length >= membersMax || (taken.length > 0 && bytes + member.bytes > bytesMax)) break
          served += 1
          if (member.settled) drop(member)
          else {
            taken.push(member)
            bytes += member.bytes
          }
        }
        if (served > 0) this.#remove(portal, served)
      }
    }
    return taken.sort((a, b) => a.arrival - b.arrival)
  }

  #remove(portal: string, served: number): void {
    const line = this.#byPortal.get(portal)
    if (!line) return
    this.#size -= served
    this.#byPortal.delete(portal)
    const rest = line.slice(served)
    if (rest.length > 0) this.#byPortal.set(portal, rest)
  }
}
