/** The same submissions as lines of one batch: what is left of the bound that set-based SQL alone sets, and what a batch is worth to its sender. */
import { fileURLToPath } from "node:url"
import { type Cell, loadOf, measureRows, withProduct } from "./cells.js"
import type { Load, Measured } from "./load.js"
import { runProgram } from "./processes.js"

export const batchCells: readonly Cell[] = [
  {
    letter: "g",
    key: "batch",
    label: "product, new submissions, one batch",
    run: (bench) =>
      withProduct(bench, {}, async (product, databaseUrl) => {
        const load = () => loadOf(bench, `${product.submissions}/batch`, product.token)
        await runBatch({ ...load(), seconds: bench.settings.warmUpSeconds })
        return measureRows(bench, "batch", databaseUrl, product, () => runBatch(load()), "new", 0)
      }),
  },
]

async function runBatch(load: Load): Promise<Measured> {
  const file = fileURLToPath(new URL("batch-load.ts", import.meta.url))
  const { stdout } = await runProgram(process.execPath, ["--import", "tsx", file, JSON.stringify(load)], {
    ms: (load.seconds + 45) * 1_000,
  })
  return JSON.parse(stdout) as Measured
}
