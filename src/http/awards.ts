/**
 * Awards over HTTP: operators set their rules, operators and auditors read all of them, a portal those that name it or that it has drawn on; another
 * award is, for a portal, not there.
 */
import type { FastifyRequest } from "fastify"
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { decodeTextCursor, toPage } from "../db/page.js"
import { changeRules, type RulesRequest } from "../ledger/award-changes.js"
import { type AwardScope, listAwards, readAward, readHistory, viewAward } from "../ledger/award-reads.js"
import { type RulesPatch, rulesPatchSchema, rulesSchema } from "../ledger/award-rules.js"
import { awardIdText, awardKey } from "../ledger/submission.js"
import { limits } from "../limits.js"
import { type Caller, findMissingPortals, roles } from "../portals/portals.js"
import { Problem } from "../problems.js"
import { actorOf } from "./auth.js"
import {
  award,
  changeDescription,
  exampleAward,
  exampleRulesPatch,
  exampleRulesRequest,
  exampleVersion,
  rulesVersion,
} from "./award-docs.js"
import type { App } from "./deps.js"
import { answer, bodyProblems, problemResponses } from "./openapi.js"
import { pageOf, pageQuery } from "./page-query.js"

const params = z.object({
  award_id: awardIdText.meta({
    description: "Percent-encoded. Compared without regard to case and Unicode composition",
    examples: ["A-2026-014"],
  }),
})

const changeProblems = [
  ...bodyProblems,
  "currency-unknown",
  "currency-mismatch",
  "ceiling-below-net",
  "award-busy",
] as const

interface AwardDeps {
  readonly reads: Pick<Reads, "run">
  readonly changes: Pick<Reads, "run">
}

export function awardRoutes(app: App, deps: AwardDeps): void {
  registerChanges(app, deps)
  registerReads(app, deps)
}

function registerChanges(app: App, { reads, changes }: AwardDeps): void {
  const change = async (request: FastifyRequest, wanted: RulesRequest) => {
    await requirePortals(reads, wanted.sent.portals ?? [])
    return changeRules(changes, wanted, actorOf(request))
  }

  app.put(
    "/v1/awards/:award_id",
    {
      config: { roles: ["operator"] },
      schema: {
        operationId: "putAward",
        tags: ["awards"],
        summary: "Register an award, or replace its rules",
        description: `A member that is absent is null, its default. ${changeDescription}`,
        params,
        body: rulesSchema.meta({ id: "AwardRulesRequest", examples: [exampleRulesRequest] }),
        response: {
          201: answer(award, "**Registered**; there was no such award.", { example: exampleAward }),
          200: answer(award, "The award as it is now.", { example: exampleAward }),
          ...problemResponses(...changeProblems),
        },
      },
    },
    async (request, reply) => {
      const { reason = null, ...sent } = request.body
      const { award_id: awardId } = request.params
      const { award, isNew } = await change(request, { awardId, sent, whole: true, reason })
      return reply.code(isNew ? 201 : 200).send(viewAward(award))
    },
  )

  app.patch(
    "/v1/awards/:award_id",
    {
      config: { roles: ["operator"] },
      schema: {
        operationId: "patchAward",
        tags: ["awards"],
        summary: "Change some of an award's rules",
        description: `Only the members sent; null is the default. ${changeDescription}`,
        params,
        body: rulesPatchSchema.meta({ id: "AwardRulesPatch", examples: [exampleRulesPatch] }),
        response: {
          200: answer(award, "The award as it is now.", { example: exampleAward }),
          ...problemResponses(...changeProblems, "award-not-found"),
        },
      },
    },
    async (request) => {
      const { reason = null, ...sent } = request.body
      const { award_id: awardId } = request.params
      const { award } = await change(request, { awardId, sent, whole: false, reason })
      return viewAward(award)
    },
  )
}

