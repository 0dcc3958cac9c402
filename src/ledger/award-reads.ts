/**
 * Reading awards: one, pages of them in the order of award_key, and how an award's rules came to be. Nothing is locked. A portal sees the awards that
 * name it and those it has drawn on, found by index; the number of lines does not matter.
 */
import { and, asc, eq, gt, or, type SQL, sql } from "drizzle-orm"
import type { Db } from "../db/client.js"
import { utc } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { operatorActions } from "../db/tables/evidence.js"
import { awardRules, awards, disbursements } from "../db/tables/money.js"
import { actorName } from "../evidence/operator-actions.js"
import { awardRow } from "./award-changes.js"
import { type AwardRow, type AwardRules, rulesOf } from "./award-rules.js"

/** An award as it is shown. */
export interface AwardView extends AwardRules {
  readonly award_id: string
  /** 0: opened by a submission, never registered. */
  readonly rules_version: number
  /** Gross. */
  readonly disbursed_cents: number
  readonly returned_cents: number
  /** Gross less what came back. */
  readonly net_cents: number
  /** Obligated less net; null without a ceiling. */
  readonly available_cents: number | null
  readonly opened_at: string
}

/** One version of an award's rules. */
export interface RulesVersion {
  readonly rules_version: number
  readonly changed_at: string
  /** Who; null: the command line. */
  readonly changed_by: string | null
  readonly reason: string | null
  readonly request_id: string | null
  /** null: there was no such award. */
  readonly before: unknown
  readonly after: unknown
}

/** A portal that may see only its own awards; null: all. */
export type AwardScope = { readonly portalId: string; readonly portal: string } | null

export function viewAward(row: AwardRow): AwardView {
  const net = row.disbursed_cents - row.returned_cents
  return {
    award_id: row.award_id,
    ...rulesOf(row),
    rules_version: row.rules_version,
    disbursed_cents: row.disbursed_cents,
    returned_cents: row.returned_cents,
    net_cents: net,
    available_cents: row.obligated_cents === null ? null : row.obligated_cents - net,
    opened_at: row.opened_at,
  }
}

/** One award; null when there is none, or it is not for this portal to see. */
export async function readAward(db: Db, awardKey: string, scope: AwardScope): Promise<AwardView | null> {
  const [row] = await db
    .select(awardRow)
    .from(awards)
    .where(
      and(
        eq(awards.award_key, awardKey),
        scope === null ? undefined : or(names(scope.portal), hasDrawn(scope.portalId)),
      ),
    )
  return row ? viewAward(row) : null
}

/** At most `limit` awards after the key `after`. */
export async function listAwards(
  db: Db,
  scope: AwardScope,
  after: string | null,
  limit: number,
): Promise<(AwardView & { readonly award_key: string })[]> {
  const from = after ?? ""
  const rows = await db
    .select(awardRow)
    .from(awards)
    .where(
      and(
        gt(awards.award_key, from),
        scope === null ? undefined : sql`${awards.award_key} = ANY(ARRAY(${keysOf(scope, from, limit)}))`,
      ),
    )
    .orderBy(asc(awards.award_key))
    .limit(limit)
  return rows.map((row) => ({ ...viewAward(row), award_key: row.award_key }))
}

/** At most `limit` versions after `after`, oldest first; an award that was never registered has none. */
export async function readHistory(db: Db, awardKey: string, after: number, limit: number): Promise<RulesVersion[]> {
  return db
    .select({
      rules_version: awardRules.rules_version,
      changed_at: utc(awardRules.recorded_at),
      changed_by: actorName,
      reason: operatorActions.reason,
      request_id: operatorActions.request_id,
      before: operatorActions.before,
      after: awardRules.rules,
    })
    .from(awardRules)
    .innerJoin(operatorActions, eq(operatorActions.id, awardRules.action_id))
    .leftJoin(portals, eq(portals.id, operatorActions.portal_id))
    .where(and(eq(awardRules.award_key, awardKey), gt(awardRules.rules_version, after)))
    .orderBy(asc(awardRules.rules_version))
    .limit(limit)
}

function names(portal: string): SQL {
  return sql`${awards.portals} @> ARRAY[${portal}::text]`
}

function hasDrawn(portalId: string): SQL {
  return sql`EXISTS (SELECT 1 FROM ${disbursements} d WHERE coalesce(d.owner_id, d.portal_id) = ${portalId}::uuid AND d.award_key = ${awards.award_key})`
}

/**
 * The first keys after `from` of the awards that a portal may see. What it has drawn on is read from its index by leaps, one probe an award, so that
 * an award with a million of its lines costs no more than one with a single line; the counter ends it, whatever the planner believes. The keys are an
 * array when the awards are read: joined, they could be met by walking all awards.
 */
function keysOf({ portalId, portal }: NonNullable<AwardScope>, from: string, limit: number): SQL {
  const next = (after: SQL): SQL => sql`(SELECT d.award_key FROM ${disbursements} d
    WHERE coalesce(d.owner_id, d.portal_id) = ${portalId}::uuid AND d.award_key > ${after} ORDER BY d.award_key LIMIT 1)`
  return sql`
    WITH RECURSIVE drawn(award_key, n) AS (
      SELECT ${next(sql`${from}::text`)}, 1
      UNION ALL
      SELECT ${next(sql`drawn.award_key`)}, drawn.n + 1 FROM drawn WHERE drawn.award_key IS NOT NULL AND drawn.n < ${limit}::int
    )
    SELECT award_key FROM drawn WHERE award_key IS NOT NULL
    UNION
    (SELECT a.award_key FROM ${awards} a WHERE a.portals @> ARRAY[${portal}::text] AND a.award_key > ${from} ORDER BY a.award_key LIMIT ${limit}::int)`
}
