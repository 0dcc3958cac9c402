/**
 * The service as processes: started as it was built before the tests, listened to, killed by their own id. What a process said is kept, so that a test can
 * wait for a line of it and search all of it.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../..", import.meta.url))
/** Long, for a busy machine. */
const startMs = 60_000

/** A test that is killed tears nothing down: what it started sees that its parent is gone, and goes too. */
const endWithParent = `data:text/javascript,${encodeURIComponent(
  "const parent = process.ppid; setInterval(() => process.ppid === parent || process.kill(process.pid, 'SIGKILL'), 500).unref()",
)}`

export const bootstrapToken = "bootstrap-token-of-the-tests-0123456789"

export interface Process {
  readonly child: ChildProcess
  readonly ended: Promise<{ code: number | null; signal: string | null }>
  /** Standard output and error so far. */
  output(): string
  /** Resolves when the output has it; rejects when the process ends without. */
  said(pattern: RegExp): Promise<RegExpExecArray>
  /** Signals it and waits for its end. */
  kill(signal?: NodeJS.Signals): Promise<{ code: number | null; signal: string | null }>
}

export interface Server extends Process {
  readonly url: string
}

type Teardown = (work: () => Promise<unknown>) => unknown

/** The executable as it ships; `npm test` builds it first. */
export const executable = "dist/src/cli.js"

/** Runs a program of this repository. Nothing of our environment reaches it but `env`. @param teardown kills it when the test ends */
export function startProcess(
  teardown: Teardown,
  file: string,
  args: readonly string[],
  env: Record<string, string>,
): Process {
  const child = spawn(
    process.execPath,
    ["--import", endWithParent, ...(file.endsWith(".ts") ? ["--import", "tsx"] : []), file, ...args],
    {
      cwd: root,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, PORT: "0", ...env },
      stdio: ["ignore", "pipe", "pipe"],
    },
  )
  let output = ""
  const listeners = new Set<() => void>()
  const ended = once(child, "close").then(([code, signal]) => ({ code, signal }))
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (chunk: string) => {
      output += chunk
      for (const look of listeners) look()
    })
  }
  const kill = (signal: NodeJS.Signals = "SIGKILL") => {
    child.kill(signal)
    return ended
  }
  teardown(() => kill())
  const said = (pattern: RegExp) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      const done = () => {
        listeners.delete(look)
        clearTimeout(late)
      }
      const look = () => {
        const found = pattern.exec(output)
        if (!found) return
        done()
        resolve(found)
      }
      const fail = (why: string) => {
        done()
        reject(new Error(`${why} ${pattern}:\n${output}`))
      }
      const late = setTimeout(() => fail("it did not say"), startMs)
      listeners.add(look)
      void ended.then(() => fail("it ended without saying"))
      look()
    })
  return { child, ended, output: () => output, said, kill }
}

/** Starts a server on the database and waits until it listens. @param file another program that serves, with its arguments */
export async function startServer(
  teardown: Teardown,
  databaseUrl: string,
  env: Record<string, string> = {},
  file: readonly string[] = [executable, "serve"],
): Promise<Server> {
  const [program = "", ...args] = file
  const started = startProcess(teardown, program, args, {
    DATABASE_URL: databaseUrl,
    GRANTGATE_BOOTSTRAP_TOKEN: bootstrapToken,
    ...env,
  })
  const [, url = ""] = await started.said(/"msg":"listening on (http:[^"]+)"/)
  return { ...started, url }
}
