/**
 * Each refused reuse of a key, kept for investigation: all SQL on `conflicts`. A row names the members that differ and holds no value of either request.
 */
import { and, asc, eq, sql } from "drizzle-orm"
import type { Db } from "../db/client.js"
import type { Place } from "../db/page.js"
import { portalIdOf, portalName, utc } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { conflicts } from "../db/tables/evidence.js"
import { lineOf } from "../gate/operation.js"

export type ConflictRow = Omit<typeof conflicts.$inferInsert, "occurred_at">

/** A conflict as it is shown. */
export interface ConflictItem {
  readonly id: string
  readonly portal: string
  readonly idempotency_key: string
  readonly operation: string
  readonly fingerprint: string
  readonly original_operation: string
  readonly original_fingerprint: string
  readonly differs: readonly string[]
  /** Null when the original recorded no ledger line. */
  readonly disbursement_id: string | null
  readonly request_id: string
  /** RFC 3339 UTC with six digits. */
  readonly occurred_at: string
}

/** Repeatable: the id is the record's identity. */
export async function recordConflict(db: Db, row: ConflictRow): Promise<void> {
  await db
    .insert(conflicts)
    .values({ ...row, differs: sql`${JSON.stringify(row.differs)}::text::jsonb` })
    .onConflictDoNothing({ target: conflicts.id })
}

/** At most `limit` conflicts after `after`, oldest first. */
export async function readConflicts(
  db: Db,
  portal: string | null,
  after: Place | null,
  limit: number,
): Promise<ConflictItem[]> {
  const rows = await db
    .select({
      id: conflicts.id,
      portal: portalName,
      idempotency_key: conflicts.idempotency_key,
      operation: conflicts.operation,
      fingerprint: conflicts.fingerprint,
      original_operation: conflicts.original_operation,
      original_fingerprint: conflicts.original_fingerprint,
      differs: conflicts.differs,
      disbursement_id: conflicts.disbursement_id,
      request_id: conflicts.request_id,
      occurred_at: utc(conflicts.occurred_at),
    })
    .from(conflicts)
    .leftJoin(portals, eq(portals.id, conflicts.portal_id))
    .where(
      and(
        portal === null ? undefined : eq(conflicts.portal_id, portalIdOf(portal)),
        after === null
          ? undefined
          : sql`(${conflicts.occurred_at}, ${conflicts.id}) > (${after.at}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(asc(conflicts.occurred_at), asc(conflicts.id))
    .limit(limit)
  return rows.map((row) => ({ ...row, disbursement_id: lineOf(row.original_operation, row.disbursement_id) }))
}
