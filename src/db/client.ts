/**
 * Connections. A `Connection` is one postgres.js client with drizzle on it; drizzle changes the client's parsers, so a client is always used
 * through drizzle. `Reads` is the pool for everything outside the write path: each call has the client's own deadline, because a paused
 * server or a network that swallows packets defeats every limit kept by the server; what misses it costs the pool its connections, not the caller its answer.
 */
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js"
import postgres from "postgres"
import { limits } from "../limits.js"

export type Db = PostgresJsDatabase
/** What `db.transaction` hands to its callback. */
export type Tx = Parameters<Parameters<Db["transaction"]>[0]>[0]

export interface Connection {
  readonly db: Db
  /** Destroys the sockets at once; whatever is running is rejected. Never rejects. */
  discard(): Promise<void>
}

export interface ConnectOptions {
  readonly max: number
  readonly preparedStatements: boolean
  /** Called in the same turn in which a connection is found closed. */
  readonly onClose?: () => void
}

/** The arrays that may be parameters, by the numbers of their types (pg_type.dat); results hold none. */
const arrayTypes = Object.fromEntries(
  Object.entries({ text_array: 1009, uuid_array: 2951 }).map(([name, oid]) => [
    name,
    { to: oid, from: [], serialize: writeArray, parse: (text: string) => text },
  ]),
)

/** An array of text as Postgres reads it (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO). */
function writeArray(items: readonly string[]): string {
  return `{${items.map((item) => `"${item.replace(/["\\]/g, "\\$&")}"`).join(",")}}`
}

/** Makes a client; connects when first used. */
export function connect(url: string, options: ConnectOptions): Connection {
  let closed = 0
  const client = postgres(url, {
    max: options.max,
    prepare: options.preparedStatements,
    connect_timeout: limits.connectMs / 1000,
    keep_alive: 5,
    idle_timeout: 0,
    max_lifetime: null,
    // Asking each new connection for its types is a promise that the driver leaves alone: a connection lost meanwhile would end the process.
    fetch_types: false,
    types: arrayTypes,
    // A NOTICE is no news of ours, and may hold values.
    onnotice: () => {},
    onclose: () => {
      closed += 1
      options.onClose?.()
    },
    connection: { application_name: "grantgate" },
  })
  guardTransactions(client, () => closed)
  return {
    db: drizzle(client),
    discard: () => client.end({ timeout: 0 }).catch(() => {}),
  }
}

/**
 * Keeps transactions off connections that are gone. The driver writes even then, to no socket, in a turn of its own in which nobody can catch it,
 * and the process ends (https://github.com/porsager/postgres/issues/1208); its own ROLLBACK after a callback that rejects is such a write. So
 * statements are refused here once a connection was lost, and a callback that rejects after that never settles: the transaction itself has
 * rejected when its connection closed.
 */
function guardTransactions(client: postgres.Sql, closed: () => number): void {
  const begin = client.begin.bind(client) as (work: (tx: postgres.TransactionSql) => unknown) => Promise<unknown>
  const guarded = (work: (tx: postgres.TransactionSql) => Promise<unknown>) => {
    const before = closed()
    return begin((tx) => {
      const send = tx.unsafe.bind(tx)
      tx.unsafe = ((...statement: Parameters<typeof send>) => {
        if (closed() !== before) throw new ConnectionLost()
        return send(...statement)
      }) as typeof tx.unsafe
      return work(tx).catch((error: unknown) => {
        if (closed() === before) throw error
        return new Promise(() => {})
      })
    })
  }
  client.begin = guarded as typeof client.begin
}

/** A statement for a connection that is gone; counts as unavailable. */
class ConnectionLost extends Error {
  override readonly name = "ConnectionLost"
  readonly code = "CONNECTION_CLOSED"
}

/** SQLSTATE or the driver's own code (`CONNECTION_CLOSED`, `ECONNREFUSED` …), looked for through drizzle's wrapping; null when there is none. */
export function errorCode(error: unknown): string | null {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const code = (at as Error & { code?: unknown }).code
    if (typeof code === "string") return code
  }
  return null
}

/**
 * True when the connection or the server is at fault: lost, refused, failing over, read-only, stopping, out of resources, silent past a deadline.
 * Codes of node (`ERR_…`), Fastify (`FST_…`) and of the driver's own checks are faults of this program, and no word about the database.
 */
export function isUnavailable(error: unknown): boolean {
  const code = errorCode(error)
  if (code === null) return false
  return (
    /^(?:08...|25006|25P0.|53...|57P0.|57014)$/.test(code) ||
    /^(?:CONNECT|CONNECTION_|READ_TIMEOUT$|E(?:CONN|HOST|NET|PIPE$|TIMEDOUT$|NOTFOUND$|AI_AGAIN$|ADDR|NOENT$))/.test(
      code,
    )
  )
}

/** Rejects a read that missed its deadline; counts as unavailable. */
class ReadTimeout extends Error {
  override readonly name = "ReadTimeout"
  readonly code = "READ_TIMEOUT"
}

/** The pool for reads and for the few small writes outside the gate. */
export class Reads {
  #connection: Connection
  readonly #open: () => Connection

  constructor(url: string, options: Omit<ConnectOptions, "onClose">) {
    this.#open = () => connect(url, options)
    this.#connection = this.#open()
  }

  /**
   * Runs `work` on the pool.
   * @param ms deadline; past it the pool's connections are thrown away and the call rejects with ReadTimeout
   * @throws whatever `work` throws, or ReadTimeout
   */
  async run<T>(work: (db: Db) => Promise<T>, ms: number = limits.readMs): Promise<T> {
    const connection = this.#connection
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        if (this.#connection === connection) this.#connection = this.#open()
        void connection.discard()
        reject(new ReadTimeout(`the database did not answer within ${ms} ms`))
      }, ms)
    })
    try {
      return await Promise.race([work(connection.db), late])
    } finally {
      clearTimeout(timer)
    }
  }

  async end(): Promise<void> {
    await this.#connection.discard()
  }
}
