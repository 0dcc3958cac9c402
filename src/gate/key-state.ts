/**
 * What became of a key, for those who ask afterwards. Reads one row by the primary key and locks nothing.
 */
import { and, eq } from "drizzle-orm"
import type { Db } from "../db/client.js"
import { utc } from "../db/reading.js"
import { claims } from "../db/tables/keys.js"

export interface KeyState {
  readonly state: "completed" | "voided" | "purged"
  /** null for a voided key: its request never arrived. */
  readonly operation: string | null
  /** What it recorded. */
  readonly resourceId: string | null
  /** RFC 3339 UTC with six digits. */
  readonly firstSeenAt: string
}

/** null: nothing is recorded under the key. */
export async function readKeyState(db: Db, portalId: string, key: string): Promise<KeyState | null> {
  const [row] = await db
    .select({
      state: claims.state,
      operation: claims.operation,
      resourceId: claims.resource_id,
      firstSeenAt: utc(claims.claimed_at),
    })
    .from(claims)
    .where(and(eq(claims.portal_id, portalId), eq(claims.idempotency_key, key)))
  if (!row) return null
  return row.state === "voided" ? { ...row, operation: null, resourceId: null } : row
}
