/**
 * One group: many requests, one transaction. The only `db.transaction` of the write path. In this order: take the locks that are free (nothing
 * waits inside a group), claim the keys, read the facts, let the handlers decide, write as sets, COMMIT. It says of each member what became of it
 * and settles nobody whose word depends on the COMMIT before that is heard. It keeps no state: lanes.ts runs it, again where needed.
 */
import { sql } from "drizzle-orm"
import type { Db, Tx } from "../db/client.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import { type Answered, claimKeys, readClaims, releaseClaims, tryLocks, writeAnswers } from "./claim.js"
import { type Conflict, judge, refused } from "./judge.js"
import type { Member } from "./member.js"
import type { Ask, Book, Decision, Ledger, Settled } from "./operation.js"

/** Named points of a group's way, in order; observers (crash tests, traces) are called there. */
export type Stage = "before-claim" | "after-claim" | "after-write" | "after-commit"

/** What a member can find held, other than its award. */
export type Held = "key" | "submission_id" | "disbursement" | "account"

/** What became of a member. */
export type Verdict =
  | Settled
  | Conflict
  /** Something that it needs to itself is held by another transaction: wait outside, come again. */
  | { readonly kind: "held"; readonly what: Held }
  /** Its award is held by another transaction. */
  | { readonly kind: "award-held" }
  /** Neither won nor found: whoever held it rolled back. Come again. */
  | { readonly kind: "again" }
  /** Its handler threw. */
  | { readonly kind: "failed"; readonly error: unknown }

/** One attempt to run a group. `over` is set in the same turn in which the connection is lost or given up: from then on the callback sends nothing. */
export interface Attempt {
  over: boolean
  committing: boolean
}

/** Stops a callback whose transaction is no longer its own. */
export class AttemptOver extends Error {
  override readonly name = "AttemptOver"
}

export interface GroupContext<Facts, Rows> {
  readonly ledger: Ledger<Facts, Rows>
  readonly onStage?: ((stage: Stage) => void | Promise<void>) | undefined
  /** A verdict that needs no COMMIT, as soon as it is known. */
  early(member: Member<Facts, Rows>, verdict: Verdict): void
}

// One unparameterised statement, so that it is right behind a pooler too: isolation, limits, and plans that go by index even while tables are small.
const settings = sql.raw(
  [
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    `SET LOCAL lock_timeout = ${limits.lockMs}`,
    `SET LOCAL statement_timeout = ${limits.statementMs}`,
    `SET LOCAL idle_in_transaction_session_timeout = ${limits.idleInTransactionMs}`,
    "SET LOCAL enable_seqscan = off",
    "SET LOCAL enable_hashjoin = off",
    "SET LOCAL enable_mergejoin = off",
    "SET LOCAL jit = off",
  ].join("; "),
)

/**
 * Runs one attempt.
 * @param members in the order of their arrival; no two share a key or submission_id
 * @param careful lock the awards before deciding
 * @returns the verdict on each member, after COMMIT; rejects when the transaction failed, whatever the reason
 */
export async function runGroup<Facts, Rows>(
  db: Db,
  members: readonly Member<Facts, Rows>[],
  careful: boolean,
  attempt: Attempt,
  context: GroupContext<Facts, Rows>,
): Promise<Map<Member<Facts, Rows>, Verdict>> {
  const verdicts = new Map<Member<Facts, Rows>, Verdict>()
  /** Some statement failed: what was started beside it sends nothing more. */
  let failed = false
  /** Each await of the callback goes through here: nothing is sent once the attempt is over. */
  const step = async <T>(work: () => T | Promise<T>): Promise<T> => {
    if (attempt.over || failed) throw new AttemptOver()
    try {
      const result = await work()
      if (!attempt.over) return result
    } catch (error) {
      failed = true
      throw error
    }
    throw new AttemptOver()
  }

  await db.transaction(async (tx) => {
    await step(() => context.onStage?.("before-claim"))
    const { now, free } = await step(() => lockMembers(tx, members, verdicts))

    // Claim and facts travel together; what can change since is guarded by the write itself, or locked first.
    const asks = free.map((member) => member.ask)
    const [won, book] = await step(() =>
      Promise.all([
        claimKeys(tx, free, now),
        context.ledger.open(tx, asks, {
          careful,
          now,
          tryLocks: async (names) => (await step(() => tryLocks(tx, names))).got,
        }),
      ]),
    )
    const winners = free.filter((member) => won.has(member.ask.resourceId))
    const losers = free.filter((member) => !won.has(member.ask.resourceId))
    if (losers.length > 0) {
      const found = await step(() =>
        readClaims(
          tx,
          losers.map((member) => member.ask),
        ),
      )
      losers.forEach((member, i) => {
        const row = found[i]
        const verdict: Verdict = row ? judge(member, row) : { kind: "again" }
        verdicts.set(member, verdict)
        if (row) context.early(member, verdict)
      })
    }
    await step(() => context.onStage?.("after-claim"))

    const writers = winners.filter((member) => !book.held.has(member.ask) && !member.voiding)
    for (const member of writers) member.hand()
    await step(() => whenReady(writers))
    const { accepted, out } = decideAll(winners, book, verdicts)

    await step(() =>
      Promise.all([
        ...(out.length > 0 ? [releaseClaims(tx, out)] : []),
        ...(accepted.length > 0 ? [...book.write(tx), writeAnswers(tx, accepted)] : []),
      ]),
    )
    await step(() => context.onStage?.("after-write"))
    attempt.committing = true
  })
  await context.onStage?.("after-commit")
  return verdicts
}

