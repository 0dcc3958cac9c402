/**
 * The load: wrk with submissions.lua where wrk is installed, else (and beside it) autocannon with requests made ahead, each in a process of its own,
 * so that what the load generator costs is known. A generator that makes each request anew in JavaScript would be the limit itself.
 */
import { accessSync, constants } from "node:fs"
import { delimiter, join } from "node:path"
import { fileURLToPath } from "node:url"
import { runProgram } from "./processes.js"

export interface Load {
  readonly url: string
  readonly token: string
  readonly connections: number
  readonly seconds: number
  readonly awards: number
  /** The same seed makes the same requests. */
  readonly seed: number
  /** Begin again after so many requests a thread; 0: never. */
  readonly cycle: number
  /** Begin with this one of them. */
  readonly from: number
}

export interface Measured {
  /** Answers that came, whatever they said. */
  readonly answers: number
  readonly seconds: number
  /** Answers of 400 and above. */
  readonly refused: number
  /** Connections that failed, timeouts. */
  readonly broken: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly maxMs: number
  readonly generatorCpuSeconds: number
}

export type Generator = "wrk" | "autocannon"

/** The program's path, looked for where programs are. */
export function findProgram(name: string, folders: readonly string[] = []): string | null {
  for (const folder of [...(process.env.PATH ?? "").split(delimiter), ...folders]) {
    const file = join(folder, name)
    try {
      accessSync(file, constants.X_OK)
      return file
    } catch {
      // Not there.
    }
  }
  return null
}

const here = (file: string) => fileURLToPath(new URL(file, import.meta.url))
export const wrk = findProgram("wrk")

export function generate(load: Load, generator: Generator = wrk ? "wrk" : "autocannon"): Promise<Measured> {
  return generator === "wrk" ? runWrk(load) : runAutocannon(load)
}

interface WrkResult {
  answers: number
  microseconds: number
  refused: number
  broken: number
  p50: number
  p99: number
  max: number
}

async function runWrk(load: Load): Promise<Measured> {
  if (wrk === null) throw new Error("wrk is not installed")
  const { url, connections, seconds, token, seed, awards, cycle, from } = load
  // One thread sends many times what these servers answer; a second one would only take the core from them.
  const args = ["-t1", `-c${connections}`, `-d${seconds}s`, "--timeout", "10s", "-s", here("submissions.lua"), url]
  const { stdout, cpuSeconds } = await runProgram(wrk, [...args, "--", token, seed, awards, cycle, from].map(String), {
    ms: (seconds + 15) * 1000,
  })
  const text = /^RESULT (.*)$/m.exec(stdout)?.[1]
  if (text === undefined) throw new Error("wrk gave no result")
  const result = JSON.parse(text) as WrkResult
  return {
    answers: result.answers,
    seconds: result.microseconds / 1e6,
    refused: result.refused,
    broken: result.broken,
    p50Ms: result.p50 / 1000,
    p99Ms: result.p99 / 1000,
    maxMs: result.max / 1000,
    generatorCpuSeconds: cpuSeconds,
  }
}

async function runAutocannon(load: Load): Promise<Measured> {
  const args = ["--import", "tsx", here("autocannon-load.ts"), JSON.stringify(load)]
  const { stdout } = await runProgram(process.execPath, args, { ms: (load.seconds + 45) * 1000 })
  return JSON.parse(stdout) as Measured
}
