/**
 * The ledger's part in a group: the facts of one transaction, kept up to date in memory while members are decided in turn, then written as sets.
 * Order of the writing: totals first (where facts may turn out outdated), then lines, then events, so that the outbox's order is the award's.
 * A statement that would write no row is not sent.
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
import type { Facts } from "./disbursement.js"
import { type AnyLine, writeLines } from "./line.js"
import { type Original, readOriginals } from "./original.js"
import { afterReturn } from "./return.js"

/** What a request of any kind is decided on. */
export interface AllFacts extends Facts {
  /** The line that it returns or reverses; null when it undoes none, or there is no such line. */
  readonly original: Original | null
}

/** What an accepted request writes. */
export interface Rows {
  readonly disbursements: readonly AnyLine[]
  readonly outbox: readonly OutboxEvent[]
}

/** @param rule `registered`: only registered awards may be drawn on */
export function createLedger(rule: "open" | "registered"): Ledger<AllFacts, Rows> {
  return {
    async open(tx, asks, how) {
      const keys = [...new Set(asks.flatMap((ask) => ask.awardKey ?? []))].sort()
      const ids = asks.flatMap((ask) => ask.undoes ?? [])
      const [{ known, heldKeys }, originals] = await Promise.all([
        readFacts(tx, keys, how),
        ids.length === 0 ? [] : readOriginals(tx, ids),
      ])
      const held = new Set(asks.filter((ask) => ask.awardKey !== null && heldKeys.has(ask.awardKey)))
      return openBook(known, originals, held, how.now, rule === "registered")
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
  read: readonly Original[],
  held: ReadonlySet<Ask>,
  now: string,
  registeredOnly: boolean,
): Book<AllFacts, Rows> {
  const awards = new Map(known.map((award) => [award.awardKey, award]))
  const originals = new Map(read.map((original) => [original.id, original]))
  const additions = new Map<string, AwardAddition>()
  const lines: AnyLine[] = []
  const events: OutboxEvent[] = []

  function add({ awardKey, awardId, currency, disbursedCents, returnedCents }: Change): void {
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
  }

  return {
    held,
    facts: (ask) => ({
      now,
      award: (ask.awardKey === null ? null : awards.get(ask.awardKey)) ?? null,
      registeredOnly,
      original: (ask.undoes === null ? null : originals.get(ask.undoes)) ?? null,
    }),
    enter(_ask, rows) {
      for (const line of rows.disbursements) {
        add(changeOf(line))
        if (line.kind !== "disbursement") originals.set(line.original.id, afterReturn(line))
        lines.push(line)
      }
      for (const event of rows.outbox) events.push(event)
    },
    write: (tx) => [addAll(tx, additions, known, now), writeLines(tx, lines), ...writeEvents(tx, events, now)],
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
