/**
 * Keys seen recorded lately by this process: a hint that saves a retry the way through a group, where it would claim in vain. Never an answer:
 * what it says is always looked up in Postgres. Two generations, so that forgetting costs nothing; holds at most `max` keys.
 */
export class RecentKeys {
  readonly #half: number
  #young = new Set<string>()
  #old = new Set<string>()

  constructor(max: number) {
    this.#half = Math.ceil(max / 2)
  }

  has(key: string): boolean {
    return this.#young.has(key) || this.#old.has(key)
  }

  add(key: string): void {
    if (this.has(key)) return
    if (this.#young.size >= this.#half) {
      this.#old = this.#young
      this.#young = new Set()
    }
    this.#young.add(key)
  }
}