/** Takes what each member needs to itself; who does not get all of it has its verdict. */
async function lockMembers<Facts, Rows>(
  tx: Tx,
  members: readonly Member<Facts, Rows>[],
  verdicts: Map<Member<Facts, Rows>, Verdict>,
): Promise<{ now: string; free: Member<Facts, Rows>[] }> {
  const [, { got, now }] = await Promise.all([
    tx.execute(settings),
    tryLocks(
      tx,
      members.flatMap((member) => [...member.identities, ...member.sharedLocks]),
    ),
  ])
  let at = 0
  const free: Member<Facts, Rows>[] = []
  for (const member of members) {
    const wanted: Held[] = ["key"]
    if (member.identities.length > 1) wanted.push("submission_id")
    if (member.sharedLocks.length > 0) wanted.push(member.ask.undoes === null ? "account" : "disbursement")
    const what = wanted.find((_, i) => !got[at + i])
    at += wanted.length
    if (what === undefined) free.push(member)
    else verdicts.set(member, { kind: "held", what })
  }
  return { now, free }
}

/** Waits until each handler has decided or given up, `decideMs` at most. */
async function whenReady<Facts, Rows>(members: readonly Member<Facts, Rows>[]): Promise<void> {
  const open = members.filter((member) => !member.ready)
  if (open.length === 0) return
  await new Promise<void>((resolve) => {
    let left = open.length
    const timer = setTimeout(resolve, limits.decideMs)
    for (const member of open) {
      member.whenReady(() => {
        left -= 1
        if (left > 0) return
        clearTimeout(timer)
        resolve()
      })
    }
  })
}

/** Decides in the order of arrival, each against those accepted before it. @returns the accepted with their answers, and those whose claims go */
function decideAll<Facts, Rows>(
  winners: readonly Member<Facts, Rows>[],
  book: Book<Facts, Rows>,
  verdicts: Map<Member<Facts, Rows>, Verdict>,
): { accepted: Answered[]; out: Ask[] } {
  const accepted: Answered[] = []
  const out: Ask[] = []
  for (const member of winners) {
    const { ask } = member
    const verdict = decideOne(member, book)
    if (verdict.kind === "recorded") accepted.push({ ask, answer: verdict.answer })
    else if (verdict.kind !== "voided") out.push(ask)
    verdicts.set(member, verdict)
  }
  return { accepted, out }
}

function decideOne<Facts, Rows>(member: Member<Facts, Rows>, book: Book<Facts, Rows>): Verdict {
  const { ask, decide } = member
  if (member.voiding) return { kind: "voided" }
  if (book.held.has(ask)) return { kind: "award-held" }
  // Answered already at its deadline, gave up, or dawdled: nothing of it may be written.
  if (member.settled || decide === null)
    return { kind: "failed", error: new Error("the handler did not decide in time") }
  let decision: Decision<Rows>
  try {
    decision = decide(book.facts(ask))
  } catch (error) {
    return { kind: "failed", error }
  }
  if (decision instanceof Problem) return refused(decision)
  book.enter(ask, decision)
  return { kind: "recorded", answer: decision.answer, resourceId: ask.resourceId }
}
