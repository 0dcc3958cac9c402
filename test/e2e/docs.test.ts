/**
 * The pages for people, in a real browser: /docs works without the internet from the token to the replay, and the problem pages read well on any
 * screen. Screenshots of a failed test are kept and their folder printed. CHROMIUM_PATH names the browser, where it is not in its usual place.
 */
import { existsSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Browser, type BrowserContextOptions, chromium, type Locator, type Page } from "playwright-core"
import t, { type Test } from "tap"
import { startService } from "../support/service.js"

/** The longest that a page may take to show what it is waited for; a busy machine needs seconds to draw Swagger UI. */
const showMs = 30_000
const telephone = { width: 390, height: 844 }
const desktop = { width: 1280, height: 900 }

const named = process.env.CHROMIUM_PATH
const program = (named ? [named] : ["/usr/bin/chromium", "/usr/bin/chromium-browser"]).find((path) => existsSync(path))
// A run that must be complete does not pass over what it could not look at.
const skip =
  program === undefined && process.env.GRANTGATE_TEST_COMPLETE !== "1"
    ? "no browser: install Debian's chromium, or name one in CHROMIUM_PATH"
    : false

async function launch(t: Test): Promise<Browser> {
  if (program === undefined) throw new Error("there is no Chromium, and GRANTGATE_TEST_COMPLETE asks for all tests")
  const browser = await chromium.launch({
    executablePath: program,
    // Tests run as root in containers, where Chromium's sandbox cannot.
    chromiumSandbox: false,
    args: [
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--disable-dev-shm-usage",
    ],
  })
  t.teardown(() => browser.close())
  return browser
}

/** A page that notes whatever must not happen: errors on the console, violations of the content policy, requests to other hosts. */
async function openPage(browser: Browser, url: string, options: BrowserContextOptions = {}) {
  const context = await browser.newContext({ viewport: desktop, serviceWorkers: "block", ...options })
  context.setDefaultTimeout(showMs)
  const faults: string[] = []
  await context.route("**/*", (route) => {
    const wanted = route.request().url()
    if (new URL(wanted).origin === url) return route.continue()
    faults.push(`asked for ${wanted}`)
    return route.abort()
  })
  await context.addInitScript(
    `addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective + " " + event.blockedURI))`,
  )
  const page = await context.newPage()
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(message.text())
  })
  page.on("pageerror", (error) => faults.push(String(error)))
  return { page, faults }
}

/** Takes pictures of a page into a folder that stays when the test fails. */
async function makeCamera(t: Test): Promise<(page: Page, name: string) => Promise<unknown>> {
  const folder = await mkdtemp(join(tmpdir(), "grantgate-docs-"))
  t.teardown(async () => {
    if (t.passing()) await rm(folder, { recursive: true })
    else t.comment(`kept the screenshots of this failed test: ${folder}`)
  })
  return (page, name) => page.screenshot({ path: join(folder, `${name}.png`), fullPage: true })
}

/** Whether all of the page fits beside each other: a page that scrolls sideways is not read on a telephone. */
function fits(page: Page): Promise<boolean> {
  return page.evaluate("document.documentElement.scrollWidth <= innerWidth") as Promise<boolean>
}

t.test(
  "the docs record a submission and replay it, from nothing but a token and clicks, offline",
  { skip },
  async (t) => {
    const browser = await launch(t)
    const service = await startService(t)
    const photograph = await makeCamera(t)
    const { token } = await service.portal("east")
    const { page, faults } = await openPage(browser, service.url)
    await page.goto(`${service.url}/docs`)
    const submit = page.locator("#operations-submissions-submit")
    await submit.waitFor()
    t.equal(await page.locator(".topbar").count(), 0, "no bar to load other documents with")
    await photograph(page, "docs")

    await page.getByRole("button", { name: "Authorize" }).first().click()
    const dialog = page.locator(".auth-container")
    await dialog.getByRole("textbox").fill(token)
    await dialog.getByRole("button", { name: "Apply credentials" }).click()
    await page.getByRole("button", { name: "Close", exact: true }).last().click()

    await submit.locator(".opblock-summary-control").click()
    t.match(await submit.locator("textarea").inputValue(), /"award_id"/, "the example is filled in")
    const key = submit.locator("[data-param-name='Idempotency-Key'] input")
    t.equal(await key.inputValue(), '"inv-7781-a"', "and its key")
    await key.fill('"clicked-1"')

    const first = await execute(submit, 201)
    t.match(first, /"status": "recorded"/)
    t.match(first, /idempotency-key: "clicked-1"/)
    t.notMatch(first, /idempotent-replayed/)
    await photograph(page, "recorded")
    const second = await execute(submit, 200)
    t.match(second, /idempotent-replayed: true/)
    t.match(second, /idempotency-original-status: 201/)
    t.equal(bodyOf(second), bodyOf(first), "the same answer")
    const { body: ledger } = await service.call("GET", "/v1/disbursements", { token })
    t.match(ledger.items, [{ id: JSON.parse(bodyOf(first)).id, idempotency_key: "clicked-1" }])
    t.equal(ledger.items.length, 1, "recorded once")
    t.same(faults.splice(0), [])

    await submit.locator("textarea").fill((await submit.locator("textarea").inputValue()).replace("125000", "125001"))
    t.match(await execute(submit, 422), /"differs": \[\s*"\/amount_cents"\s*\]/)
    t.match(faults.splice(0), [/status of 422/], "the browser's own word for it, and nothing else")

    await page.setViewportSize(telephone)
    t.ok(await fits(page), "it fits a telephone")
    await photograph(page, "docs-telephone")
    t.same(faults, [])
  },
)

/** Presses Execute, and answers what the page shows of the answer, once that has the status. */
async function execute(operation: Locator, status: number): Promise<string> {
  await operation.getByRole("button", { name: "Execute" }).click()
  const shown = operation.locator(".live-responses-table .response")
  await shown.filter({ has: operation.page().locator(`.response-col_status:text("${status}")`) }).waitFor()
  // biome-ignore lint/performance/useDomNodeTextContent: only what is on view
  return shown.innerText()
}

function bodyOf(shown: string): string {
  return shown.slice(shown.indexOf("{"), shown.lastIndexOf("}") + 1)
}

t.test("the problem pages fit any screen, and follow its light or dark", { skip }, async (t) => {
  const browser = await launch(t)
  const service = await startService(t)
  const photograph = await makeCamera(t)
  const grounds = new Set<unknown>()
  for (const colorScheme of ["light", "dark"] as const) {
    for (const [width, viewport] of Object.entries({ desktop, telephone })) {
      const { page, faults } = await openPage(browser, service.url, { viewport, colorScheme })
      for (const path of [
        "/problems",
        "/problems/idempotency-key-reused",
        "/problems/submission-timestamp-in-future",
      ]) {
        const about = `${path}, ${colorScheme}, ${width}`
        await page.goto(`${service.url}${path}`)
        t.ok(await fits(page), about)
        await photograph(page, about.replaceAll(/\W+/g, "-"))
        grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
      }
      await page.getByRole("link", { name: "All problems" }).click()
      await page.getByRole("link", { name: "idempotency-key-reused" }).click()
      await page.getByRole("heading", { name: "The key was used for another request" }).waitFor()
      t.same(faults, [], `${colorScheme}, ${width}`)
    }
  }
  t.equal(grounds.size, 2, "one ground for each")
})
