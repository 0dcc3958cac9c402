/**
 * `grantgate destination …` and `grantgate outbox …`: where events go, what waits, and what becomes of events that were not taken.
 */
import type { Command } from "commander"
import { BrokerError } from "../broker/broker.js"
import { readDestinationSecret } from "../config.js"
import { commandLine } from "../evidence/operator-actions.js"
import { limits } from "../limits.js"
import { listParked, readBacklog, redriveParked, skipParked } from "../outbox/backlog.js"
import { type DestinationKind, destinationConfigs, destinationName, openBroker } from "../outbox/destination-config.js"
import { addDestination, listDestinations, pauseDestination, removeDestination } from "../outbox/destinations.js"
import { CommandError, installation, loadConfig, print, withReads } from "./command.js"

interface AddOptions {
  readonly url?: string
  readonly fromBeginning: boolean
  readonly check: boolean
  readonly [member: string]: unknown
}

export function destinationCommands(program: Command): void {
  const destination = program.command("destination").description("Destinations: where recorded events are delivered")
  addCommands(destination)

  destination
    .command("list")
    .description("All destinations, and what waits for each")
    .action(async () => {
      await withReads(async (reads) => {
        for (const row of await reads.run(readBacklog)) {
          const state = row.disabled_reason !== null ? `disabled: ${row.disabled_reason}` : row.paused ? "paused" : "on"
          const oldest = row.oldest_age_seconds === null ? "" : `, oldest ${Math.round(row.oldest_age_seconds)} s`
          print(`${row.destination}  ${row.kind}  ${state}  pending ${row.pending}${oldest}, parked ${row.parked}`)
        }
      })
    })

  destination
    .command("test <name>")
    .description("Look whether the destination can be reached as it is configured; sends no event")
    .action(async (name: string) => {
      await withReads(async (reads) => {
        const found = (await reads.run(listDestinations)).find((one) => one.name === name)
        if (!found) throw new CommandError(`There is no destination ${name}.`)
        await checkBroker(found.kind, found.config)
        print(`${name} can be reached.`)
      })
    })

  for (const [command, paused, description] of [
    ["pause", true, "Deliver nothing there until it is resumed; its events wait"],
    ["resume", false, "Deliver again, also after the receiver had ended it (HTTP 410)"],
  ] as const) {
    destination
      .command(`${command} <name>`)
      .description(description)
      .action(async (name: string) => {
        await withReads(async (reads) => {
          const done = await reads.run((db) => pauseDestination(db, name, paused, commandLine))
          if (!done)
            throw new CommandError(`There is no destination ${name}, or its earlier events are being laid out.`)
          print(`${paused ? "Paused" : "Resumed"}. Running relays follow within ${limits.destinationsReadMs / 1000} s.`)
        })
      })
  }

  destination
    .command("remove <name>")
    .description("Remove it for good, with the events that wait for it")
    .action(async (name: string) => {
      await withReads(async (reads) => {
        const undelivered = await reads.run((db) => removeDestination(db, name, commandLine), removeMs)
        if (undelivered === null) throw new CommandError(`There is no destination ${name}.`)
        print(`Removed. ${undelivered} events were not delivered there.`)
      })
    })

  outboxCommands(program)
}

/** Laying out, or taking away, the events of years. */
const removeMs = 30 * 60_000

