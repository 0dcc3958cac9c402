/**
 * Whose things are meant where they are one portal's: its keys, its accounts, its own list.
 */
import type { Reads } from "../db/client.js"
import { type Caller, findPortalByName } from "../portals/portals.js"
import { Problem } from "../problems.js"
import { notFound } from "./openapi.js"

/**
 * The id of the portal that is meant: a portal's own, or that of the one which others must name.
 * @throws Problem not-found, also for a portal that names another; invalid-request where the name is missing
 */
export async function portalOf(reads: Pick<Reads, "run">, caller: Caller, name: string | undefined): Promise<string> {
  if (caller.role === "portal") {
    if (name !== undefined && name !== caller.portal) throw notFound("portal")
    return caller.portalId
  }
  if (name === undefined) {
    const detail = "must name the portal that is meant"
    throw new Problem("invalid-request", "The query string has one fault.", {
      errors: [{ pointer: "/portal", code: "required", detail }],
    })
  }
  const portal = await reads.run((db) => findPortalByName(db, name))
  if (!portal) throw notFound("portal")
  return portal.id
}
