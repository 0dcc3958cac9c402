/** What the database holds of one portal, for tests that share a database: an effect is a claim, an answer, a ledger line and an event. */
import type postgres from "postgres"
import type { Test } from "tap"

export interface Effects {
  readonly claims: number
  readonly answers: number
  readonly disbursements: number
  readonly events: number
}

export async function effectsOf(sql: postgres.Sql, portalId: string): Promise<Effects> {
  const [row] = await sql<Effects[]>`
    SELECT (SELECT count(*)::int FROM claims WHERE portal_id = p.id AND state = 'completed') AS claims,
      (SELECT count(*)::int FROM claims JOIN answers USING (resource_id) WHERE portal_id = p.id) AS answers,
      (SELECT count(*)::int FROM disbursements WHERE portal_id = p.id) AS disbursements,
      (SELECT count(*)::int FROM outbox WHERE payload->>'portal' = p.name) AS events
    FROM portals p WHERE p.id = ${portalId}`
  if (!row) throw new Error("the portal is there")
  return row
}

/** Asserts exactly `n` effects of the portal, and that the totals of the awards it drew on are the sums of their lines. */
export async function hasEffects(t: Test, sql: postgres.Sql, portalId: string, n: number, about = ""): Promise<void> {
  const where = about === "" ? "" : `${about}: `
  const want: Effects = { claims: n, answers: n, disbursements: n, events: n }
  t.same(await effectsOf(sql, portalId), want, `${where}${n} of each: claim, answer, disbursement, event`)
  const wrong = await sql`
    SELECT award_key FROM awards WHERE award_key IN (SELECT award_key FROM disbursements WHERE portal_id = ${portalId})
      AND disbursed_cents - returned_cents <> (SELECT sum(amount_cents) FROM disbursements d WHERE d.award_key = awards.award_key)`
  t.same([...wrong], [], `${where}each amount once in its award's total`)
}
