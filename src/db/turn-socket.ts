/**
 * The driver's sockets, which send what is written in one turn of the event loop with one system call. The driver flushes each statement of more
 * than 1 KiB by itself: a group's five writes were five calls, and each call may wake the server.
 */
import { Socket } from "node:net"

/** What the driver knows of where to connect: hosts with their ports, tried in turn, or the path of a Unix socket. */
interface Where {
  readonly host: readonly string[]
  readonly port: readonly number[]
  readonly path?: string | false
}

/** Makes the `socket` option of a client. It answers at once: writes wait in the socket until it is connected, and the driver hears of errors from it. */
export function turnSockets(): (where: Where) => Socket {
  let tries = 0
  return ({ host, port, path }) => {
    const socket = new Socket()
    if (path) return gatherWrites(socket.connect(path))
    const at = tries++ % port.length
    // The driver reads both: for the certificate's name, and for its errors.
    Object.assign(socket, { host: host[at], port: port[at] })
    return gatherWrites(socket.connect(port[at] ?? 5432, host[at] ?? "localhost"))
  }
}

/** Call it after `connect`, which puts node's own `write` back. */
function gatherWrites(socket: Socket): Socket {
  // Given up while it was connecting: the driver leaves such a socket alone, and it would wait for its server.
  socket.once("connect", () => {
    if (socket.listenerCount("data") === 0) socket.destroy()
  })
  const { write } = socket
  let gathering = false
  socket.write = (...args: unknown[]) => {
    if (!gathering) {
      gathering = true
      socket.cork()
      process.nextTick(() => {
        gathering = false
        socket.uncork()
      })
    }
    return Reflect.apply(write, socket, args)
  }
  return socket
}
