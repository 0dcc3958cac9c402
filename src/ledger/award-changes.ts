/**
 * Changing awards' rules: each change locks the award, is decided on what is recorded, and is written with its version in the history and the
 * operator's action, in one transaction. It waits for an award that is held, a bounded time, and holds nothing that a group of submissions waits for:
 * groups try, and never wait long. Submissions decided under the old rules and not yet written find the version changed, and are decided again.
 */
import { sql } from "drizzle-orm"
import { errorCode, isUnavailable, type Reads, type Tx } from "../db/client.js"
import { utc } from "../db/reading.js"
import { awardRules, awards } from "../db/tables/money.js"
import { type Actor, recordActions } from "../evidence/operator-actions.js"
import { newId } from "../ids.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { openingLock, portalNames } from "./award.js"
import { type AwardRow, type AwardRules, decideRules, type RulesPatch, rulesOf, wholeRules } from "./award-rules.js"
import { awardKey } from "./submission.js"

/** What an operator asks for. */
export interface RulesRequest {
  readonly awardId: string
  readonly sent: RulesPatch
  /** All rules are given, and an award that is not there is registered; else only those sent change, and it must be there. */
  readonly whole: boolean
  readonly reason: string | null
}

export const settings = { isolationLevel: "read committed", accessMode: "read write" } as const

/** A change that was decided on. */
export interface Change {
  readonly awardKey: string
  readonly awardId: string
  readonly before: AwardRow | null
  readonly after: AwardRules
}

/** An award's row, as it is read. */
export const awardRow = {
  award_key: awards.award_key,
  award_id: awards.award_id,
  currency: awards.currency,
  obligated_cents: awards.obligated_cents,
  status: awards.status,
  period_start: awards.period_start,
  period_end: awards.period_end,
  time_zone: awards.time_zone,
  liquidation_days: awards.liquidation_days,
  retention_years: awards.retention_years,
  final_report_submitted_on: awards.final_report_submitted_on,
  portals: portalNames,
  rules_version: awards.rules_version,
  disbursed_cents: awards.disbursed_cents,
  returned_cents: awards.returned_cents,
  opened_at: utc(awards.opened_at),
}

/**
 * Changes one award's rules, or finds them as asked. Repeatable.
 * @returns the award as it is now, and whether it had no row before
 * @throws Problem `award-not-found`, a refusal of the rules, `award-busy` after `heldMs`, or `unavailable`, which says whether it may have been changed
 */
export async function changeRules(
  changes: Pick<Reads, "run">,
  request: RulesRequest,
  actor: Actor,
): Promise<{ award: AwardRow; isNew: boolean }> {
  const untilMs = performance.now() + limits.heldMs
  let committing = false
  const change = async (tx: Tx) => {
    const result = await changeOne(tx, request, actor, untilMs)
    committing = true
    return result
  }
  try {
    return await changes.run((db) => db.transaction(change, settings), limits.rulesChangeMs)
  } catch (error) {
    // A statement that was cut off was waiting: lock_timeout counts anew for each lock, and a row that others wait for takes two.
    if (errorCode(error) === "55P03" || errorCode(error) === "57014") {
      throw new Problem("award-busy", "The award is held by another request. Nothing was changed.")
    }
    if (committing && isUnavailable(error)) {
      const detail =
        "The database did not confirm in time. The rules may have been changed; the same request again is safe."
      throw new Problem("unavailable", detail, { outcome: "unknown" })
    }
    throw error
  }
}

async function changeOne(
  tx: Tx,
  request: RulesRequest,
  actor: Actor,
  untilMs: number,
): Promise<{ award: AwardRow; isNew: boolean }> {
  await limitTransaction(tx, untilMs)
  const key = awardKey(request.awardId)
  let [before = null] = await lockRows(tx, [key])
  if (before === null && request.whole) {
    // As whoever opens it by a submission, so that one of the two comes after the other.
    await limitTransaction(tx, untilMs)
    await tx.execute(sql`SELECT pg_advisory_xact_lock(hashtextextended(${openingLock(key)}, 0))`)
    await limitTransaction(tx, untilMs)
    ;[before = null] = await lockRows(tx, [key])
  }
  if (before === null && !request.whole) {
    throw new Problem("award-not-found", "There is no award with this id. Nothing was changed.")
  }
  const after = decideRules(before, request.whole ? wholeRules(request.sent) : request.sent)
  if (after instanceof Problem) throw after
  if (after === null) return { award: before as AwardRow, isNew: false }
  // In one go: from here on submissions to the award wait.
  await Promise.all([
    limitTransaction(tx, untilMs, limits.rulesChangeMs),
    writeChanges(tx, [{ awardKey: key, awardId: request.awardId, before, after }], request.reason, actor),
  ])
  if (before !== null) return { award: { ...before, ...after, rules_version: before.rules_version + 1 }, isNew: false }
  const [award] = await lockRows(tx, [key])
  if (!award) throw new Error("an award that was written is there")
  return { award, isNew: true }
}

