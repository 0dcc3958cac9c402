/**
 * Writing ledger lines of every kind, as a set. A line once written is never changed: what undoes it is a line of its own, with the members of
 * its original, so that both are found under the same award, number and invoice.
 */
import { sql } from "drizzle-orm"
import type { Tx } from "../db/client.js"
import { rowsOf, statement } from "../db/statement.js"
import { disbursements } from "../db/tables/money.js"
import type { Line } from "./disbursement.js"
import type { ReturnLine } from "./return.js"

/** A line of any kind. */
export type AnyLine = Line | ReturnLine

const writeLinesStatement = statement("write_lines", (db) =>
  db.insert(disbursements).select(
    sql`SELECT l.id, l.kind, l.portal_id, l.key, l.award_key, l.award_id, l.amount_cents, l.currency, l.submission_timestamp, l.submission_id,
            l.assistance_listing_number, l.fain, l.recipient_uei, l.invoice_ref, l.period_from, l.period_to, l.disbursement_id, l.reason,
            l.recorded_at, l.owner_id
          FROM json_to_recordset(${rowsOf("lines")}) AS l(id uuid, kind text, portal_id uuid, key text, award_key text,
            award_id text, amount_cents bigint, currency text, submission_timestamp timestamptz, submission_id text,
            assistance_listing_number text, fain text, recipient_uei text, invoice_ref text, period_from text, period_to text,
            disbursement_id uuid, reason text, recorded_at timestamptz, owner_id uuid)`,
  ),
)

/** Writes ledger lines: one INSERT; nothing waits, since their claims are this transaction's own. */
export function writeLines(tx: Tx, lines: readonly AnyLine[]): Promise<unknown> {
  const rows = lines.map((line) => ({
    id: line.id,
    kind: line.kind,
    portal_id: line.portalId,
    key: line.idempotencyKey,
    recorded_at: line.recordedAt,
    ...(line.kind === "disbursement" ? { ...line.submission, details: undefined } : membersOf(line)),
  }))
  return writeLinesStatement(tx, { lines: JSON.stringify(rows) })
}

function membersOf({ original, returnedCents, reason, portalId }: ReturnLine) {
  return {
    ...original.members,
    award_key: original.awardKey,
    amount_cents: -returnedCents,
    disbursement_id: original.id,
    reason,
    // Null: the portal's own line, as a disbursement is.
    owner_id: original.portalId === portalId ? null : original.portalId,
  }
}