function registerReads(app: App, { reads }: Pick<AwardDeps, "reads">): void {
  app.get(
    "/v1/awards/:award_id",
    {
      config: { roles },
      schema: {
        operationId: "getAward",
        tags: ["awards"],
        summary: "One award, its rules and totals",
        params,
        response: {
          200: answer(award, "The award as of now.", { example: exampleAward }),
          ...problemResponses("award-not-found"),
        },
      },
    },
    async ({ params: { award_id }, caller }) => {
      const found = await reads.run((db) => readAward(db, awardKey(award_id), scopeOf(caller)))
      if (!found) throw notFound()
      return found
    },
  )

  app.get(
    "/v1/awards",
    {
      config: { roles },
      schema: {
        operationId: "listAwards",
        tags: ["awards"],
        summary: "Awards, by id",
        description: "A portal's own: those that name it in `portals`, and those it has drawn on.",
        querystring: z.strictObject(pageQuery),
        response: {
          200: answer(pageOf(award), "A page.", { example: { items: [exampleAward], next_cursor: null } }),
          ...problemResponses("invalid-request", "invalid-cursor"),
        },
      },
    },
    async ({ query, caller }) => {
      const scope = scopeOf(caller)
      const filters = { list: "awards", portal: scope?.portalId ?? null }
      const limit = query.limit ?? limits.pageItemsDefault
      const after = query.cursor === undefined ? null : decodeTextCursor(query.cursor, filters)
      const rows = await reads.run((db) => listAwards(db, scope, after, limit + 1))
      const page = toPage(rows, limit, filters, (row) => row.award_key)
      return { ...page, items: page.items.map(({ award_key: _of_the_cursor, ...shown }) => shown) }
    },
  )

  app.get(
    "/v1/awards/:award_id/history",
    {
      config: { roles: ["operator", "auditor"] },
      schema: {
        operationId: "listAwardRules",
        tags: ["awards"],
        summary: "How an award's rules came to be, oldest first",
        description: "An award that was opened by a submission and never registered has no versions.",
        params,
        querystring: z.strictObject(pageQuery),
        response: {
          200: answer(pageOf(rulesVersion), "A page.", { example: { items: [exampleVersion], next_cursor: null } }),
          ...problemResponses("invalid-request", "invalid-cursor", "award-not-found"),
        },
      },
    },
    async ({ params: { award_id }, query }) => {
      const key = awardKey(award_id)
      const filters = { list: "history", award: key }
      const limit = query.limit ?? limits.pageItemsDefault
      const after = query.cursor === undefined ? 0 : Number(decodeTextCursor(query.cursor, filters))
      const rows = await reads.run(async (db) => {
        const versions = await readHistory(db, key, after, limit + 1)
        return versions.length > 0 || (await readAward(db, key, null)) !== null ? versions : null
      })
      if (rows === null) throw notFound()
      return toPage(rows, limit, filters, (row) => String(row.rules_version))
    },
  )
}

/** @throws Problem invalid-request, pointing at each name that no portal has */
async function requirePortals(reads: AwardDeps["reads"], names: NonNullable<RulesPatch["portals"]>): Promise<void> {
  if (names.length === 0) return
  const missing = new Set(await reads.run((db) => findMissingPortals(db, names)))
  if (missing.size === 0) return
  const errors = names.flatMap((name, i) =>
    missing.has(name) ? [{ pointer: `/portals/${i}`, code: "value", detail: "is not the name of a portal" }] : [],
  )
  throw new Problem("invalid-request", "The award names portals that do not exist. Nothing was changed.", {
    errors: errors.slice(0, limits.pointersMax),
  })
}

/** The same whether there is no such award, or it is none of this portal's. */
function notFound(): Problem {
  return new Problem("award-not-found", "There is no such award for this token.")
}

/** Whose awards a caller may see: a portal its own, others all. */
function scopeOf({ role, portalId, portal }: Caller): AwardScope {
  return role === "portal" ? { portalId, portal } : null
}