/**
 * Limits of one transaction of changes: no lock is waited for after `untilMs`.
 * @param statementMs longest that a statement takes; absent: it ends by `untilMs`, too
 */
export async function limitTransaction(tx: Tx, untilMs: number, statementMs?: number): Promise<void> {
  const waitMs = Math.max(1, Math.ceil(untilMs - performance.now()))
  await tx.execute(
    sql.raw(
      `SET LOCAL lock_timeout = ${waitMs}; SET LOCAL statement_timeout = ${statementMs ?? waitMs}; SET LOCAL idle_in_transaction_session_timeout = ${limits.idleInTransactionMs}`,
    ),
  )
}

/** Locks the awards in the order of award_key, and reads them; those that are not there are absent. */
export function lockRows(tx: Tx, awardKeys: readonly string[]): Promise<AwardRow[]> {
  return tx
    .select(awardRow)
    .from(awards)
    .where(sql`${awards.award_key} IN (SELECT json_array_elements_text(${JSON.stringify(awardKeys)}::text::json))`)
    .orderBy(awards.award_key)
    .for("no key update")
}

/**
 * Writes rules, history and actions of awards that are locked, or are new: three sets.
 * @throws Error when a new award is there after all
 */
export function writeChanges(
  tx: Tx,
  changes: readonly Change[],
  reason: string | null,
  actor: Actor,
): Promise<unknown> {
  const rows = changes.map(({ awardKey, awardId, before, after }) => ({
    action_id: newId(),
    award_key: awardKey,
    award_id: awardId,
    is_new: before === null,
    version: (before?.rules_version ?? 0) + 1,
    before: before === null ? null : rulesOf(before),
    rules: after,
    ...after,
  }))
  const text = JSON.stringify(rows)
  const recordset = sql`json_to_recordset(${text}::text::json) AS r(action_id uuid, award_key text, award_id text, is_new boolean, version int,
    rules jsonb, currency text, obligated_cents bigint, status text, period_start date, period_end date, time_zone text, liquidation_days int,
    retention_years int, final_report_submitted_on date, portals text[])`
  const updated = tx
    .update(awards)
    .set({
      currency: sql`r.currency`,
      rules_version: sql`r.version`,
      obligated_cents: sql`r.obligated_cents`,
      status: sql`r.status`,
      period_start: sql`r.period_start`,
      period_end: sql`r.period_end`,
      time_zone: sql`r.time_zone`,
      liquidation_days: sql`r.liquidation_days`,
      retention_years: sql`r.retention_years`,
      final_report_submitted_on: sql`r.final_report_submitted_on`,
      portals: sql`r.portals`,
    })
    .from(recordset)
    .where(sql`NOT r.is_new AND ${awards.award_key} = r.award_key`)
  const added = tx.insert(awards).select(
    sql`SELECT r.award_key, r.award_id, r.currency, r.version, 0, 0, clock_timestamp(), r.obligated_cents, r.status, r.period_start, r.period_end,
          r.time_zone, r.liquidation_days, r.retention_years, r.final_report_submitted_on, r.portals
        FROM ${recordset} WHERE r.is_new ORDER BY r.award_key`,
  )
  const recorded = recordActions(
    tx,
    actor,
    rows.map((row) => ({
      id: row.action_id,
      action: "award.rules" as const,
      subject: row.award_key,
      before: row.before,
      after: row.rules,
      reason,
    })),
  )
  const kept = tx
    .insert(awardRules)
    .select(sql`SELECT r.award_key, r.version, r.rules, r.action_id, clock_timestamp() FROM ${recordset}`)
  return Promise.all([updated, added, recorded, kept])
}
