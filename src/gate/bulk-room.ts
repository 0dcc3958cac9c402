/**
 * How much of the gate those may fill that come in bulk: lines of batches, messages of a broker. Together they keep the lanes busy and no more, so
 * that however many batches run, the door stays open for single requests; and they wait here for their turn instead of being refused there.
 * First come first served: a source that asks for one place at a time gets as many as each other.
 */
import { limits } from "../limits.js"

export class BulkRoom {
  readonly #membersMax: number
  readonly #waiting: (() => void)[] = []
  #members = 0
  #bytes = 0

  /** Places for two groups a lane, the one that runs and the one that forms meanwhile; half of the gate at most. */
  constructor(lanes: number, groupMembersMax: number) {
    this.#membersMax = Math.min(2 * lanes * groupMembersMax, limits.queueMembersMax / 2)
  }

  /** Takes a place; leave it with the same number of bytes. @returns null when it was free, else what resolves when it is taken */
  enter(bytes: number): Promise<void> | null {
    if (this.#waiting.length === 0 && this.#fits(bytes)) {
      this.#take(bytes)
      return null
    }
    return new Promise((resolve) => {
      this.#waiting.push(() => {
        if (!this.#fits(bytes)) return
        this.#waiting.shift()
        this.#take(bytes)
        resolve()
      })
    })
  }

  leave(bytes: number): void {
    this.#members -= 1
    this.#bytes -= bytes
    // Each that fits takes itself off; the first that does not keeps those behind it waiting.
    for (let before = -1; before !== this.#waiting.length; ) {
      before = this.#waiting.length
      this.#waiting[0]?.()
    }
  }

  #fits(bytes: number): boolean {
    if (this.#members === 0) return true
    return this.#members < this.#membersMax && this.#bytes + bytes <= limits.bulkBytesMax
  }

  #take(bytes: number): void {
    this.#members += 1
    this.#bytes += bytes
  }
}
