/**
 * The environment, read once into a frozen Config. The only reader of process.env: everything else is handed what it needs.
 * A value that is not valid stops the start with the variable's name and what it may be; values are never echoed (they may be secrets).
 */
import { resolve } from "node:path"
import { z } from "zod"
import { limits } from "./limits.js"

const flag = z.enum(["true", "false"])
const whole = (min: number, max: number) =>
  z
    .string()
    .regex(/^[0-9]{1,9}$/, "must be a whole number")
    .transform(Number)
    .refine((n) => n >= min && n <= max, `must be between ${min} and ${max}`)

/** What each variable may be; the description is what `.env.example` and the README's table say. */
const environment = {
  HOST: z.string().min(1).default("127.0.0.1").describe("Address to listen on"),
  PORT: whole(0, 65_535).default(3000).describe("Port to listen on; 0 takes a free one"),
  DATABASE_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\//, "must begin with postgres:// or postgresql://")
    .optional()
    .describe(
      "The Postgres (14 to 18) that keeps the record; without it an embedded one runs, for trying and small installations",
    ),
  GRANTGATE_DATA_DIR: z.string().min(1).default(".grantgate").describe("Where the embedded Postgres keeps its data"),
  GRANTGATE_MIGRATE: flag
    .default("true")
    .describe("Apply pending migrations at start; with false an old schema is refused"),
  GRANTGATE_PUBLIC_URL: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe("Base of the absolute URLs in answers; without it http://HOST:PORT"),
  GRANTGATE_BOOTSTRAP_TOKEN: z
    .string()
    .regex(/^[\x21-\x7e]*$/, "must be printable ASCII without spaces")
    .min(limits.bootstrapTokenCharsMin, `must have ${limits.bootstrapTokenCharsMin} characters or more`)
    .optional()
    .describe("An operator token for as long as it is set, to make the first portals with"),
  GRANTGATE_METRICS_PUBLIC: flag.default("false").describe("Serve /metrics without a token"),
  GRANTGATE_AWARDS: z
    .enum(["open", "registered"])
    .default("open")
    .describe(
      "open: an unknown award is opened by its first accepted submission; registered: it is 404 award-not-found",
    ),
  GRANTGATE_GROUP_MAX: whole(1, 1_024)
    .default(limits.groupMembersMax)
    .describe("Requests that may share one transaction; 1 is a transaction per request"),
  GRANTGATE_LANES: whole(1, 16)
    .default(limits.lanesDefault)
    .describe("Groups that may run side by side, a connection each"),
  GRANTGATE_RELAY_PORT: whole(0, 65_535)
    .default(3001)
    .describe("Port of the relay's own process, for /livez, /readyz and /metrics; 0 takes a free one"),
  GRANTGATE_EVENT_SOURCE: z
    .string()
    .regex(/^[\x21-\x7e]{1,200}$/, "must be a URI of at most 200 characters")
    .default("urn:grantgate")
    .describe("Who announces: the `source` of the events that go out"),
  GRANTGATE_WEBHOOK_PRIVATE: flag
    .default("false")
    .describe("Allow webhooks to private, loopback and link-local addresses"),
  GRANTGATE_PREPARED_STATEMENTS: flag
    .default("true")
    .describe("false where a pooler in transaction mode does not keep prepared statements"),
  LOG_LEVEL: z
    .enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"])
    .default("info")
    .describe("Least severe log lines to write"),
} as const

/** What the commands read that are clients of a running service. */
const clientEnvironment = {
  GRANTGATE_URL: z
    .url({ protocol: /^https?$/ })
    .default("http://127.0.0.1:3000")
    .describe("Of `grantgate submit`: the service to send to"),
  GRANTGATE_TOKEN: z
    .string()
    .regex(/^[\x21-\x7e]+$/, "must be printable ASCII without spaces")
    .optional()
    .describe("Of `grantgate submit`: the portal's token"),
} as const

export interface ClientConfig {
  readonly url: string
  readonly token: string | null
}

