/**
 * Many awards at once: all of a file's changes in one transaction, or none. What would change is found out without a lock; only the awards that do are
 * locked, in the order of award_key like everywhere, decided again on what they are by then, and written as sets. Repeatable: what is as the file
 * says changes nothing. While it commits, submissions to the awards that it changes wait, and are told to come again if they wait too long.
 */
import { asc, sql } from "drizzle-orm"
import { type Db, errorCode, type Tx } from "../db/client.js"
import { awards } from "../db/tables/money.js"
import type { Actor } from "../evidence/operator-actions.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { awardRow, type Change, limitTransaction, lockRows, settings, writeChanges } from "./award-changes.js"
import { type AwardRow, decideRules, type RulesPatch } from "./award-rules.js"

/** One award of the import, once each. Only the rules in `sent` change; a new award needs its currency. */
export interface ImportAward {
  readonly awardKey: string
  readonly awardId: string
  readonly sent: RulesPatch
}

/** An award, by its position, that refuses its rules. */
export interface Refusal {
  readonly at: number
  readonly problem: Problem
}

/** What came of an import: counts, when it was written; or which awards refuse it, and nothing was. */
export type Imported =
  | { readonly written: true; readonly added: number; readonly changed: number; readonly unchanged: number }
  | { readonly written: false; readonly refused: readonly Refusal[] }

/** How far it is, for a person who waits. */
export type OnProgress = (phase: "checked" | "written", done: number, of: number) => void

/** Whoever inserted the award meanwhile was not waited for. */
const triesMax = 3

/** @throws Problem award-busy when an award is held for `heldMs`: nothing was written */
export async function importAwards(
  db: Db,
  list: readonly ImportAward[],
  reason: string | null,
  actor: Actor,
  onProgress: OnProgress,
): Promise<Imported> {
  for (let tries = 1; ; tries++) {
    try {
      const { differing, refused } = await checkAwards(db, list, onProgress)
      if (refused.length > 0) return { written: false, refused }
      return await db.transaction((tx) => writeAll(tx, list, differing, reason, actor, onProgress), settings)
    } catch (error) {
      const code = errorCode(error)
      if (code === "55P03")
        throw new Problem(
          "award-busy",
          "An award of the file is held by another request. Nothing was changed; try again.",
        )
      if (code !== "23505" && code !== "40P01") throw error
      if (tries === triesMax)
        throw new Problem(
          "award-busy",
          "Awards of the file are being opened meanwhile. Nothing was changed; try again.",
        )
    }
  }
}

/** What an import would change (by position), and what would refuse it, as of now. Writes and locks nothing. */
export async function checkAwards(
  db: Db,
  list: readonly ImportAward[],
  onProgress: OnProgress,
): Promise<{ differing: number[]; refused: Refusal[] }> {
  const differing: number[] = []
  const refused: Refusal[] = []
  for (let from = 0; from < list.length; from += limits.importRowsMax) {
    const part = list.slice(from, from + limits.importRowsMax)
    const rows = byKey(
      await readRows(
        db,
        part.map((award) => award.awardKey),
      ),
    )
    part.forEach((award, i) => {
      const decided = decide(award, rows.get(award.awardKey) ?? null)
      if (decided instanceof Problem) refused.push({ at: from + i, problem: decided })
      else if (decided !== null) differing.push(from + i)
    })
    onProgress("checked", from + part.length, list.length)
  }
  return { differing, refused }
}

async function writeAll(
  tx: Tx,
  list: readonly ImportAward[],
  differing: readonly number[],
  reason: string | null,
  actor: Actor,
  onProgress: OnProgress,
): Promise<Imported> {
  await limitTransaction(tx, performance.now() + limits.heldMs, limits.importStatementMs)
  const wanted = differing.map((at) => ({ at, award: list[at] as ImportAward }))
  const rows = byKey(
    await lockRows(
      tx,
      wanted.map(({ award }) => award.awardKey),
    ),
  )
  const changes: Change[] = []
  const refused: Refusal[] = []
  for (const { at, award } of wanted) {
    const before = rows.get(award.awardKey) ?? null
    const after = decide(award, before)
    if (after instanceof Problem) refused.push({ at, problem: after })
    else if (after !== null) changes.push({ ...award, before, after })
  }
  if (refused.length > 0) return { written: false, refused }
  for (let from = 0; from < changes.length; from += limits.importRowsMax) {
    const part = changes.slice(from, from + limits.importRowsMax)
    await writeChanges(tx, part, reason, actor)
    onProgress("written", from + part.length, changes.length)
  }
  const added = changes.filter(({ before }) => before === null).length
  return { written: true, added, changed: changes.length - added, unchanged: list.length - changes.length }
}

function decide({ sent }: ImportAward, before: AwardRow | null) {
  if (before === null && sent.currency === undefined) {
    return new Problem("invalid-request", "currency is required, as there is no such award yet", {
      errors: [{ pointer: "/currency", code: "required", detail: "is required" }],
    })
  }
  return decideRules(before, sent)
}

/** Without a lock. */
function readRows(db: Db, awardKeys: readonly string[]): Promise<AwardRow[]> {
  return db
    .select(awardRow)
    .from(awards)
    .where(sql`${awards.award_key} IN (SELECT json_array_elements_text(${JSON.stringify(awardKeys)}::text::json))`)
    .orderBy(asc(awards.award_key))
}

function byKey(rows: readonly AwardRow[]): Map<string, AwardRow> {
  return new Map(rows.map((row) => [row.award_key, row]))
}
