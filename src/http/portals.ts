/**
 * Portals over HTTP: who may call, and with which tokens. A token is in exactly one answer, that of the request which made it.
 */
import { z } from "zod"
import type { Reads } from "../db/client.js"
import { addToken, createPortal, listPortals, portalRequest, revokeToken, roles } from "../portals/portals.js"
import type { Tokens } from "../portals/tokens.js"
import { actorOf } from "./auth.js"
import type { App } from "./deps.js"
import { answer, bodyProblems, noContent, notFound, problemResponses } from "./openapi.js"

const exampleId = "0197c3a2-5b1e-7c4d-9a6f-2f1d3b5c7e90"
const token = z.string().describe("Shown this once; only its hash is kept")

const newPortal = z.object({ id: z.string(), name: z.string(), role: z.enum(roles), token }).meta({ id: "NewPortal" })

const portalList = z
  .object({
    items: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        role: z.enum(roles),
        key_required: z.boolean(),
        created_at: z.string(),
        tokens: z
          .array(z.object({ id: z.string(), created_at: z.string() }))
          .describe("Those not revoked, oldest first"),
      }),
    ),
  })
  .meta({ id: "PortalList" })

const examplePortal = {
  id: exampleId,
  name: "county-east",
  role: "portal",
  key_required: false,
  created_at: "2025-06-30T14:00:00.112358Z",
  tokens: [{ id: "0197c3a2-5c40-7a19-b2d3-4e5f60718293", created_at: "2025-06-30T14:00:00.112358Z" }],
}

const uuid = z.string().meta({ format: "uuid", examples: [exampleId] })
const portalId = uuid.describe("The portal's id")

export function portalRoutes(app: App, reads: Pick<Reads, "run">, tokens: Pick<Tokens, "clear">): void {
  app.post(
    "/v1/portals",
    {
      config: { roles: ["operator"] },
      schema: {
        operationId: "createPortal",
        tags: ["portals"],
        summary: "Register a portal",
        description:
          "Not idempotent by key: a repeat with the same name is refused as `invalid-request` with a fault on `/name`. If the token was lost on the way, add another.",
        body: portalRequest.meta({
          id: "PortalRequest",
          examples: [{ name: "county-east", role: "portal", key_required: false }],
        }),
        response: {
          201: answer(newPortal, "Registered, with its first token.", {
            example: { id: exampleId, name: "county-east", role: "portal", token: "gg_…" },
          }),
          ...problemResponses(...bodyProblems),
        },
      },
    },
    async (request, reply) => {
      const portal = await reads.run((db) => createPortal(db, request.body, actorOf(request)))
      return reply.code(201).send(portal)
    },
  )

  app.get(
    "/v1/portals",
    {
      config: { roles: ["operator", "auditor"] },
      schema: {
        operationId: "listPortals",
        tags: ["portals"],
        summary: "All portals, by name",
        response: {
          200: answer(portalList, "All of them; there are few.", { example: { items: [examplePortal] } }),
          ...problemResponses(),
        },
      },
    },
    async () => ({ items: await reads.run(listPortals) }),
  )

  app.post(
    "/v1/portals/:id/tokens",
    {
      config: { roles: ["operator"] },
      schema: {
        operationId: "addToken",
        tags: ["portals"],
        summary: "Add a token",
        description:
          "To rotate one: add, move the portal over, revoke the old. Keys belong to the portal, so retries go on working.",
        params: z.object({ id: portalId }),
        response: {
          201: answer(z.object({ id: z.string().describe("The token's id, to revoke it by"), token }), "Added.", {
            example: { id: exampleId, token: "gg_…" },
          }),
          ...problemResponses("not-found"),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params
      const made = isUuid(id) ? await reads.run((db) => addToken(db, id, actorOf(request))) : null
      if (!made) throw notFound("portal")
      return reply.code(201).send(made)
    },
  )

  app.delete(
    "/v1/portals/:id/tokens/:token_id",
    {
      config: { roles: ["operator"] },
      schema: {
        operationId: "revokeToken",
        tags: ["portals"],
        summary: "Revoke a token",
        description: "For good, and repeatable. Other processes of the service follow within a second.",
        params: z.object({ id: portalId, token_id: uuid.describe("The token's id, not the token itself") }),
        response: { 204: noContent("Revoked."), ...problemResponses("not-found") },
      },
    },
    async (request, reply) => {
      const { id, token_id } = request.params
      const found =
        isUuid(id) && isUuid(token_id) && (await reads.run((db) => revokeToken(db, id, token_id, actorOf(request))))
      if (!found) throw notFound("token")
      tokens.clear()
      return reply.code(204).send()
    },
  )

  app.get(
    "/v1/me",
    {
      config: { roles },
      schema: {
        operationId: "getMe",
        tags: ["portals"],
        summary: "Who this token is",
        response: {
          200: answer(
            z.object({ portal: z.string(), role: z.enum(roles), key_required: z.boolean() }),
            "The token's portal.",
            {
              example: { portal: "county-east", role: "portal", key_required: false },
            },
          ),
          ...problemResponses(),
        },
      },
    },
    async ({ caller }) => ({ portal: caller.portal, role: caller.role, key_required: caller.keyRequired }),
  )
}

/** What cannot be an id is not found, like one that is not there. */
export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text)
}
