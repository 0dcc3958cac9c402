/**
 * Bodies: strict JSON and nothing else, looked at in the order 415, 413, 400. The text as received is kept for the evidence.
 */
import type { IncomingHttpHeaders } from "node:http"
import { readJson } from "../ledger/strict-json.js"
import { limits } from "../limits.js"
import { Problem } from "../problems.js"
import type { App } from "./deps.js"

declare module "fastify" {
  interface FastifyRequest {
    /** The body's bytes as received; empty when there is none. */
    bodyBytes: Buffer
  }
}

const nothing = Buffer.alloc(0)

export function registerBodies(app: App): void {
  app.decorateRequest("bodyBytes")
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(
    "application/json",
    { parseAs: "buffer", bodyLimit: limits.bodyBytesMax },
    (request: { bodyBytes: Buffer }, bytes: Buffer, done) => {
      request.bodyBytes = bytes
      done(null, undefined)
    },
  )
  // Not in the parser: what a parser throws closes the connection, as if the body had not been read.
  app.addHook("preValidation", (request, _reply, done) => {
    try {
      if (request.bodyBytes.length > 0) request.body = readJson(request.bodyBytes)
      // Where none is needed none is missed: clients send the Content-Type on a DELETE or a bodyless POST, too.
      else if (request.routeOptions.schema?.body !== undefined && request.body === undefined)
        throw new Problem("malformed-json", "The body is empty.")
      done()
    } catch (error) {
      done(error as Error)
    }
  })

  app.addHook("preParsing", (request, _reply, payload, done) => {
    request.bodyBytes = nothing
    done(refuseBody(request.headers), payload)
  })
}

/** Why a body is not read, by its headers. */
function refuseBody(headers: IncomingHttpHeaders): Problem | null {
  if (headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0) return null
  const encoding = headers["content-encoding"]
  if (encoding !== undefined && encoding.trim().toLowerCase() !== "identity") {
    return new Problem("media-type-unsupported", "A body with a content encoding is not read here.")
  }
  // JSON is UTF-8 (RFC 8259 section 8.1); another charset would be read as something it is not.
  const charset = /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(headers["content-type"] ?? "")?.[1]
  if (charset !== undefined && !/^utf-?8$/i.test(charset)) {
    return new Problem("media-type-unsupported", "The body's charset is not UTF-8.")
  }
  return null
}
