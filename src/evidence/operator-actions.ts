/**
 * What operators did, kept for those who ask later: all SQL on `operator_actions`. An action is written in the transaction of what it records, so that
 * neither stands without the other; its time is taken after whatever that transaction waited for. No token, and no hash of one, comes in here.
 */
import { and, asc, eq, type SQL, sql } from "drizzle-orm"
import type { Db, Tx } from "../db/client.js"
import type { Place } from "../db/page.js"
import { portalName, utc } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { operatorActions } from "../db/tables/evidence.js"

/** Who acts. */
export interface Actor {
  /** Whose token; null: the command line, which has the database itself. */
  readonly portalId: string | null
  readonly requestId: string | null
}

/** The command line. */
export const commandLine: Actor = { portalId: null, requestId: null }

/** What was done. */
export interface Action {
  /** uuid v7. */
  readonly id: string
  readonly action:
    | "award.rules"
    | "portal.create"
    | "token.add"
    | "token.revoke"
    | "destination.add"
    | "destination.pause"
    | "destination.resume"
    | "destination.remove"
    | "event.redrive"
    | "event.skip"
  /** To what: an award's key, a portal's id, a destination's name, an event's id. */
  readonly subject: string
  readonly before: object | null
  readonly after: object | null
  readonly reason: string | null
}

/** An action as it is shown. */
export interface ActionItem {
  readonly id: string
  readonly action: string
  readonly subject: string
  /** Who did it; null: the command line. */
  readonly portal: string | null
  readonly before: unknown
  readonly after: unknown
  readonly reason: string | null
  readonly request_id: string | null
  /** RFC 3339 UTC with six digits. */
  readonly occurred_at: string
}

/** Writes actions as a set. */
export async function recordActions(tx: Tx, actor: Actor, actions: readonly Action[]): Promise<void> {
  await tx.insert(operatorActions).select(
    sql`SELECT a.id, ${actor.portalId}::text::uuid, a.action, a.subject, a.before, a.after, a.reason, ${actor.requestId}::text, clock_timestamp()
        FROM json_to_recordset(${JSON.stringify(actions)}::text::json)
          AS a(id uuid, action text, subject text, before jsonb, after jsonb, reason text)`,
  )
}

/** Who did it, where `portals` is left-joined by the action's portal id. */
export const actorName: SQL<string | null> =
  sql`CASE WHEN ${operatorActions.portal_id} IS NOT NULL THEN ${portalName} END`

/**
 * At most `limit` actions after `after`, oldest first.
 * @param subjects any of these; null: all
 */
export async function readActions(
  db: Db,
  subjects: readonly string[] | null,
  after: Place | null,
  limit: number,
): Promise<ActionItem[]> {
  const a = operatorActions
  return db
    .select({
      id: a.id,
      action: a.action,
      subject: a.subject,
      portal: actorName,
      before: a.before,
      after: a.after,
      reason: a.reason,
      request_id: a.request_id,
      occurred_at: utc(a.occurred_at),
    })
    .from(a)
    .leftJoin(portals, eq(portals.id, a.portal_id))
    .where(
      and(
        subjects === null ? undefined : sql`${a.subject} = ANY(${sql.param(subjects)}::text[])`,
        after === null ? undefined : sql`(${a.occurred_at}, ${a.id}) > (${after.at}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(asc(a.occurred_at), asc(a.id))
    .limit(limit)
}
