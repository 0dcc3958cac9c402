/**
 * Authentication and roles, in onRequest: before a body is read, before 404 and 405 under /v1, and far from the key store. A route under /v1
 * that does not say who may call it stops the start. What the caller learns from a refusal is the same for every wrong token.
 */
import type { FastifyRequest } from "fastify"
import type { Actor } from "../evidence/operator-actions.js"
import { type Caller, type Role, roles } from "../portals/portals.js"
import type { Tokens } from "../portals/tokens.js"
import { Problem } from "../problems.js"
import type { App } from "./deps.js"

/** RFC 6750 section 2.1; the scheme is case-insensitive (RFC 9110 section 11.1). */
const bearer = /^bearer +([A-Za-z0-9\-._~+/!#$%&'*^`|]+=*) *$/i

/** Adds the hooks. Call it before any route is registered. */
export function registerAuth(app: App, tokens: Pick<Tokens, "find">): void {
  app.decorateRequest("caller")

  app.addHook("onRoute", (route) => {
    if (isGuarded(route.url) && !route.config?.roles?.length) {
      throw new Error(`the route ${String(route.method)} ${route.url} must declare config.roles`)
    }
  })

  app.addHook("onRequest", (request, _reply, done) => {
    const allowed = request.routeOptions.config.roles ?? (request.is404 && isGuarded(request.url) ? roles : null)
    if (!allowed) {
      done()
      return
    }
    // A token seen a moment ago is known at once; only others take a promise.
    try {
      const caller = authenticate(tokens, request, allowed)
      if (caller instanceof Promise) {
        caller.then((found) => {
          request.caller = found
          done()
        }, done)
      } else {
        request.caller = caller
        done()
      }
    } catch (error) {
      done(error as Error)
    }
  })
}

/**
 * Who makes the request, now or when the database has said so.
 * @throws Problem unauthenticated or forbidden; rejects with those, too, or with what the database throws when it cannot be asked
 */
export function authenticate(
  tokens: Pick<Tokens, "find">,
  request: FastifyRequest,
  allowed: readonly Role[],
): Caller | Promise<Caller> {
  const header = request.headers.authorization
  if (header === undefined) throw new Problem("unauthenticated", "The request has no Authorization header.")
  const token = bearer.exec(header)?.[1]
  if (token === undefined) throw new Problem("unauthenticated", "The Authorization header is not `Bearer <token>`.")
  const found = tokens.find(token)
  return found instanceof Promise ? found.then((caller) => permit(caller, allowed)) : permit(found, allowed)
}

function permit(caller: Caller | null, allowed: readonly Role[]): Caller {
  if (!caller) throw new Problem("unauthenticated", "The token is not known, or has been revoked.")
  if (!allowed.includes(caller.role)) {
    throw new Problem(
      "forbidden",
      `This needs a token with the role ${allowed.join(" or ")}; the role of this one is ${caller.role}.`,
    )
  }
  return caller
}

/** Who acts, for the record of what operators did. */
export function actorOf({ caller, id }: FastifyRequest): Actor {
  return { portalId: caller.portalId, requestId: id }
}

/** True for what needs a token whether it exists or not, so that nobody can probe for paths. */
export function isGuarded(url: string): boolean {
  return /^\/v1(?:[/?#]|$)/.test(url)
}