export interface Config {
  readonly host: string
  readonly port: number
  /** null: the embedded Postgres. */
  readonly databaseUrl: string | null
  /** Absolute. */
  readonly dataDir: string
  readonly migrate: boolean
  /** Without a trailing slash; null: made from the address that is listened on. */
  readonly publicUrl: string | null
  readonly bootstrapToken: string | null
  readonly metricsPublic: boolean
  readonly awards: "open" | "registered"
  readonly groupMembersMax: number
  readonly lanes: number
  readonly relayPort: number
  readonly eventSource: string
  readonly webhookPrivate: boolean
  readonly preparedStatements: boolean
  readonly logLevel: string
}

/** Every variable with its meaning and default, in the form of an env file; `.env.example` is this text. */
export function describeEnvironment(): string {
  const entries = Object.entries({ ...environment, ...clientEnvironment }).map(([name, schema]) => {
    const fallback = schema instanceof z.ZodDefault ? String(schema.def.defaultValue) : null
    return `# ${schema.description ?? ""}\n${fallback === null ? `# ${name}=` : `${name}=${fallback}`}\n`
  })
  return entries.join("\n")
}

/** A configuration that cannot be used; `message` names every faulty variable and never a value. */
export class ConfigError extends Error {
  override readonly name = "ConfigError"
}

/**
 * Reads the environment. Empty values count as absent.
 * @param home where a relative data directory lies: the project's own folder, so that it does not depend on the working directory
 * @throws ConfigError
 */
export function readConfig(
  env: Record<string, string | undefined> = process.env,
  home: string = process.cwd(),
): Config {
  const e = readAll(environment, env)
  return Object.freeze({
    host: e.HOST,
    port: e.PORT,
    databaseUrl: e.DATABASE_URL ?? null,
    dataDir: resolve(home, e.GRANTGATE_DATA_DIR),
    migrate: e.GRANTGATE_MIGRATE === "true",
    publicUrl: e.GRANTGATE_PUBLIC_URL?.replace(/\/+$/, "") ?? null,
    bootstrapToken: e.GRANTGATE_BOOTSTRAP_TOKEN ?? null,
    metricsPublic: e.GRANTGATE_METRICS_PUBLIC === "true",
    awards: e.GRANTGATE_AWARDS,
    groupMembersMax: e.GRANTGATE_GROUP_MAX,
    lanes: e.GRANTGATE_LANES,
    relayPort: e.GRANTGATE_RELAY_PORT,
    eventSource: e.GRANTGATE_EVENT_SOURCE,
    webhookPrivate: e.GRANTGATE_WEBHOOK_PRIVATE === "true",
    preparedStatements: e.GRANTGATE_PREPARED_STATEMENTS === "true",
    logLevel: e.LOG_LEVEL,
  })
}

/**
 * Reads what a client needs. Empty values count as absent.
 * @throws ConfigError
 */
export function readClientConfig(env: Record<string, string | undefined> = process.env): ClientConfig {
  const { GRANTGATE_URL: url, GRANTGATE_TOKEN: token } = readAll(clientEnvironment, env)
  return Object.freeze({ url, token: token ?? null })
}

function readAll<Shape extends z.ZodRawShape>(
  shape: Shape,
  env: Record<string, string | undefined>,
): z.output<z.ZodObject<Shape>> {
  const given = Object.fromEntries(Object.keys(shape).map((name) => [name, env[name] === "" ? undefined : env[name]]))
  const read = z.object(shape).safeParse(given)
  if (read.success) return read.data
  const faults = read.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`)
  throw new ConfigError(`The configuration is not valid. ${faults.join("; ")}`)
}

/** A destination's secret, by the name that its row holds; read when it is needed, so that it is nowhere else. */
export function readDestinationSecret(name: string): string | undefined {
  const value = /^GRANTGATE_DESTINATION_[A-Z0-9_]+$/.test(name) ? process.env[name] : undefined
  return value === "" ? undefined : value
}
