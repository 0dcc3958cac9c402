/** For looking: each message as a line on standard output. A line that the reader did not take holds up the rest. */
import type { Broker } from "./broker.js"

export function stdoutBroker(out: NodeJS.WritableStream = process.stdout): Broker {
  return {
    inFlightMax: 64,
    publish: ({ body }) =>
      new Promise((resolve) => {
        out.write(`${body}\n`, (error) =>
          resolve(error ? { kind: "unreachable", reason: "standard output is closed" } : { kind: "delivered" }),
        )
      }),
    check: async () => {},
    close: async () => {},
  }
}
