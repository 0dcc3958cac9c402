/**
 * The ledger's part in a group: the facts of one transaction, kept up to date in memory while members are decided in turn, then written as sets.
 * Order of the writing: totals first (where facts may turn out outdated), then lines and balances, then events, so that the outbox's order is that of
 * the award, or account. A statement that would read or write no row is not sent.
 */
import type { Ask, Book, Ledger } from "../gate/operation.js"
import { type OutboxEvent, writeEvents } from "../outbox/outbox.js"
import { openAccounts, readAccounts, writeBalances } from "./account.js"
import type { AccountFacts, BalanceLine } from "./balance.js"
import type { Facts } from "./disbursement.js"
import { type AnyLine, writeLines } from "./line.js"
import { type Original, readOriginals } from "./original.js"
import { afterReturn } from "./return.js"
import { findAwards, openTotals, type Totals } from "./totals.js"

/** What a request of any kind is decided on. */
export interface AllFacts extends Facts {
  /** The line that it returns or reverses; null when it undoes none, or there is no such line. */
  readonly original: Original | null
  /** The account whose balance it tells; null when it tells none, or nobody has told of the account yet. */
  readonly account: AccountFacts | null
}

/** What an accepted request writes. */
export interface Rows {
  readonly disbursements: readonly AnyLine[]
  /** Absent: none. */
  readonly balances?: readonly BalanceLine[]
  readonly outbox: readonly OutboxEvent[]
}

/** @param rule `registered`: only registered awards may be drawn on */
export function createLedger(rule: "open" | "registered"): Ledger<AllFacts, Rows> {
  return {
    async open(tx, asks, how) {
      const keys = [...new Set(asks.flatMap((ask) => ask.awardKey ?? []))].sort()
      const ids = asks.flatMap((ask) => ask.undoes ?? [])
      const told = asks.flatMap(({ portalId, account }) =>
        account === null ? [] : [{ portalId, accountKey: account }],
      )
      const [{ known, heldKeys }, originals, accounts] = await Promise.all([
        findAwards(tx, keys, how),
        ids.length === 0 ? [] : readOriginals(tx, ids),
        told.length === 0 ? [] : readAccounts(tx, told),
      ])
      const held = new Set(asks.filter((ask) => ask.awardKey !== null && heldKeys.has(ask.awardKey)))
      return openBook({ totals: openTotals(known), originals, accounts, now: how.now, rule }, held)
    },
  }
}

/** What a group has read. */
interface Read {
  readonly totals: Totals
  readonly originals: readonly Original[]
  readonly accounts: readonly AccountFacts[]
  readonly now: string
  readonly rule: "open" | "registered"
}

function openBook({ totals, now, rule, ...read }: Read, held: ReadonlySet<Ask>): Book<AllFacts, Rows> {
  const registeredOnly = rule === "registered"
  const originals = new Map(read.originals.map((original) => [original.id, original]))
  const accounts = new Map(read.accounts.map((account) => [accountName(account.portalId, account.accountKey), account]))
  const opened: AccountFacts[] = []
  const lines: AnyLine[] = []
  const balances: BalanceLine[] = []
  const events: OutboxEvent[] = []
  return {
    held,
    facts: ({ portalId, awardKey, undoes, account }) => ({
      now,
      award: awardKey === null ? null : totals.award(awardKey),
      registeredOnly,
      original: (undoes === null ? null : originals.get(undoes)) ?? null,
      account: (account === null ? null : accounts.get(accountName(portalId, account))) ?? null,
    }),
    enter(_ask, rows) {
      for (const line of rows.disbursements) {
        totals.add(line)
        if (line.kind !== "disbursement") originals.set(line.original.id, afterReturn(line))
        lines.push(line)
      }
      for (const line of rows.balances ?? []) {
        const { account_key: accountKey, currency } = line.event
        const account = { portalId: line.portalId, accountKey, currency }
        const name = accountName(line.portalId, accountKey)
        if (!accounts.has(name)) opened.push(account)
        accounts.set(name, account)
        balances.push(line)
      }
      for (const event of rows.outbox) events.push(event)
    },
    write: (tx) => [
      ...(lines.length === 0 ? [] : [totals.write(tx, now), writeLines(tx, lines)]),
      ...(opened.length === 0 ? [] : [openAccounts(tx, opened, now)]),
      ...(balances.length === 0 ? [] : [writeBalances(tx, balances)]),
      ...writeEvents(tx, events, now),
    ],
  }
}

/** Accounts are per portal. */
function accountName(portalId: string, accountKey: string): string {
  return `${portalId}/${accountKey}`
}
