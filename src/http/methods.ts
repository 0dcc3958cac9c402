/**
 * 405 with `Allow` where the path exists and the method does not. The router knows only pairs of method and path, so each path gets a route
 * for the methods it lacks, which refuses after the token has been looked at and before a body is read.
 */
import { METHODS } from "node:http"
import { type Role, roles } from "../portals/portals.js"
import { Problem } from "../problems.js"
import { isGuarded } from "./auth.js"
import type { App } from "./deps.js"

/**
 * Collects the routes that are registered from now on.
 * @returns adds the refusals; to be called when all routes are registered
 */
export function registerMethodCheck(app: App): (scope: App) => void {
  /** Who may learn that a method is missing: whoever has a token where one is needed. */
  const known = new Map<string, readonly Role[] | null>()
  let collecting = true

  app.addHook("onRoute", (route) => {
    if (!collecting || route.url.includes("*")) return
    known.set(route.url, isGuarded(route.url) || route.config?.roles ? roles : null)
  })
  // The router takes only methods it has heard of.
  for (const method of METHODS)
    if (method !== "CONNECT" && !app.supportedMethods.includes(method)) app.addHttpMethod(method)

  app.addHook("onRequest", (request, _reply, done) => {
    done(request.is404 ? new Problem("not-found", "There is no such path.") : undefined)
  })

  return (scope) => {
    collecting = false
    for (const [url, allowed] of known) {
      // The router is asked, too: a plugin's prefix stands for two paths, and not each of them is announced with each method.
      const missing = scope.supportedMethods.filter((method) => !scope.hasRoute({ method, url }))
      const allow = scope.supportedMethods
        .filter((method) => !missing.includes(method))
        .sort()
        .join(", ")
      if (missing.length === 0) continue
      scope.route({
        method: missing,
        url,
        schema: { hide: true },
        ...(allowed ? { config: { roles: allowed } } : {}),
        onRequest: async (request) => {
          throw new Problem("method-not-allowed", `This path has no ${request.method}; it has ${allow}.`, { allow })
        },
        handler: async () => {
          throw new Error("refused in onRequest")
        },
      })
    }
  }
}
