/**
 * All SQL on `awards`: the totals that an award's submissions share. Totals are added to late, at the end of a group, in the order of award_key,
 * so that an award's row is locked only for the last statements of a transaction; awards are locked first only where they were found held.
 */
import { sql } from "drizzle-orm"
import type { Tx } from "../db/client.js"
import { awards } from "../db/tables/money.js"
import { limits } from "../limits.js"

/** What is decided on, as of the group's transaction and with what its members have added so far. */
export interface AwardFacts {
  readonly awardKey: string
  readonly currency: string
  readonly rulesVersion: number
  readonly disbursedCents: number
  readonly returnedCents: number
}

const facts = {
  awardKey: awards.award_key,
  currency: awards.currency,
  rulesVersion: awards.rules_version,
  disbursedCents: awards.disbursed_cents,
  returnedCents: awards.returned_cents,
}

/** Reads without locking; an award nobody has opened is absent. */
export function readAwards(tx: Tx, awardKeys: readonly string[]): Promise<AwardFacts[]> {
  return tx
    .select(facts)
    .from(awards)
    .where(sql`${awards.award_key} = ANY(${sql.param(awardKeys)}::text[])`)
    .prepare("read_awards")
    .execute()
}

/** Locks the awards in the order of award_key, skipping those that another transaction holds, and reads what it got. */
export function lockAwards(tx: Tx, awardKeys: readonly string[]): Promise<AwardFacts[]> {
  return tx
    .select(facts)
    .from(awards)
    .where(sql`${awards.award_key} = ANY(${sql.param(awardKeys)}::text[])`)
    .orderBy(awards.award_key)
    .for("no key update", { skipLocked: true })
    .prepare("lock_awards")
    .execute()
}

export interface AwardAddition {
  readonly awardKey: string
  readonly awardId: string
  readonly currency: string
  readonly rulesVersion: number
  readonly disbursedCents: number
  readonly returnedCents: number
}

const grossAdded = sql.raw("(excluded.disbursed_cents - excluded.returned_cents)")

/**
 * Adds to the totals and opens the awards that are new, one row lock each, in the order of award_key; waits for a lock `lockMs` at most.
 * The row that would be inserted must itself keep the CHECKs, returned within gross, before Postgres looks whether it exists: so `excluded` has
 * the returns on top of its gross. That stays within 2^53 - 1, since nothing is returned that was not disbursed; only known awards have returns.
 * An award whose currency or rules are no longer those decided under, or whose gross would pass 2^53 - 1, is left as it is.
 * @returns how many awards were added to: fewer than asked means that the facts are outdated
 */
export async function addToAwards(tx: Tx, additions: readonly AwardAddition[], now: string): Promise<number> {
  const added = await tx
    .insert(awards)
    .select(
      sql`SELECT a."awardKey", a."awardId", a.currency, a."rulesVersion", a."disbursedCents" + a."returnedCents", a."returnedCents",
            ${now}::text::timestamptz, NULL::bigint, 'active', NULL::date, NULL::date, 'UTC', 0, 3, NULL::date, NULL::text[]
          FROM json_to_recordset(${JSON.stringify(additions)}::text::json) AS a("awardKey" text, "awardId" text, currency text,
            "rulesVersion" int, "disbursedCents" bigint, "returnedCents" bigint)
          ORDER BY a."awardKey"`,
    )
    .onConflictDoUpdate({
      target: awards.award_key,
      set: {
        disbursed_cents: sql`${awards.disbursed_cents} + ${grossAdded}`,
        returned_cents: sql`${awards.returned_cents} + excluded.returned_cents`,
      },
      setWhere: sql`${awards.currency} = excluded.currency AND ${awards.rules_version} = excluded.rules_version
        AND ${awards.disbursed_cents} <= ${sql.raw(String(limits.amountCentsMax))} - ${grossAdded}`,
    })
    .returning({ awardKey: awards.award_key })
    .prepare("add_to_awards")
    .execute()
  return added.length
}
