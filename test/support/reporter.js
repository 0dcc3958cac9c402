/**
 * Prints a test run for people and for scripts: a line for each file, each failure with what it expected and where, and as the very last
 * line `N passed, N failed, N skipped`. A test is a `t.test` without tests in it. A test or file that asserts nothing fails the run: tap
 * would call it a skip. Plain JavaScript, since tap's runner loads it without a compiler.
 */
import { Transform } from "node:stream"
import { Parser } from "tap-parser"

const NO_ASSERTION = "asserts nothing"

export default class Reporter extends Transform {
  #parser = new Parser()
  #counts = { passed: 0, failed: 0, skipped: 0 }

  constructor() {
    super({ encoding: "utf8" })
    this.#parser.on("child", (file) => this.#watchFile(file))
    this.#parser.on("bailout", (reason) => this.#fail("the run was given up", { message: reason }))
    // The root's results are files; what a file's own tests do not explain (a crash, a timeout, no test at all) is known only here.
    this.#parser.on("assert", (result) => this.#endFile(result))
    process.once("exit", (code) => {
      const { passed, failed, skipped } = this.#counts
      if (failed > 0 && code === 0) process.exitCode = 1
      process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`)
    })
  }

  _transform(chunk, _encoding, done) {
    this.#parser.write(chunk)
    done()
  }

  _flush(done) {
    this.#parser.end()
    done()
  }

  #file = null

  #watchFile(parser) {
    this.#file = { passed: 0, failed: 0, skipped: 0, reports: [] }
    this.#watch(parser, [])
  }

  /**
   * Follows one test and the tests in it.
   * @param titles the tests around this one and itself, outermost first; empty for a file
   */
  #watch(parser, titles) {
    const file = this.#file
    /** Tests in this one, the latest of them, and failed assertions of its own. */
    let inner = 0
    let latest = null
    let failedHere = 0
    /** tap says a second time that a test failed when it ends after its timeout. */
    const failedTests = new Set()
    parser.on("child", (child) => {
      inner++
      latest = this.#watch(child, [...titles, child.name])
    })
    parser.on("comment", (text) => {
      if (text.startsWith("# kept the ")) file.reports.push(`      ${text.slice(2).trim()}`)
    })
    parser.on("assert", (result) => {
      const where = [...titles, result.name]
      if (result.closingTestPoint && !result.ok) failedTests.add(result.name)
      if (!result.closingTestPoint) {
        // An assertion, or a test that was skipped before it began.
        if (result.skip || result.todo) this.#skip(file, where, result)
        else if (!result.ok && !failedTests.has(result.name)) {
          failedHere++
          this.#report(file, where, result.diag ?? {})
        }
      } else if (latest?.isLeaf()) {
        if (result.skip || result.todo) this.#skip(file, where, result)
        else if (!result.ok) file.failed++
        else if (latest.asserts() === 0) {
          file.failed++
          this.#report(file, where, { message: NO_ASSERTION })
        } else file.passed++
      }
    })
    // Assertions beside tests are no tests, but none of them fails unseen.
    parser.on("complete", (results) => {
      if (inner > 0) file.failed += failedHere
      else if (titles.length === 0 && results.count > file.skipped) file[results.ok ? "passed" : "failed"]++
    })
    return { isLeaf: () => inner === 0, asserts: () => parser.count }
  }

  #endFile(result) {
    const file = this.#file ?? { passed: 0, failed: 0, skipped: 0, reports: [] }
    this.#file = null
    if (
      result.skip === "no tests found" ||
      (result.ok && !result.skip && file.passed + file.failed + file.skipped === 0)
    ) {
      file.failed++
      this.#report(file, [], { message: NO_ASSERTION })
    } else if (result.ok && result.skip) file.skipped++
    else if (!result.ok) {
      if (file.failed === 0) file.failed++
      if (file.reports.length === 0) this.#report(file, [], { message: endOf(result.diag), ...result.diag })
    }
    for (const outcome of Object.keys(this.#counts)) this.#counts[outcome] += file[outcome]
    const seconds = ((result.time ?? 0) / 1000).toFixed(1)
    const skipped = file.skipped > 0 ? `, ${file.skipped} skipped` : ""
    const failed = file.failed > 0 ? `, ${file.failed} failed` : ""
    this.push(
      `${file.failed > 0 ? "FAIL" : "ok  "} ${result.name} (${file.passed} passed${failed}${skipped}; ${seconds} s)\n`,
    )
    for (const report of file.reports) this.push(`${report}\n`)
  }

  #fail(title, diag) {
    this.#counts.failed++
    this.push(`FAIL ${title}\n${describe(diag)}\n`)
  }

  #skip(file, titles, { skip, todo }) {
    file.skipped++
    file.reports.push(
      `  - ${titles.join(" › ")}: skipped, ${[skip, todo].find((why) => typeof why === "string") ?? "without a reason"}`,
    )
  }

  #report(file, titles, diag) {
    file.reports.push(`  ✗ ${titles.join(" › ")}`.trimEnd(), describe(diag))
  }
}

/** How a file ended that none of its tests explains. */
function endOf(diag) {
  if (diag?.signal) return `ended by ${diag.signal}${diag.expired ? ", out of time" : ""}`
  return diag?.exitCode ? `exit code ${diag.exitCode}` : "did not pass"
}

/** What a person needs of tap's diagnostics: what happened, expected against found, and where. */
function describe(diag) {
  const lines = []
  for (const name of ["message", "code", "tapCaught", "compare", "expired", "signal", "exitCode"])
    if (diag[name] !== undefined && diag[name] !== null) lines.push(`${name}: ${diag[name]}`)
  if (diag.diff) lines.push(diag.diff)
  else
    for (const name of ["wanted", "found", "expected"])
      if (name in diag) lines.push(`${name}: ${JSON.stringify(diag[name])}`)
  for (const [name, value] of Object.entries(diag.cause ?? {})) lines.push(`cause.${name}: ${String(value)}`)
  if (diag.stack) lines.push(diag.stack.trimEnd())
  else if (diag.at?.fileName) lines.push(`${diag.at.fileName}:${diag.at.lineNumber}:${diag.at.columnNumber}`)
  return lines
    .flatMap((text) => text.trimEnd().split("\n"))
    .map((line) => `      ${line}`)
    .join("\n")
}
