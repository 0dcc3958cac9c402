/** The configuration: what is said of it is what it does, and a fault is named without its value. */
import { readFile } from "node:fs/promises"
import t from "tap"
import { describeEnvironment, readConfig } from "../src/config.js"

t.test(".env.example is what the configuration says of itself", async (t) => {
  const committed = await readFile(new URL("../.env.example", import.meta.url), "utf8")
  t.equal(committed, describeEnvironment(), "run `npm run generate`")
})

t.test("an empty environment is a working one, and cannot be changed once read", (t) => {
  const config = readConfig({}, "/srv/app")
  t.match(config, {
    host: "127.0.0.1",
    port: 3000,
    databaseUrl: null,
    dataDir: "/srv/app/.grantgate",
    migrate: true,
    awards: "open",
  })
  t.ok(Object.isFrozen(config))
  t.same(readConfig({ PORT: "", DATABASE_URL: "" }, "/srv/app"), config, "an empty value is an absent one")
  t.end()
})

t.test("every faulty variable is named at once, and no value is shown", (t) => {
  const secret = "hunter2-hunter2"
  const faulty = {
    PORT: "70000",
    DATABASE_URL: `mysql://root:${secret}@db`,
    GRANTGATE_BOOTSTRAP_TOKEN: secret,
    GRANTGATE_PUBLIC_URL: "example.org",
    GRANTGATE_MIGRATE: "yes",
    GRANTGATE_GROUP_MAX: "0",
    LOG_LEVEL: "loud",
  }
  try {
    readConfig(faulty)
    t.fail("a faulty configuration is refused")
  } catch (error) {
    const { name, message } = error as Error
    t.equal(name, "ConfigError")
    for (const variable of Object.keys(faulty)) t.match(message, variable)
    for (const value of Object.values(faulty)) if (value.length > 3) t.notMatch(message, value)
  }
  t.end()
})

t.test("the public URL loses its trailing slash", (t) => {
  t.equal(
    readConfig({ GRANTGATE_PUBLIC_URL: "https://pay.example.org/gate/" }).publicUrl,
    "https://pay.example.org/gate",
  )
  t.end()
})
