/** Where `npm run generate` finds the tables and puts the SQL. Migrations run through `grantgate migrate`, never drizzle-kit. */
import { defineConfig } from "drizzle-kit"

export default defineConfig({ dialect: "postgresql", schema: "./src/db/tables/*.ts", out: "./drizzle" })
