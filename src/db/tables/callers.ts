/**
 * Who calls: portals and their tokens. Every CHECK and index in this folder stands with its reason. What SQL cannot say through drizzle-kit
 * (append-only triggers, fill factors) stands in the custom migrations under drizzle/.
 */
import { sql } from "drizzle-orm"
import { boolean, check, index, pgTable, text, uniqueIndex, uuid } from "drizzle-orm/pg-core"
import { bytea, instant } from "./types.js"

/** Registered callers. A portal is the scope of its idempotency keys; its tokens come and go. */
export const portals = pgTable(
  "portals",
  {
    id: uuid("id").primaryKey(),
    name: text("name").notNull().unique("portals_name"),
    role: text("role", { enum: ["portal", "operator", "auditor"] }).notNull(),
    key_required: boolean("key_required").notNull().default(false),
    created_at: instant("created_at").notNull().defaultNow(),
  },
  (t) => [check("portals_role", sql`${t.role} IN ('portal', 'operator', 'auditor')`)],
)

/** Only hashes: a stolen copy of the database opens no door. Revoked tokens stay, as evidence of who could do what when. */
export const portalTokens = pgTable(
  "portal_tokens",
  {
    id: uuid("id").primaryKey(),
    portal_id: uuid("portal_id")
      .notNull()
      .references(() => portals.id),
    token_sha256: bytea("token_sha256").notNull(),
    created_at: instant("created_at").notNull().defaultNow(),
    revoked_at: instant("revoked_at"),
  },
  (t) => [
    // The look-up of every request's token.
    uniqueIndex("portal_tokens_token_sha256").on(t.token_sha256),
    index("portal_tokens_portal_id").on(t.portal_id),
  ],
)
