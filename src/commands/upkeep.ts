/**
 * Commands for those who run or build it: the schema of the database, the OpenAPI document, the settings.
 */
import { readFile, writeFile } from "node:fs/promises"
import { type Command, Option } from "commander"
import { describeEnvironment } from "../config.js"
import { renderOpenapi } from "../http/render-openapi.js"
import { CommandError, loadConfig, print, withDatabase } from "./command.js"

export function upkeepCommands(program: Command): void {
  program
    .command("migrate")
    .description("Bring the database to this version's schema, and exit")
    .action(async () => {
      await withDatabase({ ...loadConfig(), migrate: true }, async () => print("The schema is current."))
    })

  program
    .command("openapi")
    .description("Print the OpenAPI document")
    .addOption(new Option("--write <file>", "write it to a file instead").conflicts("check"))
    .option("--check <file>", "exit 1 unless the file holds exactly this document")
    .action(async (options: { write?: string; check?: string }) => {
      const text = await renderOpenapi()
      if (options.check !== undefined) {
        const kept = await readFile(options.check, "utf8").catch(() => null)
        if (kept !== text)
          throw new CommandError(`${options.check} is stale. Run: grantgate openapi --write ${options.check}`)
      } else if (options.write !== undefined) await writeFile(options.write, text)
      else process.stdout.write(text)
    })

  program
    .command("config")
    .description("Print every setting with its meaning and default, as an env file")
    .action(() => {
      process.stdout.write(describeEnvironment())
    })
}
