/**
 * The OpenAPI document as text, without a database: the app is built from parts that are never used.
 */
import { readConfig } from "../config.js"
import { Reads } from "../db/client.js"
import { buildApp } from "./app.js"
import type { AppDeps } from "./deps.js"

/** Pretty, with a line's end at its end: the same bytes for the same routes. */
export async function renderOpenapi(): Promise<string> {
  // Connects when first used, which is never.
  const reads = new Reads("postgres://127.0.0.1/unused", { max: 1, preparedStatements: false })
  const gate = new Proxy({} as AppDeps["gate"], {
    get: () => {
      throw new Error("this app only describes itself")
    },
  })
  const app = buildApp({ config: readConfig({}), reads, gate })
  try {
    await app.ready()
    return `${JSON.stringify(app.swagger(), null, 2)}\n`
  } finally {
    await app.close()
    await reads.end()
  }
}
