/**
 * The ledger's part in a group: the facts of one transaction, kept up to date in memory while members are decided in turn, then written as sets.
 * Order of the writing: totals first (where facts may turn out outdated), then lines, then events, so that the outbox's order is the award's.
 */
import type { Tx } from "../db/client.js"
import { type Ask, type Book, type Ledger, type OpenOptions, Outdated } from "../gate/operation.js"
import { type OutboxEvent, writeEvents } from "../outbox/outbox.js"
import {
  type AwardAddition,
  type AwardFacts,
  addToAwards,
  lockAwards,
  openedAward,
  openingLock,
  readAwards,
} from "./award.js"
import { type Facts, type Line, writeLines } from "./disbursement.js"

/** What an accepted request writes. */
export interface Rows {
  readonly disbursements: readonly Line[]
  readonly outbox: readonly OutboxEvent[]
}

/** @param rule `registered`: only registered awards may be drawn on */
export function createLedger(rule: "open" | "registered"): Ledger<Facts, Rows> {
  return {
    async open(tx, asks, how) {
      const keys = [...new Set(asks.flatMap((ask) => ask.awardKey ?? []))].sort()
      const { known, heldKeys } = await readFacts(tx, keys, how)
      const held = new Set(asks.filter((ask) => ask.awardKey !== null && heldKeys.has(ask.awardKey)))
      return openBook(known, held, how.now, rule === "registered")
    },
  }
}

/** Reads the awards; who opens a new one has it to itself, and awards held elsewhere are named instead of waited for. */
async function readFacts(
  tx: Tx,
  keys: readonly string[],
  how: OpenOptions,
): Promise<{ known: AwardFacts[]; heldKeys: Set<string> }> {
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

function openBook(
  known: readonly AwardFacts[],
  held: ReadonlySet<Ask>,
  now: string,
  registeredOnly: boolean,
): Book<Facts, Rows> {
  const awards = new Map(known.map((award) => [award.awardKey, award]))
  const additions = new Map<string, AwardAddition>()
  const lines: Line[] = []
  const events: OutboxEvent[] = []
  return {
    held,
    facts: (ask) => ({ now, award: (ask.awardKey === null ? null : awards.get(ask.awardKey)) ?? null, registeredOnly }),
    enter(_ask, rows) {
      for (const line of rows.disbursements) {
        const { award_key: awardKey, award_id: awardId, currency, amount_cents } = line.submission
        const award = awards.get(awardKey) ?? openedAward(awardKey, currency)
        awards.set(awardKey, { ...award, disbursedCents: award.disbursedCents + amount_cents })
        const before = additions.get(awardKey)
        additions.set(awardKey, {
          awardKey,
          awardId: before?.awardId ?? awardId,
          currency,
          rulesVersion: award.rulesVersion,
          disbursedCents: (before?.disbursedCents ?? 0) + amount_cents,
          returnedCents: before?.returnedCents ?? 0,
        })
        lines.push(line)
      }
      events.push(...rows.outbox)
    },
    write: (tx) => [addAll(tx, additions, known, now), writeLines(tx, lines), ...writeEvents(tx, events, now)],
  }
}

async function addAll(
  tx: Tx,
  additions: ReadonlyMap<string, AwardAddition>,
  known: readonly AwardFacts[],
  now: string,
): Promise<void> {
  // With a ceiling, what was decided holds only for the totals that were read.
  const decidedOn = known
    .filter((award) => award.obligatedCents !== null && additions.has(award.awardKey))
    .map(({ awardKey, disbursedCents, returnedCents }) => ({ awardKey, disbursedCents, returnedCents }))
  if ((await addToAwards(tx, [...additions.values()], decidedOn, now)) < additions.size)
    throw new Outdated("an award has changed since it was read")
}
