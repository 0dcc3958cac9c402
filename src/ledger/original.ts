/**
 * The disbursement that a return or reversal undoes, with what came back of it so far. A ledger line never changes, but lines that undo it are
 * added: so inside a group this is read after the locks, by one statement, and kept up to date in memory from there.
 */
import { eq, sql } from "drizzle-orm"
import { alias } from "drizzle-orm/pg-core"
import type { Db, Tx } from "../db/client.js"
import { portalName, utc } from "../db/reading.js"
import { portals } from "../db/tables/callers.js"
import { disbursements } from "../db/tables/money.js"
import { type LedgerLine, withoutTrailingZeros } from "./disbursement-reads.js"

/** What lines that undo a disbursement have in common with it. */
type Members = Pick<
  LedgerLine,
  | "award_id"
  | "currency"
  | "submission_timestamp"
  | "submission_id"
  | "assistance_listing_number"
  | "fain"
  | "recipient_uei"
  | "invoice_ref"
  | "period_from"
  | "period_to"
>

export interface Original {
  readonly id: string
  /** Only a disbursement can be undone. */
  readonly kind: LedgerLine["kind"]
  /** Whose it is. */
  readonly portalId: string
  readonly portal: string
  readonly awardKey: string
  readonly amountCents: number
  /** By returns and a reversal together. */
  readonly returnedCents: number
  readonly reversed: boolean
  readonly members: Members
}

const undoing = alias(disbursements, "undoing")

/** Reads the lines with these ids, locking nothing; in no order, and those that do not exist are absent. */
export async function readOriginals(db: Db | Tx, ids: readonly string[]): Promise<Original[]> {
  const d = disbursements
  const undone = sql`FROM ${disbursements} "undoing" WHERE ${undoing.disbursement_id} = ${d.id}`
  const rows = await db
    .select({
      id: d.id,
      kind: d.kind,
      portalId: sql<string>`coalesce(${d.owner_id}, ${d.portal_id})`,
      portal: portalName,
      awardKey: d.award_key,
      amountCents: d.amount_cents,
      returnedCents: sql<number>`coalesce((SELECT -sum(${undoing.amount_cents}) ${undone}), 0)`.mapWith(Number),
      reversed: sql<boolean>`EXISTS (SELECT ${undone} AND ${undoing.kind} = 'reversal')`,
      award_id: d.award_id,
      currency: d.currency,
      submission_timestamp: utc(d.submission_timestamp),
      submission_id: d.submission_id,
      assistance_listing_number: d.assistance_listing_number,
      fain: d.fain,
      recipient_uei: d.recipient_uei,
      invoice_ref: d.invoice_ref,
      period_from: d.period_from,
      period_to: d.period_to,
    })
    .from(d)
    .leftJoin(portals, eq(portals.id, d.portal_id))
    .where(sql`${d.id} = ANY(ARRAY(SELECT json_array_elements_text(${JSON.stringify(ids)}::text::json)::uuid))`)
    .prepare("read_originals")
    .execute()
  return rows.map(
    ({ id, kind, portalId, portal, awardKey, amountCents, returnedCents, reversed, submission_timestamp, ...rest }) => {
      const members = { ...rest, submission_timestamp: withoutTrailingZeros(submission_timestamp) }
      return { id, kind, portalId, portal, awardKey, amountCents, returnedCents, reversed, members }
    },
  )
}
