/**
 * `grantgate award …`: awards and their rules, for whoever has the database. An import is checked whole before anything is written, and written whole
 * or not at all.
 */
import { readFile, stat } from "node:fs/promises"
import cliProgress from "cli-progress"
import type { Command } from "commander"
import type { Db } from "../db/client.js"
import { commandLine } from "../evidence/operator-actions.js"
import { checkAwards, type Imported, importAwards, type OnProgress, type Refusal } from "../ledger/award-import.js"
import { type AwardView, listAwards, readAward, readHistory } from "../ledger/award-reads.js"
import { awardKey, printableText } from "../ledger/submission.js"
import { limits } from "../limits.js"
import { findMissingPortals } from "../portals/portals.js"
import { awardColumns, type FileAward, type LineFault, readAwardFile } from "./award-file.js"
import { CommandError, print, withReads } from "./command.js"

export function awardCommands(program: Command): void {
  const award = program
    .command("award")
    .description("Awards: what may be disbursed, by whom and when; and what is left")

  award
    .command("import <file>")
    .description("Register awards and change their rules from a CSV file, all or none")
    .option("--reason <text>", "why, kept with each change")
    .addHelpText(
      "after",
      `
Columns, in any order, after a header: ${awardColumns.join(", ")}.
An empty cell is the rule's default; a rule whose column is missing stays as it is. Portals are separated by semicolons.`,
    )
    .action(async (file: string, { reason = null }: { reason?: string | null }) => {
      if (reason !== null && !printableText(limits.reasonCharsMax).safeParse(reason).success)
        throw new CommandError(`The reason must have 1 to ${limits.reasonCharsMax} printable characters.`)
      const { awards, faults } = readAwardFile(await readWhole(file))
      if (awards.length === 0) throw faulty(file, faults)
      await withReads((reads) => reads.run((db) => importFile(db, file, awards, faults, reason), limits.importMs))
    })

  award
    .command("list")
    .description("All awards, what they have disbursed and what is left")
    .action(async () => {
      await withReads(async (reads) => {
        let last: string | null = null
        do {
          const after: string | null = last
          const page: Awaited<ReturnType<typeof listAwards>> = await reads.run((db) =>
            listAwards(db, null, after, limits.pageItemsMax),
          )
          for (const row of page) print(describe(row))
          last = page.at(limits.pageItemsMax - 1)?.award_key ?? null
        } while (last !== null)
      })
    })

  award
    .command("show <award-id>")
    .description("One award, its rules and totals, and how the rules came to be")
    .action(async (id: string) => {
      await withReads(async (reads) => {
        const found = await reads.run((db) => readAward(db, awardKey(id), null))
        if (!found) throw new CommandError(`There is no award ${id}.`)
        for (const [name, value] of Object.entries(found)) print(`${name.padEnd(26)} ${JSON.stringify(value)}`)
        const versions = await reads.run((db) => readHistory(db, awardKey(id), 0, limits.pageItemsMax))
        for (const version of versions)
          print(
            `version ${version.rules_version}  ${version.changed_at}  ${version.changed_by ?? "command line"}  ${version.reason ?? ""}`.trimEnd(),
          )
      })
    })
}

async function readWhole(file: string): Promise<Buffer> {
  const found = await stat(file).catch(() => null)
  if (!found?.isFile()) throw new CommandError(`There is no file ${file}.`)
  if (found.size > limits.importBytesMax)
    throw new CommandError(
      `${file} is larger than ${limits.importBytesMax / 1024 ** 2} MiB; split it. Nothing was changed.`,
    )
  return readFile(file)
}

/** @param faults what the file alone has shown: the rest of it is looked at all the same, so that all is told at once */
async function importFile(
  db: Db,
  file: string,
  awards: readonly FileAward[],
  faults: readonly LineFault[],
  reason: string | null,
): Promise<void> {
  const named = [...new Set(awards.flatMap(({ sent }) => sent.portals ?? []))]
  const missing = new Set(named.length === 0 ? [] : await findMissingPortals(db, named))
  const strangers = awards.flatMap(({ line, sent }) =>
    (sent.portals ?? [])
      .filter((name) => missing.has(name))
      .map((name) => ({ line, detail: `portals: there is no portal ${JSON.stringify(name)}` })),
  )
  const toFault = ({ at, problem }: Refusal): LineFault => ({
    line: awards[at]?.line ?? 0,
    detail: problem.detail.replace(/ Nothing was changed\.$/, ""),
  })

  const { onProgress, end } = showProgress()
  let imported: Imported
  try {
    if (faults.length + strangers.length > 0) {
      const { refused } = await checkAwards(db, awards, onProgress)
      throw faulty(file, [...faults, ...strangers, ...refused.map(toFault)])
    }
    imported = await importAwards(db, awards, reason, commandLine, onProgress)
  } finally {
    end()
  }
  if (!imported.written) throw faulty(file, imported.refused.map(toFault))
  const { added, changed, unchanged } = imported
  print(`${file}: ${added} new, ${changed} changed, ${unchanged} unchanged.`)
}

/** A bar on a terminal, nothing elsewhere. */
function showProgress(): { onProgress: OnProgress; end(): void } {
  if (!process.stderr.isTTY) return { onProgress: () => {}, end: () => {} }
  const bar = new cliProgress.SingleBar(
    { format: "{phase} {bar} {value} of {total} awards", stream: process.stderr, clearOnComplete: true },
    cliProgress.Presets.shades_classic,
  )
  let shown: string | null = null
  return {
    onProgress(phase, done, of) {
      if (shown !== phase) bar.start(of, 0, { phase })
      shown = phase
      bar.update(done, { phase })
    },
    end: () => bar.stop(),
  }
}

/** Every faulty line in order, as many as a person reads. */
function faulty(file: string, faults: readonly LineFault[]): CommandError {
  const told = faults
    .toSorted((a, b) => a.line - b.line)
    .slice(0, limits.importFaultsMax)
    .map(({ line, detail }) => `  line ${line}: ${detail}`)
  const more = faults.length - told.length
  const count = faults.length === 1 ? "one fault" : `${faults.length} faults`
  return new CommandError(
    [`${file} has ${count}; nothing was changed.`, ...told, ...(more > 0 ? [`  and ${more} more`] : [])].join("\n"),
  )
}

function describe(award: AwardView): string {
  const ceiling =
    award.obligated_cents === null
      ? "no ceiling"
      : `obligated ${award.obligated_cents}  available ${award.available_cents}`
  return `${award.award_id}  ${award.currency}  ${award.status}  net ${award.net_cents}  ${ceiling}  version ${award.rules_version}`
}