function addCommands(destination: Command): void {
  const add = destination.command("add").description("Add a destination; it gets every event from now on")
  const kinds: Record<DestinationKind, { description: string; options: [string, string][] }> = {
    webhook: {
      description: "POST each event to a URL, signed as Standard Webhooks say",
      options: [
        ["--url <url>", "where to"],
        [
          "--secret-env <names...>",
          "variable of the relay that holds the signing secret (whsec_…); two while one is replaced",
        ],
      ],
    },
    stdout: { description: "Print each event on the relay's standard output, to look at", options: [] },
  }
  for (const [kind, { description, options }] of Object.entries(kinds) as [
    DestinationKind,
    (typeof kinds)["stdout"],
  ][]) {
    const command = add
      .command(`${kind} <name>`)
      .description(description)
      .option("--from-beginning", "all events ever recorded, not only from now on", false)
      .option("--no-check", "do not look whether it can be reached")
    for (const [flags, text] of options) command.requiredOption(flags, text)
    command.action(async (name: string, { fromBeginning, check, ...given }: AddOptions) => {
      const members = Object.fromEntries(
        Object.entries(given).map(([member, value]) => [member.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), value]),
      )
      const config = destinationConfigs[kind].safeParse(members)
      const named = destinationName.safeParse(name)
      if (!named.success) throw new CommandError(`The name ${named.error.issues[0]?.message}.`)
      if (!config.success) {
        const fault = config.error.issues[0]
        throw new CommandError(`--${String(fault?.path[0] ?? "").replace("_", "-")}: ${fault?.message}.`)
      }
      if (check) await checkBroker(kind, config.data)
      await withReads(async (reads) => {
        const row = { name, kind, config: config.data, fromBeginning }
        const id = await reads.run((db) => addDestination(db, row, commandLine), removeMs)
        if (id === null) throw new CommandError(`There is a destination ${name} already.`)
        print(`Added ${name}. Running relays follow within ${limits.destinationsReadMs / 1000} s.`)
      })
    })
  }
}

/** @throws CommandError with what keeps it from being used */
async function checkBroker(kind: DestinationKind, config: unknown): Promise<void> {
  const settings = {
    secret: readDestinationSecret,
    allowPrivate: loadConfig().webhookPrivate,
    version: installation.version,
  }
  try {
    const broker = await openBroker(kind, config, settings)
    try {
      await broker.check(limits.brokerConnectMs)
    } finally {
      await broker.close()
    }
  } catch (error) {
    if (error instanceof BrokerError) throw new CommandError(error.message)
    throw error
  }
}

function outboxCommands(program: Command): void {
  const outbox = program.command("outbox").description("Events that were not taken: redrive or skip them")

  outbox
    .command("parked")
    .description("Parked events, oldest first")
    .option("--destination <name>")
    .action(async ({ destination }: { destination?: string }) => {
      await withReads(async (reads) => {
        for (const one of await reads.run((db) => listParked(db, destination ?? null, null, limits.pageItemsMax)))
          print(
            `${one.id}  ${one.destination}  ${one.type}  ${one.subject}  ${one.reason}, ${one.attempts} attempts, ${one.waiting} wait behind it`,
          )
      })
    })

  outbox
    .command("redrive <id>")
    .description("Send a parked event again, with a new count of attempts; `all` for every parked one")
    .option("--destination <name>", "only there")
    .option("--reason <text>", "why, for the record")
    .action(async (id: string, { destination, reason }: { destination?: string; reason?: string }) => {
      const which = { eventId: id === "all" ? null : eventId(id), destination: destination ?? null }
      await withReads(async (reads) => {
        const n = await reads.run((db) => redriveParked(db, which, commandLine, reason ?? null))
        if (n === 0) throw new CommandError("No such event is parked.")
        print(`Goes again: ${n}.`)
      })
    })

  outbox
    .command("skip <id>")
    .description("Give a parked event up: the destination never gets it, and what waits behind it flows")
    .option("--destination <name>", "only there")
    .option("--reason <text>", "why, for the record")
    .action(async (id: string, { destination, reason }: { destination?: string; reason?: string }) => {
      const which = { eventId: eventId(id), destination: destination ?? null }
      await withReads(async (reads) => {
        const n = await reads.run((db) => skipParked(db, which, commandLine, reason ?? null))
        if (n === 0) throw new CommandError("No such event is parked.")
        print(`Skipped: ${n}.`)
      })
    })
}

function eventId(text: string): string {
  if (/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text)) return text.toLowerCase()
  throw new CommandError("An event's id is a UUID; `outbox parked` shows them.")
}
