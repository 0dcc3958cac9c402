/**
 * The security headers of every answer: helmet's own, worked out once. Its middleware would work them out again at each request, which costs more
 * than the rest of the framework's part in a replay.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import helmet from "helmet"

const middleware = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'self'"],
      baseUri: ["'none'"],
      formAction: ["'self'"],
      frameAncestors: ["'none'"],
      imgSrc: ["'self'", "data:"],
      objectSrc: ["'none'"],
      scriptSrc: ["'self'"],
      // Swagger UI and the problem pages style inline.
      styleSrc: ["'self'", "'unsafe-inline'"],
    },
  },
  // Whether sibling hosts use https is not this service's to say.
  strictTransportSecurity: { maxAge: 31_536_000, includeSubDomains: false },
})

/** By lower-case name; the same for every request. */
export const securityHeaders: Readonly<Record<string, string>> = collect()

function collect(): Record<string, string> {
  const headers: Record<string, string> = {}
  const response = {
    setHeader: (name: string, value: string) => (headers[name.toLowerCase()] = value),
    removeHeader: () => {},
  }
  middleware({} as IncomingMessage, response as unknown as ServerResponse, (error?: unknown) => {
    if (error) throw error
  })
  return Object.freeze(headers)
}
