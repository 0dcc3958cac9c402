/**
 * All SQL on `accounts` and `balance_events`, as sets: what a group reads after its locks, what it writes, and the balance of one account. Both tables
 * are only added to. Events of one account are written under its lock, so that `arrival` is the order of commits; their balances travel as text.
 */
import { and, desc, eq, sql } from "drizzle-orm"
import type { Db, Tx } from "../db/client.js"
import { utc } from "../db/reading.js"
import { accounts, balanceEvents } from "../db/tables/money.js"
import { Outdated } from "../gate/operation.js"
import type { AccountFacts, BalanceEvent, BalanceLine } from "./balance.js"
import { withoutTrailingZeros } from "./disbursement-reads.js"

/** Reads without locking; an account that nobody has told of is absent. */
export function readAccounts(tx: Tx, wanted: readonly Omit<AccountFacts, "currency">[]): Promise<AccountFacts[]> {
  return tx
    .select({ portalId: accounts.portal_id, accountKey: accounts.account_key, currency: accounts.currency })
    .from(accounts)
    .where(
      sql`(${accounts.portal_id}, ${accounts.account_key}) IN (SELECT w."portalId", w."accountKey" FROM json_to_recordset(
        ${JSON.stringify(wanted)}::text::json) AS w("portalId" uuid, "accountKey" text))`,
    )
    .prepare("read_accounts")
    .execute()
}

/** Opens accounts in the order of their keys. Rejects with Outdated when another transaction opened one meanwhile. */
export async function openAccounts(tx: Tx, opened: readonly AccountFacts[], now: string): Promise<void> {
  const made = await tx
    .insert(accounts)
    .select(
      sql`SELECT a."portalId", a."accountKey", a.currency, ${now}::text::timestamptz
          FROM json_to_recordset(${JSON.stringify(opened)}::text::json) AS a("portalId" uuid, "accountKey" text, currency text)
          ORDER BY a."portalId", a."accountKey"`,
    )
    .onConflictDoNothing()
    .returning({ accountKey: accounts.account_key })
    .prepare("open_accounts")
    .execute()
  if (made.length < opened.length) throw new Outdated("an account was opened since it was read")
}

/** Writes balance events: one INSERT, `arrival` drawn in the order in which they were decided. */
export function writeBalances(tx: Tx, lines: readonly BalanceLine[]): Promise<unknown> {
  const rows = lines.map(({ id, portalId, event, recordedAt }, at) => ({
    at,
    id,
    portal_id: portalId,
    recorded_at: recordedAt,
    ...event,
  }))
  return tx
    .insert(balanceEvents)
    .select(
      sql`SELECT b.portal_id, b.source, b.source_event_id, b.id, b.account_key, nextval('balance_events_arrival_seq'), b.currency, b.balance,
            b.source_event_time, b.recorded_at
          FROM json_to_recordset(${JSON.stringify(rows)}::text::json) AS b(at int, portal_id uuid, source text, source_event_id text, id uuid,
            account_key text, currency text, balance numeric, source_event_time timestamptz, recorded_at timestamptz)
          ORDER BY b.at`,
    )
    .prepare("write_balances")
    .execute()
}

/** The account's latest event by `source_event_time`, of those at one instant the last that arrived; null when there is none. */
export async function readBalance(db: Db, portalId: string, accountKey: string): Promise<BalanceEvent | null> {
  const b = balanceEvents
  const [row] = await db
    .select({
      account_key: b.account_key,
      currency: b.currency,
      balance: b.balance,
      source: b.source,
      source_event_id: b.source_event_id,
      source_event_time: utc(b.source_event_time),
    })
    .from(b)
    .where(and(eq(b.portal_id, portalId), eq(b.account_key, accountKey)))
    .orderBy(desc(b.source_event_time), desc(b.arrival))
    .limit(1)
  return row ? { ...row, source_event_time: withoutTrailingZeros(row.source_event_time) } : null
}
