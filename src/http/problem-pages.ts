/**
 * The pages that a problem's `type` leads to: what happened, whether anything was recorded, what to do. Made from the catalogue, so that they
 * cannot go stale; open to all, because they say nothing about anyone.
 */
import { Problem, type ProblemCode, type ProblemKind, problems, type Retry } from "../problems.js"
import type { App } from "./deps.js"

const outcomes = {
  not_applied: "Nothing was recorded by this request.",
  applied: "What the request asks for is recorded already.",
  unknown: "It may or may not have been recorded.",
} as const

/** In the order in which they are listed. */
const retries: Record<Retry, string> = {
  "same-key": "Send the same request again with the same idempotency key.",
  never: "Do not send it again.",
  "new-key": "Only with a new idempotency key, and only if it is meant as another request.",
  "after-fixing": "Correct the request first; the same idempotency key may be used.",
}

export function problemPages(app: App): void {
  app.get("/problems", { schema: { hide: true } }, async (_request, reply) => {
    reply.header("content-type", "text/html; charset=utf-8")
    return listPage
  })

  app.get<{ Params: { code: string } }>("/problems/:code", { schema: { hide: true } }, async (request, reply) => {
    const page = pages.get(request.params.code)
    if (page === undefined) throw new Problem("not-found", "There is no such problem.")
    reply.header("content-type", "text/html; charset=utf-8")
    return page
  })
}

const entries = Object.entries(problems) as [ProblemCode, ProblemKind][]

const pages = new Map<string, string>(
  entries.map(([code, kind]) => [
    code,
    htmlPage(
      kind.title,
      `<p><a href="/problems">All problems</a></p>
<h1>${escapeHtml(kind.title)}</h1>
<table>
<tr><th>Code</th><td><code>${code}</code></td></tr>
<tr><th>Status</th><td>${kind.status}</td></tr>
<tr><th>Outcome</th><td><code>${kind.outcome}</code>: ${outcomes[kind.outcome]}</td></tr>
<tr><th>Retry</th><td><code>${kind.retry}</code>: ${retries[kind.retry]}</td></tr>
${kind.retryAfter ? "<tr><th>Wait</th><td>For the seconds in the <code>Retry-After</code> header.</td></tr>\n" : ""}</table>
<h2>What to do</h2>
<p>${prose(kind.advice)}</p>
<p>The reply's own <code>outcome</code> and <code>retry</code> count where they differ from this page. Give its <code>instance</code>, the request's id, to whoever runs the service.</p>`,
    ),
  ]),
)

const listPage = htmlPage(
  "Problems",
  `<h1>Problems</h1>
<p>Every refusal of grantgate is <code>application/problem+json</code>. Its <code>code</code> is one of these; its <code>retry</code> says what to do, and its <code>outcome</code> whether anything was recorded.</p>
${(Object.keys(retries) as Retry[]).map(listOf).join("\n")}`,
)

/** The problems that ask for the same. */
function listOf(retry: Retry): string {
  const rows = entries
    .filter(([, kind]) => kind.retry === retry)
    .map(
      ([code, kind]) =>
        `<tr><td><a href="/problems/${code}"><code>${code}</code></a></td><td>${kind.status}</td><td>${escapeHtml(kind.title)}</td><td><code>${kind.outcome}</code></td></tr>`,
    )
  return `<h2><code>${retry}</code></h2>
<p>${retries[retry]}</p>
<table class="list">
<tr><th>Code</th><th>Status</th><th>Title</th><th>Outcome</th></tr>
${rows.join("\n")}
</table>`
}

function htmlPage(title: string, main: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>${escapeHtml(title)} · grantgate</title>
<style>
:root { color-scheme: light dark; --text: #1b1f24; --ground: #fff; --line: #d5d9de; --link: #0b57d0 }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7eb; --ground: #16181c; --line: #3a3f46; --link: #8ab4f8 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: var(--text); background: var(--ground) }
h1, h2 { line-height: 1.25 }
h2 { margin-top: 2.5rem }
a { color: var(--link) }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .4rem 1rem .4rem 0; border-bottom: 1px solid var(--line) }
th { width: 1% } .list th:nth-child(3) { width: auto }
code { font-size: .95em }
@media (min-width: 48rem) { .list :is(th, td) { white-space: nowrap } .list td:nth-child(3) { white-space: normal } }
@media (max-width: 48rem) { .list :is(th, td):nth-child(4) { display: none } th, td { padding-right: .6rem } }
</style>
</head>
<body>
<main>
${main}
</main>
</body>
</html>
`
}

/** The catalogue's text, with its `code` marked. */
function prose(text: string): string {
  return escapeHtml(text).replace(/`([^`]+)`/g, "<code>$1</code>")
}

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;")
}
