/**
 * `grantgate portal …`: portals and their tokens, for whoever has the database.
 */
import { type Command, Option } from "commander"
import { commandLine } from "../evidence/operator-actions.js"
import { limits } from "../limits.js"
import {
  addToken,
  createPortal,
  findPortalByName,
  listPortals,
  portalRequest,
  type Role,
  revokeToken,
  roles,
} from "../portals/portals.js"
import { CommandError, print, withReads } from "./command.js"

export function portalCommands(program: Command): void {
  const portal = program.command("portal").description("Portals: who may call, and with which tokens")

  portal
    .command("create <name>")
    .description("Register a portal and print its first token, which is shown only this once")
    .addOption(new Option("--role <role>", "what its tokens may do").choices(roles).default("portal"))
    .option("--key-required", "refuse its submissions without an Idempotency-Key", false)
    .action(async (name: string, options: { role: Role; keyRequired: boolean }) => {
      const request = portalRequest.safeParse({ name, role: options.role, key_required: options.keyRequired })
      if (!request.success) throw new CommandError(`The name ${request.error.issues[0]?.message ?? "is not valid"}.`)
      await withReads(async (reads) => {
        const made = await reads.run((db) => createPortal(db, request.data, commandLine))
        print(`Portal ${made.name} (${made.role}), id ${made.id}. Its token, shown only this once:`)
        print(made.token)
      })
    })

  portal
    .command("list")
    .description("All portals and their tokens' ids")
    .action(async () => {
      await withReads(async (reads) => {
        for (const row of await reads.run(listPortals)) {
          print(`${row.name}  ${row.role}${row.key_required ? "  key required" : ""}  ${row.id}`)
          for (const token of row.tokens) print(`  token ${token.id}  since ${token.created_at}`)
        }
      })
    })

  const token = portal.command("token").description("Tokens of a portal")

  token
    .command("add <portal>")
    .description("Print a new token, beside those the portal has")
    .action(async (name: string) => {
      await withReads(async (reads) => {
        const made = await reads.run(async (db) => addToken(db, (await portalNamed(db, name)).id, commandLine))
        if (!made) throw new CommandError(`There is no portal ${name} to add a token to.`)
        print(`Token ${made.id}, shown only this once:`)
        print(made.token)
      })
    })

  token
    .command("revoke <portal> <token-id>")
    .description("Revoke a token for good; `portal list` shows the ids")
    .action(async (name: string, tokenId: string) => {
      await withReads(async (reads) => {
        const isId = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(tokenId)
        const found =
          isId &&
          (await reads.run(async (db) => revokeToken(db, (await portalNamed(db, name)).id, tokenId, commandLine)))
        if (!found) throw new CommandError(`Portal ${name} has no token with this id.`)
        print(`Revoked. Running servers follow within ${limits.tokenCacheMs / 1000} s.`)
      })
    })
}

async function portalNamed(db: Parameters<typeof findPortalByName>[0], name: string): Promise<{ id: string }> {
  const found = await findPortalByName(db, name)
  if (!found) throw new CommandError(`There is no portal ${name}.`)
  return found
}
