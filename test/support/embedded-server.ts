/**
 * A process that runs the embedded Postgres in the folder it is given, for tests to kill or to run as another user. Prints one line of
 * JSON, `{url}` or `{refused}`, and stays until its standard input ends.
 */
import { EmbeddedError, startEmbedded } from "../../src/db/embedded.js"

const quiet = { info: () => {}, warn: () => {} }
try {
  const embedded = await startEmbedded({ dataDir: process.argv[2] ?? "", log: quiet })
  console.log(JSON.stringify({ url: embedded.url }))
  process.stdin.resume()
  process.stdin.once("end", () => void embedded.stop())
} catch (error) {
  if (!(error instanceof EmbeddedError)) throw error
  console.log(JSON.stringify({ refused: error.message }))
}
