/**
 * `grantgate submit FILE`: a file of submissions to a running service, with a progress bar, a summary, and the exceptions in a file. It may be
 * interrupted and run again at any time: each line is recorded once. Exit codes: 0 all recorded or replayed, 1 some lines were not, 2 not finished.
 */
import { once } from "node:events"
import { createWriteStream, type WriteStream } from "node:fs"
import { stat } from "node:fs/promises"
import { extname } from "node:path"
import { SingleBar } from "cli-progress"
import { type Command, Option } from "commander"
import { stringify } from "csv-stringify/sync"
import { readClientConfig } from "../config.js"
import { limits } from "../limits.js"
import { CommandError, print } from "./command.js"
import { type LineProblem, type OnAnswer, submitLines } from "./submit-batch.js"
import { type FileLine, type Format, readFileLines } from "./submit-file.js"

interface Options {
  readonly url?: string
  readonly token?: string
  readonly format?: Format
  readonly exceptions?: string
  readonly patience: string
}

type Ending = "recorded" | "replayed" | "conflicting" | "refused" | "invalid" | "unfinished"

export function submitCommand(program: Command): void {
  program
    .command("submit <file>")
    .description("Send a file of submissions, NDJSON or CSV, to a running service; run it again after any interruption")
    .option("--url <url>", "the service (default: GRANTGATE_URL, else http://127.0.0.1:3000)")
    .option("--token <token>", "the portal's token (default: GRANTGATE_TOKEN, which other users cannot see)")
    .addOption(new Option("--format <format>", "of the file (default: by its name)").choices(["ndjson", "csv"]))
    .option("--exceptions <file>", "write what was not recorded there, a line each; as CSV if its name ends so")
    .option("--patience <seconds>", "give up after so long without an answer", String(limits.submitPatienceSeconds))
    .addHelpText(
      "after",
      `
Exit codes: 0 all lines recorded, now or before; 1 some are refused, conflicting or invalid; 2 not finished.
A CSV file has a header line that names its columns: the members of a submission, and idempotency_key. Amounts are
whole numbers in minor units (cents).`,
    )
    .action(submitFile)
}

async function submitFile(file: string, options: Options): Promise<void> {
  const { url, token } = { ...readClientConfig(), ...options }
  if (!token) throw new CommandError("There is no token: set GRANTGATE_TOKEN, or --token.", 2)
  if (!URL.canParse(url) || !/^https?:/.test(url)) throw new CommandError("--url is not an http or https address.", 2)
  const patience = Number(options.patience)
  if (!(patience > 0)) throw new CommandError("--patience is not a number of seconds.", 2)
  const found = await stat(file).catch(() => null)
  if (!found?.isFile()) throw new CommandError(`There is no file ${file}.`, 2)

  const counts: Record<Ending, number> = {
    recorded: 0,
    replayed: 0,
    conflicting: 0,
    refused: 0,
    invalid: 0,
    unfinished: 0,
  }
  const exceptions = new Exceptions(options.exceptions ?? null)
  const bar = startBar(found.size)
  const onAnswer: OnAnswer = (line, status, problem) => {
    const ending = endingOf(status, problem)
    counts[ending] += 1
    bar?.update(Math.min(line.offset, found.size))
    if (problem !== null) exceptions.add(line, status, problem)
  }
  const format = options.format ?? (extname(file).toLowerCase() === ".csv" ? "csv" : "ndjson")
  try {
    await submitLines(readFileLines(file, format), { url, token, patienceMs: patience * 1_000 }, onAnswer)
  } finally {
    bar?.stop()
    await exceptions.end()
    printSummary(counts)
  }
  if (counts.unfinished > 0) process.exitCode = 2
  else if (counts.conflicting + counts.refused + counts.invalid > 0) process.exitCode = 1
}

/** `unfinished` only where there are some. */
function printSummary({ unfinished, ...rest }: Record<Ending, number>): void {
  const figures = Object.entries(unfinished > 0 ? { ...rest, unfinished } : rest)
  print(figures.map(([ending, count]) => `${ending} ${count}`).join(", "))
}

function endingOf(status: number | null, problem: LineProblem | string | null): Ending {
  if (problem === null) return status === 201 ? "recorded" : "replayed"
  if (typeof problem === "string") return "invalid"
  if (problem.retry === "same-key") return "unfinished"
  if (problem.code === "idempotency-key-reused") return "conflicting"
  return status === 400 || status === 413 ? "invalid" : "refused"
}

/** Only for a person: what runs unattended gets the summary. */
function startBar(bytes: number): SingleBar | null {
  if (!process.stderr.isTTY) return null
  const bar = new SingleBar({
    format: "{bar} {percentage} %  {eta_formatted} left",
    stream: process.stderr,
    hideCursor: true,
  })
  bar.start(bytes, 0)
  return bar
}

/** Lines that were not recorded: all of them in a file, or the first few on the terminal. */
class Exceptions {
  readonly #csv: boolean
  readonly #file: WriteStream | null
  #count = 0

  constructor(file: string | null) {
    this.#csv = file !== null && extname(file).toLowerCase() === ".csv"
    this.#file = file === null ? null : createWriteStream(file)
    this.#file?.on("error", () => {
      process.stderr.write("grantgate: the exceptions cannot be written to the file\n")
      process.exit(2)
    })
    if (this.#csv) this.#file?.write(stringify([["line", "status", "code", "detail", "disbursement_id"]]))
  }

  add({ line }: FileLine, status: number | null, problem: LineProblem | string): void {
    this.#count += 1
    const told: Partial<LineProblem> = typeof problem === "string" ? { code: "not-sent", detail: problem } : problem
    const detail = [
      told.detail,
      ...(told.errors ?? []).map((fault) => `${fault.pointer} ${fault.detail}.`),
      ...(told.differs ?? []),
    ].join(" ")
    if (this.#csv) this.#file?.write(stringify([[line, status, told.code, detail, told.disbursement_id]]))
    else if (this.#file) this.#file.write(`${JSON.stringify({ line, status, ...told })}\n`)
    else if (this.#count <= limits.submitShownMax) process.stderr.write(`line ${line}: ${told.code}: ${detail}\n`)
  }

  async end(): Promise<void> {
    const more = this.#count - limits.submitShownMax
    if (this.#file) await once(this.#file.end(), "close")
    else if (more > 0) process.stderr.write(`and ${more} more: --exceptions FILE keeps them all\n`)
  }
}
