/**
 * What every read shares: how rows name their portal, and how instants are written. Ledger and evidence keep a portal's id; its name is joined when
 * they are read. Whoever holds the bootstrap token has an id and a name but no row, so that it is gone when the token is.
 */
import { eq, type SQL, sql } from "drizzle-orm"
import type { Db } from "./client.js"
import { portals } from "./tables/callers.js"

/** The operator that GRANTGATE_BOOTSTRAP_TOKEN stands for; no portal may take the name. */
export const bootstrapPortal = { id: "00000000-0000-7000-8000-000000000000", name: "bootstrap" } as const

/** The name, where `portals` is left-joined by the row's portal id. */
export const portalName = sql<string>`coalesce(${portals.name}, ${bootstrapPortal.name})`

/** The id of the portal with this name; NULL, which equals nothing, when there is none. */
export function portalIdOf(name: string): SQL {
  if (name === bootstrapPortal.name) return sql`${bootstrapPortal.id}::uuid`
  return sql`(SELECT p.id FROM ${portals} p WHERE p.name = ${name})`
}

/** The same, read at once; null when there is none. */
export async function readPortalId(db: Db, name: string): Promise<string | null> {
  if (name === bootstrapPortal.name) return bootstrapPortal.id
  const [portal] = await db.select({ id: portals.id }).from(portals).where(eq(portals.name, name))
  return portal?.id ?? null
}

/** RFC 3339 UTC with six digits, whatever the session's time zone. */
export function utc(column: unknown): SQL<string> {
  return sql<string>`to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}
