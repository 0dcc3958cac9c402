/**
 * The one place that shapes problem+json (RFC 9457): from a Problem, from whatever else was thrown, and for requests that were too broken
 * to become one. What is not a Problem never shows its own text: messages of libraries and of the database hold values.
 */
import { STATUS_CODES } from "node:http"
import type { Socket } from "node:net"
import type { FastifyReply, FastifyRequest } from "fastify"
import { isUnavailable } from "../db/client.js"
import { limits } from "../limits.js"
import { Problem, type ProblemCode, type Retry } from "../problems.js"

export const problemContentType = "application/problem+json"

/** Statuses of HTTP itself that say more than the catalogue's, for requests that could not be read. */
export type ProtocolStatus = 400 | 408 | 431

/** What HTTP itself knows better than the catalogue. */
interface Override {
  readonly status: ProtocolStatus
  readonly retry: Retry
}

/** The body of a problem reply, and the problem of a batch's line. */
export function problemBody(problem: Problem, publicUrl: string, instance: string, override?: Override): string {
  const { allow: _header, outcome, ...members } = problem.members
  return JSON.stringify({
    type: problemType(publicUrl, problem.code),
    title: problem.kind.title,
    status: override?.status ?? problem.kind.status,
    detail: problem.detail,
    instance,
    code: problem.code,
    outcome: outcome ?? problem.kind.outcome,
    retry: override?.retry ?? problem.kind.retry,
    ...members,
  })
}

/** Absolute, and served as a page. */
export function problemType(publicUrl: string, code: ProblemCode): string {
  return `${publicUrl}/problems/${code}`
}

/** The headers that go with a problem, by lower-case name. */
function problemHeaders(problem: Problem, tokenSent: boolean): Record<string, string> {
  return {
    "content-type": problemContentType,
    "cache-control": "no-store",
    ...(problem.kind.retryAfter ? { "retry-after": String(limits.retryAfterSeconds) } : {}),
    ...(problem.members.allow !== undefined ? { allow: problem.members.allow } : {}),
    // RFC 6750 section 3.1: no error code when no token was sent.
    ...(problem.kind.status === 401
      ? { "www-authenticate": `Bearer realm="grantgate"${tokenSent ? ', error="invalid_token"' : ""}` }
      : {}),
  }
}

/** Sends the problem; the reply is finished with it. */
export function replyProblem(request: FastifyRequest, reply: FastifyReply, problem: Problem): FastifyReply {
  const body = problemBody(problem, request.server.publicUrl(), request.id)
  request.refusal = problem.code
  return (
    reply
      .code(problem.kind.status)
      .headers(problemHeaders(problem, request.headers.authorization !== undefined))
      .header("request-id", request.id)
      // A Buffer: for text Fastify would add a charset that this media type does not have.
      .send(Buffer.from(body))
  )
}

/** What the caller may know of anything that was thrown. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error
  const code = error instanceof Error ? (error as Error & { code?: unknown }).code : undefined
  if (typeof code === "string" && code.startsWith("FST_")) return frameworkProblem(code)
  // A body that ended too soon: the client went away, or lied about the length.
  if (code === "ECONNRESET" || code === "ERR_STREAM_PREMATURE_CLOSE") {
    return new Problem("malformed-json", "The body ended before it was complete.")
  }
  if (isUnavailable(error)) return new Problem("unavailable", "The database did not answer in time.")
  return internalProblem()
}

export function internalProblem(): Problem {
  return new Problem(
    "internal",
    "Something failed that should not have. The log has it under the request id in `instance`.",
  )
}

function frameworkProblem(code: string): Problem {
  switch (code) {
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
    case "FST_ERR_CTP_EMPTY_TYPE":
      return new Problem(
        "media-type-unsupported",
        "The body's Content-Type is missing, or not the one that this operation reads.",
      )
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new Problem("body-too-large", `The body is larger than ${limits.bodyBytesMax} bytes.`)
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return new Problem("malformed-json", "The body's size is not what Content-Length says.")
    case "FST_ERR_CTP_EMPTY_JSON_BODY":
    case "FST_ERR_CTP_INVALID_JSON_BODY":
      return new Problem("malformed-json", "The body is not JSON.")
    case "FST_ERR_BAD_URL":
      return urlProblem("The path is not valid percent-encoded UTF-8.")
    case "FST_ERR_MAX_PARAM_LENGTH":
      return urlProblem(`A part of the path is longer than ${limits.pathParamCharsMax} characters.`)
    case "FST_ERR_NOT_FOUND":
      return new Problem("not-found", "There is no such path.")
    default:
      return internalProblem()
  }
}

function urlProblem(detail: string): Problem {
  return new Problem("invalid-request", detail, { errors: [{ pointer: "", code: "invalid-path", detail }] })
}

/** Answers a connection whose bytes did not make a request, and closes it. */
export function writeRawProblem(
  socket: Socket,
  status: ProtocolStatus,
  detail: string,
  publicUrl: string,
  instance: string,
): void {
  const problem = new Problem("invalid-request", detail, { errors: [{ pointer: "", code: "unreadable", detail }] })
  const body = problemBody(problem, publicUrl, instance, {
    status,
    // What only came too slowly may come again as it is.
    retry: status === 408 ? "same-key" : problem.kind.retry,
  })
  const headers = {
    ...problemHeaders(problem, false),
    "request-id": instance,
    "content-length": String(Buffer.byteLength(body)),
  }
  const lines = Object.entries({ ...headers, date: new Date().toUTCString(), connection: "close" }).map(
    ([k, v]) => `${k}: ${v}\r\n`,
  )
  // Nobody else listens any more, and an error that nobody hears ends the process.
  socket.on("error", () => socket.destroy())
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`)
}
