/**
 * `grantgate reconcile FILE`: a portal's own list against the ledger, for whoever has the database. The exit code says whether they agree.
 */
import { createReadStream } from "node:fs"
import { writeFile } from "node:fs/promises"
import { type Command, Option } from "commander"
import { readPortalId } from "../db/reading.js"
import { csvHeader, csvRows } from "../ledger/csv.js"
import { readListing } from "../ledger/listing.js"
import { comparisons, reconcile } from "../ledger/reconciliation.js"
import { exceptionColumns, summaryOf } from "../ledger/reconciliation-report.js"
import { normaliseTimestamp, timestampText } from "../ledger/submission.js"
import { CommandError, print, withReads } from "./command.js"

interface Options {
  readonly portal: string
  readonly from?: string
  readonly to?: string
  readonly compare: (typeof comparisons)[number]
  readonly out?: string
}

export function reconcileCommand(program: Command): void {
  program
    .command("reconcile <file>")
    .description("Compare a portal's own list (.csv or .ndjson) with the ledger; exit code 2 when they differ")
    .requiredOption("--portal <name>", "whose list it is")
    .option("--from <instant>", "recorded at or after it, such as 2026-11-01T00:00:00-05:00")
    .option("--to <instant>", "recorded before it")
    .addOption(
      new Option("--compare <how>", "each line, or what is left of each").choices(comparisons).default("lines"),
    )
    .option("--out <file>", "write all exceptions to this CSV file")
    .action(async (file: string, options: Options) => {
      const [from, to] = [instant("--from", options.from), instant("--to", options.to)]
      const type = /\.(?:ndjson|jsonl)$/i.test(file) ? "application/x-ndjson" : "text/csv"
      const listed = await readListing(type, createReadStream(file)).catch((error: NodeJS.ErrnoException) => {
        throw error.code === "ENOENT" ? new CommandError(`There is no file ${file}.`) : error
      })
      await withReads(async (reads) => {
        const ownerId = await reads.run((db) => readPortalId(db, options.portal))
        if (ownerId === null) throw new CommandError(`There is no portal ${options.portal}.`)
        const asked = { ownerId, awardKey: null, from, to, compare: options.compare }
        const found = await reconcile(reads, asked, listed)
        const { exceptions, currencies } = summaryOf(asked, options.portal, found)
        print(`${found.lines} lines, ${found.matched} agree with the ledger`)
        for (const [kind, count] of Object.entries(exceptions)) if (count > 0) print(`  ${kind}: ${count}`)
        for (const { currency, listed, recorded } of currencies)
          print(`${currency}: listed ${listed}, recorded ${recorded}`)
        if (options.out !== undefined) {
          await writeFile(options.out, csvHeader(exceptionColumns) + csvRows(exceptionColumns, found.exceptions))
        } else if (found.exceptions.length > 0) print("--out FILE.csv writes them all.")
        if (found.exceptions.length > 0) process.exitCode = 2
      })
    })
}

function instant(option: string, text: string | undefined): string | null {
  if (text === undefined) return null
  if (!timestampText.safeParse(text).success) {
    throw new CommandError(`${option} must be an instant such as 2026-11-01T00:00:00-05:00.`)
  }
  return normaliseTimestamp(text)
}
