/**
 * An award on the write path: the facts that a group decides on, and the totals that its submissions share. Totals are added to late, at the end of
 * a group, in the order of award_key, so that an award's row is locked only for the last statements of a transaction; awards are locked first only
 * where they were found held, or changed meanwhile. Whatever was decided on is named again when it is written: see `addToAwards`.
 */
import { sql } from "drizzle-orm"
import type { Tx } from "../db/client.js"
import { rowsOf, statement } from "../db/statement.js"
import { awards } from "../db/tables/money.js"
import { limits } from "../limits.js"

/** What is decided on, as of the group's transaction and with what its members have added so far. */
export interface AwardFacts {
  readonly awardKey: string
  readonly currency: string
  readonly rulesVersion: number
  readonly disbursedCents: number
  readonly returnedCents: number
  /** The ceiling of the net; null: none is enforced. */
  readonly obligatedCents: number | null
  readonly status: "active" | "suspended" | "closed"
  /** YYYY-MM-DD in `timeZone`; null: open on that side. */
  readonly periodStart: string | null
  readonly periodEnd: string | null
  /** IANA name. */
  readonly timeZone: string
  readonly liquidationDays: number
  /** Names of those that may draw on it; null: any. */
  readonly portals: readonly string[] | null
}

/** The facts of an award that its first submission opens: no rules but its currency. */
export function openedAward(awardKey: string, currency: string): AwardFacts {
  return {
    awardKey,
    currency,
    rulesVersion: 0,
    disbursedCents: 0,
    returnedCents: 0,
    obligatedCents: null,
    status: "active",
    periodStart: null,
    periodEnd: null,
    timeZone: "UTC",
    liquidationDays: 0,
    portals: null,
  }
}

/** The lock under which an award is opened or registered, while it has no row to lock. */
export const openingLock = (awardKey: string): string => `a:${awardKey}`

/** As JSON: the connections read no arrays. */
export const portalNames = sql<string[] | null>`array_to_json(${awards.portals})::text`.mapWith(
  (text: string): string[] => JSON.parse(text),
)

const facts = {
  awardKey: awards.award_key,
  currency: awards.currency,
  rulesVersion: awards.rules_version,
  disbursedCents: awards.disbursed_cents,
  returnedCents: awards.returned_cents,
  obligatedCents: awards.obligated_cents,
  status: awards.status,
  periodStart: awards.period_start,
  periodEnd: awards.period_end,
  timeZone: awards.time_zone,
  liquidationDays: awards.liquidation_days,
  portals: portalNames,
}

/** True of the awards whose keys are given, by the index on them. */
const wanted = sql`${awards.award_key} = ANY(${sql.placeholder("keys")}::text[])`

const readAwardsStatement = statement("read_awards", (db) => db.select(facts).from(awards).where(wanted))

/** Reads without locking; an award nobody has opened is absent. */
export function readAwards(tx: Tx, awardKeys: readonly string[]): Promise<AwardFacts[]> {
  return readAwardsStatement(tx, { keys: awardKeys })
}

const lockAwardsStatement = statement("lock_awards", (db) =>
  db.select(facts).from(awards).where(wanted).orderBy(awards.award_key).for("no key update", { skipLocked: true }),
)

/** Locks the awards in the order of award_key, skipping those that another transaction holds, and reads what it got. */
export function lockAwards(tx: Tx, awardKeys: readonly string[]): Promise<AwardFacts[]> {
  return lockAwardsStatement(tx, { keys: awardKeys })
}

export interface AwardAddition {
  readonly awardKey: string
  readonly awardId: string
  readonly currency: string
  readonly rulesVersion: number
  readonly disbursedCents: number
  readonly returnedCents: number
}

/** The totals of an award with a ceiling as they were read, before this group added to them. */
interface DecidedOn {
  readonly awardKey: string
  readonly disbursedCents: number
  readonly returnedCents: number
}

const grossAdded = sql.raw("(excluded.disbursed_cents - excluded.returned_cents)")

const addToAwardsStatement = statement("add_to_awards", (db) =>
  db
    .insert(awards)
    .select(
      sql`SELECT a."awardKey", a."awardId", a.currency, a."rulesVersion", a."disbursedCents" + a."returnedCents", a."returnedCents",
            ${sql.placeholder("now")}::text::timestamptz, NULL::bigint, 'active', NULL::date, NULL::date, 'UTC', 0, 3, NULL::date, NULL::text[]
          FROM json_to_recordset(${rowsOf("additions")}) AS a("awardKey" text, "awardId" text, currency text,
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
        AND ${awards.disbursed_cents} <= ${sql.raw(String(limits.amountCentsMax))} - ${grossAdded}
        AND (${awards.obligated_cents} IS NULL OR (${awards.award_key}, ${awards.disbursed_cents}, ${awards.returned_cents}) IN (
          SELECT d."awardKey", d."disbursedCents", d."returnedCents" FROM json_to_recordset(${rowsOf("decidedOn")})
            AS d("awardKey" text, "disbursedCents" bigint, "returnedCents" bigint)))`,
    })
    .returning({ awardKey: awards.award_key }),
)

/**
 * Adds to the totals and opens the awards that are new, one row lock each, in the order of award_key; waits for a lock `lockMs` at most.
 * The row that would be inserted must itself keep the CHECKs, returned within gross, before Postgres looks whether it exists: so `excluded` has
 * the returns on top of its gross. That stays within 2^53 - 1, since nothing is returned that was not disbursed; only known awards have returns.
 *
 * An award is left as it is when its currency or rules are no longer those decided under, when its gross would pass 2^53 - 1, or when it has a ceiling
 * and its totals are no longer those decided on: so neither the ceiling nor an answer's `available_cents` is ever wrong. `IN` is a hashed subplan,
 * read once a statement, and only where a ceiling is set.
 * @param decidedOn one for each of `additions` whose award has a ceiling
 * @returns how many awards were added to: fewer than asked means that the facts are outdated
 */
export async function addToAwards(
  tx: Tx,
  additions: readonly AwardAddition[],
  decidedOn: readonly DecidedOn[],
  now: string,
): Promise<number> {
  const added = await addToAwardsStatement(tx, {
    additions: JSON.stringify(additions),
    decidedOn: JSON.stringify(decidedOn),
    now,
  })
  return added.length
}
