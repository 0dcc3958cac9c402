/**
 * The awards' part in a group: what is known of them, found without waiting for anyone, and what the group's lines add to their totals. The totals are
 * kept up to date in memory as lines are entered, and written by one statement at the end.
 */
import type { Tx } from "../db/client.js"
import { type OpenOptions, Outdated } from "../gate/operation.js"
import {
  type AwardAddition,
  type AwardFacts,
  addToAwards,
  lockAwards,
  openedAward,
  openingLock,
  readAwards,
} from "./award.js"
import type { AnyLine } from "./line.js"

/** What was found of a group's awards. */
export interface FoundAwards {
  readonly known: readonly AwardFacts[]
  /** Those that another transaction holds. */
  readonly heldKeys: ReadonlySet<string>
}

/** Reads the awards; who opens a new one has it to itself, and awards held elsewhere are named instead of waited for. */
export async function findAwards(tx: Tx, keys: readonly string[], how: OpenOptions): Promise<FoundAwards> {
  if (keys.length === 0) return { known: [], heldKeys: new Set() }
  const known = await (how.careful ? lockAwards(tx, keys) : readAwards(tx, keys))
  const heldKeys = new Set<string>()
  if (known.length === keys.length) return { known, heldKeys }

  const seen = new Set(known.map((award) => award.awardKey))
  const missing = keys.filter((key) => !seen.has(key))
  const [got, late] = await Promise.all([how.tryLocks(missing.map(openingLock)), readAwards(tx, missing)])
  const lateKeys = new Set(late.map((award) => award.awardKey))
  missing.forEach((key, i) => {
    // Careful: it has a row that could not be locked. Otherwise: another transaction is opening it.
    if (lateKeys.has(key) ? how.careful : !got[i]) heldKeys.add(key)
  })
  return { known: [...known, ...late], heldKeys }
}

/** The totals of a group's awards while its members are decided. */
export interface Totals {
  award(awardKey: string): AwardFacts | null
  add(line: AnyLine): void
  /** Adds to the awards' rows. Rejects with Outdated when the facts no longer hold. */
  write(tx: Tx, now: string): Promise<void>
}

export function openTotals(known: readonly AwardFacts[]): Totals {
  const awards = new Map(known.map((award) => [award.awardKey, award]))
  const additions = new Map<string, AwardAddition>()
  return {
    award: (awardKey) => awards.get(awardKey) ?? null,
    add(line) {
      const { awardKey, awardId, currency, disbursedCents, returnedCents } = changeOf(line)
      const award = awards.get(awardKey) ?? openedAward(awardKey, currency)
      awards.set(awardKey, {
        ...award,
        disbursedCents: award.disbursedCents + disbursedCents,
        returnedCents: award.returnedCents + returnedCents,
      })
      const before = additions.get(awardKey)
      additions.set(awardKey, {
        awardKey,
        awardId: before?.awardId ?? awardId,
        currency,
        rulesVersion: award.rulesVersion,
        disbursedCents: (before?.disbursedCents ?? 0) + disbursedCents,
        returnedCents: (before?.returnedCents ?? 0) + returnedCents,
      })
    },
    async write(tx, now) {
      // With a ceiling, what was decided holds only for the totals that were read.
      const decidedOn = known
        .filter((award) => award.obligatedCents !== null && additions.has(award.awardKey))
        .map(({ awardKey, disbursedCents, returnedCents }) => ({ awardKey, disbursedCents, returnedCents }))
      if ((await addToAwards(tx, [...additions.values()], decidedOn, now)) < additions.size)
        throw new Outdated("an award has changed since it was read")
    },
  }
}

/** What a line does to its award's totals. */
type Change = Omit<AwardAddition, "rulesVersion">

function changeOf(line: AnyLine): Change {
  if (line.kind === "disbursement") {
    const { award_key, award_id, currency, amount_cents } = line.submission
    return { awardKey: award_key, awardId: award_id, currency, disbursedCents: amount_cents, returnedCents: 0 }
  }
  const { awardKey, members } = line.original
  const { award_id, currency } = members
  return { awardKey, awardId: award_id, currency, disbursedCents: 0, returnedCents: line.returnedCents }
}
