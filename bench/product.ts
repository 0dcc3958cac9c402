/** The product as it is built, started on a cell's database with its default settings and its log in a file; and a portal to call it with. */
import { join } from "node:path"
import { type Server, startServer } from "./processes.js"

const bootstrapToken = "bootstrap-token-of-the-benchmark-0123456789"

export interface Product extends Server {
  readonly submissions: string
  readonly portalId: string
  readonly token: string
  /** Registers an award with this ceiling. */
  putAward(awardId: string, obligatedCents: number): Promise<void>
  /** How its submissions ended so far, by outcome, as /metrics counts them. */
  outcomes(): Promise<Record<string, number>>
}

/** @param root the folder of `dist/src/cli.js` */
export async function startProduct(
  root: string,
  databaseUrl: string,
  env: Record<string, string>,
  outputFile: string,
): Promise<Product> {
  const server = await startServer(
    [join(root, "dist/src/cli.js"), "serve"],
    { DATABASE_URL: databaseUrl, GRANTGATE_BOOTSTRAP_TOKEN: bootstrapToken, LOG_LEVEL: "info", ...env },
    { readyPath: "/readyz", outputFile },
  )
  const asOperator = { authorization: `Bearer ${bootstrapToken}` }
  const made = await fetch(`${server.url}/v1/portals`, {
    method: "POST",
    headers: { ...asOperator, "content-type": "application/json" },
    body: JSON.stringify({ name: "bench", role: "portal" }),
  })
  if (made.status !== 201) throw new Error(`the portal was not made: ${made.status}`)
  const { id, token } = (await made.json()) as { id: string; token: string }
  return {
    ...server,
    submissions: `${server.url}/v1/submissions`,
    portalId: id,
    token,
    async putAward(awardId, obligatedCents) {
      const put = await fetch(`${server.url}/v1/awards/${awardId}`, {
        method: "PUT",
        headers: { ...asOperator, "content-type": "application/json" },
        body: JSON.stringify({ currency: "USD", obligated_cents: obligatedCents }),
      })
      if (!put.ok) throw new Error(`the award was not registered: ${put.status}`)
    },
    async outcomes() {
      const text = await (await fetch(`${server.url}/metrics`, { headers: asOperator })).text()
      const counted = text.matchAll(
        /^grantgate_submissions_total\{operation="submission",outcome="(\w+)"\} (\d+(?:\.\d+)?(?:e\+\d+)?)$/gm,
      )
      return Object.fromEntries(Array.from(counted, ([, outcome = "", count]) => [outcome, Number(count)]))
    },
  }
}
