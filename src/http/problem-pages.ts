/**
 * The pages that a problem's `type` leads to: what happened, whether anything was recorded, what to do. Made from the catalogue, so that they
 * cannot go stale; open to all, because they say nothing about anyone.
 */
import { Problem, type ProblemCode, type ProblemKind, problems } from "../problems.js"
import type { App } from "./deps.js"

const outcomes = {
  not_applied: "Nothing was recorded by this request.",
  applied: "What the request asks for is recorded already.",
  unknown: "It may or may not have been recorded.",
} as const

const retries = {
  "after-fixing": "Correct the request first; the same idempotency key may be used.",
  "same-key": "Send the same request again with the same idempotency key.",
  "new-key": "Only with a new idempotency key, and only if it is meant as another request.",
  never: "Do not send it again.",
} as const

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
<p>Every refusal of grantgate is <code>application/problem+json</code> and carries one of these codes.</p>
<table>
<tr><th>Code</th><th>Status</th><th>Title</th><th>Outcome</th><th>Retry</th></tr>
${entries
  .map(
    ([code, kind]) =>
      `<tr><td><a href="/problems/${code}"><code>${code}</code></a></td><td>${kind.status}</td><td>${escapeHtml(kind.title)}</td><td><code>${kind.outcome}</code></td><td><code>${kind.retry}</code></td></tr>`,
  )
  .join("\n")}
</table>`,
)

function htmlPage(title: string, main: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>${escapeHtml(title)} · grantgate</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; background: #fff }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid #d5d9de }
code { font-size: .95em }
@media (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #16181c } a { color: #8ab4f8 } th, td { border-color: #3a3f46 } }
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
