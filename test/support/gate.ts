/**
 * A gate on a test's database, and submissions to send through it without HTTP. `hold` makes the next group wait at a stage,
 * so that a test decides who is in a group together and what happens between its statements.
 */
import { randomUUID } from "node:crypto"
import postgres from "postgres"
import type { Test } from "tap"
import { uuidv7 } from "uuidv7"
import { Reads } from "../../src/db/client.js"
import { canonicalRequest, fingerprint } from "../../src/gate/fingerprint.js"
import { Gate } from "../../src/gate/gate.js"
import type { Stage } from "../../src/gate/group.js"
import type { Conflict } from "../../src/gate/judge.js"
import type { Ask, Claimed, Decision, Settled } from "../../src/gate/operation.js"
import { createLedger, type Rows } from "../../src/ledger/book.js"
import { created, decideDisbursement, disbursementRecorded, type Facts } from "../../src/ledger/disbursement.js"
import { canonicalSubmission, normaliseSubmission, parseSubmission } from "../../src/ledger/submission.js"
import { Problem } from "../../src/problems.js"

export const portalId = "00000000-0000-7000-8000-000000000001"

interface Hold {
  /** Resolves when a group has come to the stage. */
  readonly reached: Promise<void>
  release(): void
}

export interface TestGate {
  readonly gate: Gate<Facts, Rows>
  /** A client of its own, to look and to interfere with. */
  readonly sql: postgres.Sql
  readonly conflicts: Conflict[]
  readonly retries: string[]
  readonly failures: unknown[]
  /** Sizes of the groups committed. */
  readonly groups: number[]
  hold(stage: Stage): Hold
}

/** @param options.url through which the gate connects, if not the database's own (a proxy's) */
export function startGate(
  t: Test,
  url: string,
  options: { url?: string; lanes?: number; groupMembersMax?: number } = {},
): TestGate {
  const gateUrl = options.url ?? url
  const reads = new Reads(gateUrl, { max: 2, preparedStatements: true })
  const sql = postgres(url, { max: 4, onnotice: () => {} })
  const conflicts: Conflict[] = []
  const retries: string[] = []
  const failures: unknown[] = []
  const groups: number[] = []
  const holds = new Map<Stage, { reach: () => void; released: Promise<void> }>()
  const gate = new Gate<Facts, Rows>({
    url: gateUrl,
    reads,
    preparedStatements: true,
    lanes: options.lanes ?? 1,
    groupMembersMax: options.groupMembersMax ?? 128,
    ledger: createLedger("open"),
    recordConflict: async (conflict) => void conflicts.push(conflict),
    onRetry: (reason) => retries.push(reason),
    onFailure: (error) => failures.push(error),
    onGroup: (members) => groups.push(members),
    onStage: (stage) => {
      const hold = holds.get(stage)
      if (!hold) return
      holds.delete(stage)
      hold.reach()
      return hold.released
    },
  })
  t.teardown(async () => {
    await gate.stop()
    await reads.end()
    await sql.end({ timeout: 1 })
  })
  return {
    gate,
    sql,
    conflicts,
    retries,
    failures,
    groups,
    hold(stage) {
      let reach!: () => void
      let release!: () => void
      const reached = new Promise<void>((resolve) => {
        reach = resolve
      })
      const released = new Promise<void>((resolve) => {
        release = resolve
      })
      holds.set(stage, { reach, released })
      return { reached, release }
    },
  }
}

export interface Submit {
  readonly key?: string
  readonly amount?: number
  readonly award?: string
  readonly submissionId?: string
  readonly currency?: string
  readonly portal?: string
}

/** A submission as the gate is asked for it, and the handler's decision on it. */
export function makeSubmission(given: Submit = {}): { ask: Ask; decide: (facts: Facts) => Decision<Rows> } {
  const body = {
    award_id: given.award ?? "A-2026-014",
    submission_timestamp: "2026-07-01T09:00:00Z",
    amount_cents: given.amount ?? 125_000,
    ...(given.submissionId === undefined ? {} : { submission_id: given.submissionId }),
    ...(given.currency === undefined ? {} : { currency: given.currency }),
  }
  const submission = normaliseSubmission(parseSubmission(body))
  const canonical = canonicalRequest("submission", {}, canonicalSubmission(submission))
  const ask: Ask = {
    portalId: given.portal ?? portalId,
    key: given.key ?? randomUUID(),
    keyStrategy: "client/1",
    operation: "submission",
    canonical,
    fingerprint: fingerprint(canonical),
    submissionId: submission.submission_id ?? null,
    awardKey: submission.award_key,
    undoes: null,
    account: null,
    bulk: false,
    resourceId: uuidv7(),
    requestText: JSON.stringify(body),
    requestId: randomUUID(),
    differs: () => ["/amount_cents"],
  }
  const origin = { id: ask.resourceId, portalId: ask.portalId, portal: "test", idempotencyKey: ask.key }
  const decide = (facts: Facts): Decision<Rows> => {
    const line = decideDisbursement(submission, origin, facts)
    if (line instanceof Problem) return line
    return { disbursements: [line], outbox: [disbursementRecorded(line)], answer: created(line, facts) }
  }
  return { ask, decide }
}

/** Sends one through, as a handler does. @param change what the handler decides instead */
export async function submit(
  gate: Gate<Facts, Rows>,
  given: Submit = {},
  change: (claimed: Claimed<Facts, Rows>, decide: (facts: Facts) => Decision<Rows>) => Promise<Settled> = (
    claimed,
    decide,
  ) => claimed.write(decide),
): Promise<Settled> {
  const { ask, decide } = makeSubmission(given)
  const outcome = await gate.claim(ask)
  return outcome.kind === "claimed" ? change(outcome, decide) : outcome
}

/** What ended how, as one word. */
export const ending = (settled: Settled): string => (settled.kind === "refused" ? settled.problem.code : settled.kind)

export interface Counts {
  claims: number
  answers: number
  disbursements: number
  outbox: number
  total: number
  awards: number
}

/** What is in the database: rows of each kind, the ledger's sum and the awards' sum. */
export async function count(sql: postgres.Sql): Promise<Counts> {
  const [row] = await sql<Counts[]>`
    SELECT (SELECT count(*)::int FROM claims WHERE state = 'completed') AS claims, (SELECT count(*)::int FROM answers) AS answers,
      (SELECT count(*)::int FROM disbursements) AS disbursements, (SELECT count(*)::int FROM outbox) AS outbox,
      (SELECT coalesce(sum(amount_cents), 0)::float8 FROM disbursements) AS total,
      (SELECT coalesce(sum(disbursed_cents), 0)::float8 FROM awards) AS awards`
  if (!row) throw new Error("one row of counts")
  return row
}

/** Asserts that the record holds exactly `n` effects, each with one claim, one answer, one event, and its amount once in its award's total. */
export async function exactly(
  t: Test,
  sql: postgres.Sql,
  n: number,
  about = "exactly one of each for every effect",
): Promise<void> {
  const { total, awards, ...rows } = await count(sql)
  t.same(rows, { claims: n, answers: n, disbursements: n, outbox: n }, about)
  t.equal(awards, total, "the awards' totals are the ledger's sum")
}
