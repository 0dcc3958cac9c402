/**
 * Where this program lies: its version, and the folder in which a relative data directory is kept. Works from `src` and from `dist/src`.
 */
import { existsSync, readFileSync } from "node:fs"
import { relative, sep } from "node:path"
import { fileURLToPath } from "node:url"

const root = ["..", "../.."]
  .map((up) => fileURLToPath(new URL(up, import.meta.url)).replace(/[/\\]$/, ""))
  .find((folder) => existsSync(`${folder}/package.json`))

if (root === undefined) throw new Error("package.json of this installation is missing")

const { version } = JSON.parse(readFileSync(`${root}/package.json`, "utf8")) as { version: string }
/** As a dependency of something else: its folder is replaced at each install, and must hold no data. */
const isDependency = root.split(sep).includes("node_modules")

export const installation = {
  version,
  /** A checkout keeps its data in itself, so that it does not matter where a command is started; a dependency keeps it where it is started. */
  home: isDependency ? process.cwd() : root,
  /** How to call this program again. */
  command: isDependency ? "npx grantgate" : `node ${relative(process.cwd(), `${root}/dist/src/cli.js`)}`,
} as const
