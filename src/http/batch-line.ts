/**
 * One line of a batch: from its bytes to the answer it gets, by the way of a single submission. A line stands or falls alone; what it is answered
 * with is what the single request would have been.
 */
import type { FastifyBaseLogger } from "fastify"
import { checkKey } from "../gate/key.js"
import type { Ask, Decide, Settled } from "../gate/operation.js"
import type { AllFacts, Rows } from "../ledger/book.js"
import { readJson } from "../ledger/strict-json.js"
import { normaliseSubmission, parseSubmissionLine } from "../ledger/submission.js"
import { limits } from "../limits.js"
import type { Caller } from "../portals/portals.js"
import { Problem } from "../problems.js"
import type { ByteLine } from "./byte-lines.js"
import type { Audit } from "./deps.js"
import { askFor, auditOf, countedAs } from "./idempotency.js"
import type { Metrics } from "./metrics.js"
import { problemBody } from "./problem-replies.js"
import { decideSubmission, prepareSubmission } from "./submissions.js"

/** What all lines of a batch have in common. */
export interface BatchContext {
  readonly caller: Caller
  readonly requestId: string
  readonly publicUrl: string
  readonly metrics: Metrics
  readonly log: FastifyBaseLogger
}

/** A line that is valid in itself, ready for the gate. */
export interface LineAsk {
  readonly ask: Ask
  readonly audit: Audit
  readonly decide: Decide<AllFacts, Rows>
}

/** @throws Problem, as the single request would be answered */
export function readLine({ caller, requestId }: BatchContext, { line, bytes }: ByteLine): LineAsk {
  if (bytes === null)
    throw new Problem("body-too-large", `The line is larger than ${limits.bodyBytesMax} bytes. Nothing was recorded.`)
  const { submission: sent, key } = parseSubmissionLine(readJson(bytes, "The line"))
  if (key === null && caller.keyRequired) {
    throw new Problem(
      "idempotency-key-required",
      "This portal sends a key with every submission, and this line has no idempotency_key. Nothing was recorded.",
    )
  }
  const submission = normaliseSubmission(sent)
  const prepared = prepareSubmission(submission)
  const named =
    key === null
      ? prepared.derive()
      : ({ key: checkKey(key, "The member idempotency_key"), strategy: "client/1" } as const)
  if (named === null) throw new Error("a submission derives a key")
  const ask = askFor(prepared, named, {
    portalId: caller.portalId,
    requestText: bytes.toString("utf8"),
    requestId: instanceOf(requestId, line),
    bulk: true,
  })
  return { ask, audit: auditOf(prepared, named.key, "refused"), decide: decideSubmission(submission, ask, caller) }
}

/** The answer to a line, with its LF; counted and logged as a single request is. */
export function answerLine(context: BatchContext, line: number, { ask, audit }: LineAsk, settled: Settled): string {
  if (settled.kind === "refused") return refuseLine(context, line, settled.problem, audit)
  if (settled.kind === "voided") throw new Error("only a void ends as voided")
  const status = settled.kind === "replayed" ? 200 : settled.answer.status
  record(context, line, status, countedAs(settled), { ...audit, event: settled.kind })
  return `{"line":${line},"status":${status},"idempotency_key":${JSON.stringify(ask.key)},"disbursement_id":"${settled.resourceId}"}\n`
}

/** The answer to a line that is refused, before the gate or in it. */
export function refuseLine(context: BatchContext, line: number, problem: Problem, audit?: Audit): string {
  record(context, line, problem.kind.status, countedAs({ kind: "refused", problem }), { ...audit, event: problem.code })
  return problemLine(context, line, problem)
}

/** A line of the answer that tells of a problem. @param status where HTTP itself has a better one than the catalogue */
export function problemLine(context: BatchContext, line: number, problem: Problem, status?: 408): string {
  const override = status === undefined ? undefined : { status, retry: "same-key" as const }
  const body = problemBody(problem, context.publicUrl, instanceOf(context.requestId, line), override)
  return `{"line":${line},"status":${status ?? problem.kind.status},"problem":${body}}\n`
}

function record(
  { metrics, log, caller }: BatchContext,
  line: number,
  status: number,
  outcome: Parameters<Metrics["outcome"]>[1],
  { event, ...audit }: Partial<Audit> & { event: string },
): void {
  metrics.outcome("submission", outcome)
  log.info({ line, status, portal: caller.portal, ...audit }, event)
}

/** The request's id and the line: what the log and a conflict's record name, too. */
function instanceOf(requestId: string, line: number): string {
  return `${requestId}:${line}`
}
