/**
 * Connections whose bytes did not make a request: garbage, headers over the limit, a request that never came to its end. Node reports them with a
 * socket and nothing else, so the answer is written by hand; then the connection is closed, because nothing on it can be trusted any more.
 */
import type { Socket } from "node:net"
import { newId } from "../ids.js"
import { type ProtocolStatus, writeRawProblem } from "./problem-replies.js"

/** Connections whose request may take longer than others, since it shows that it goes on. */
const unhurried = new WeakSet<Socket>()

/** Lets the request that is under way take its time. @returns ends that */
export function letTakeItsTime(socket: Socket): () => void {
  unhurried.add(socket)
  return () => unhurried.delete(socket)
}

/** Answers 400, 408 or 431, unless an answer has begun already. */
export function writeUnreadable(error: NodeJS.ErrnoException, socket: Socket, publicUrl: string): void {
  if (error.code === "ERR_HTTP_REQUEST_TIMEOUT" && unhurried.has(socket)) return
  if (error.code === "ECONNRESET" || !socket.writable || answerHasBegun(socket)) {
    socket.destroy()
    return
  }
  const { status, detail } = reasonOf(error.code)
  // What the client still sends is thrown away; it may read the answer before the connection ends.
  socket.once("finish", () => socket.destroySoon())
  writeRawProblem(socket, status, detail, publicUrl, newId())
}

/** A tunnel is not something this server makes. */
export function refuseConnect(socket: Socket, publicUrl: string): void {
  writeRawProblem(socket, 400, "CONNECT is not served here.", publicUrl, newId())
}

function reasonOf(code: string | undefined): { status: ProtocolStatus; detail: string } {
  if (code === "HPE_HEADER_OVERFLOW") return { status: 431, detail: "The request's line and headers are too large." }
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return { status: 408, detail: "The request did not arrive in time." }
  return { status: 400, detail: "This is not an HTTP request that can be read." }
}

/** Node keeps the response of a connection's current request there; bytes of ours inside it would be part of someone's answer. */
function answerHasBegun(socket: Socket): boolean {
  const current = (socket as Socket & { _httpMessage?: { headersSent?: boolean } | null })._httpMessage
  return current?.headersSent === true
}
