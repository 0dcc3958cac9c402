import t from "tap"
import { checkSchema, migrateDatabase } from "../../src/db/migrate.js"
import { createDatabase } from "../support/database.js"

t.test("a migrated database is current, and migrating again applies nothing", async (t) => {
  const { url } = await createDatabase(t)
  t.equal(await checkSchema(url), "current")
  t.same(await migrateDatabase(url), { applied: 0 })
})
