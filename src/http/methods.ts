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
  const known = new Map<string, { methods: Set<string>; roles: readonly Role[] | null }>()
  let collecting = true

  app.addHook("onRoute", (route) => {
    if (!collecting || route.url.includes("*")) return
    const path = known.get(route.url) ?? {
      methods: new Set(),
      roles: isGuarded(route.url) || route.config?.roles ? roles : null,
    }
    for (const method of [route.method].flat()) path.methods.add(method)
    known.set(route.url, path)
  })
  // The router takes only methods it has heard of.
  for (const method of METHODS)
    if (method !== "CONNECT" && !app.supportedMethods.includes(method)) app.addHttpMethod(method)

  app.addHook("onRequest", async (request) => {
    if (request.is404) throw new Problem("not-found", "There is no such path.")
  })

  return (scope) => {
    collecting = false
    for (const [url, path] of known) {
      const allow = [...path.methods].sort().join(", ")
      scope.route({
        method: scope.supportedMethods.filter((method) => !path.methods.has(method)),
        url,
        schema: { hide: true },
        ...(path.roles ? { config: { roles: path.roles } } : {}),
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
