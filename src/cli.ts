#!/usr/bin/env node
/**
 * The one executable: its help, the list of its commands, and what becomes of a failure (one sentence, exit code 1). Knows nothing of how things
 * work; the commands do.
 */
import { Command } from "commander"
import { awardCommands } from "./commands/award.js"
import { CommandError, installation, sentenceOf } from "./commands/command.js"
import { destinationCommands } from "./commands/destination.js"
import { portalCommands } from "./commands/portal.js"
import { reconcileCommand } from "./commands/reconcile.js"
import { relayCommand } from "./commands/relay.js"
import { serveCommand } from "./commands/serve.js"
import { submitCommand } from "./commands/submit.js"
import { upkeepCommands } from "./commands/upkeep.js"

const program = new Command("grantgate")
  .description("Records grant award disbursements so that a retry never pays twice and never loses a payment.")
  .version(installation.version)
  .showHelpAfterError("(grantgate --help says more)")
  .addHelpText(
    "after",
    `
Examples:
  grantgate serve                                        an embedded Postgres, for trying it
  DATABASE_URL=postgres://… grantgate serve              on your own Postgres (14 to 18)
  grantgate portal create county-east --role portal      prints the portal's first token
  grantgate portal token add county-east                 one more, to rotate the old one
  grantgate award import awards.csv --reason "FY 2027"    registers awards, changes their rules
  grantgate submit july.csv                              records a file of submissions, each line once
  grantgate reconcile november.csv --portal county-east  a portal's own list against the ledger
  grantgate openapi --write openapi/openapi.json

Settings come from the environment: HOST, PORT, DATABASE_URL, GRANTGATE_DATA_DIR, LOG_LEVEL and more; the README lists them.`,
  )

serveCommand(program)
relayCommand(program)
portalCommands(program)
awardCommands(program)
submitCommand(program)
reconcileCommand(program)
destinationCommands(program)
upkeepCommands(program)

await program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`grantgate: ${sentenceOf(error)}\n`)
  process.exitCode = error instanceof CommandError ? error.exitCode : 1
})
