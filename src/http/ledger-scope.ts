/**
 * Whose lines a caller reads: a portal its own, whatever it asks for; operators and auditors everyone's, or those of the portal that they name.
 */
import type { Reads } from "../db/client.js"
import { readPortalId } from "../db/reading.js"
import type { Caller } from "../portals/portals.js"

/** No portal's id: finds nothing, by the index. */
const nobody = "00000000-0000-0000-0000-000000000000"

/** The portal whose lines the caller may see; null: everyone's. */
export function scopeOf(caller: Caller): string | null {
  return caller.role === "portal" ? caller.portalId : null
}

/**
 * The owner whose lines are asked for; null: everyone's. The name is looked up first, because a statement that knows whom it looks for is
 * planned for that portal's share of the ledger.
 */
export async function ownerAsked(
  reads: Pick<Reads, "run">,
  caller: Caller,
  portal: string | undefined,
): Promise<string | null> {
  const scope = scopeOf(caller)
  if (portal === undefined) return scope
  if (scope !== null) return portal === caller.portal ? scope : nobody
  return (await reads.run((db) => readPortalId(db, portal))) ?? nobody
}
