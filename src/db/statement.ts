/**
 * Hot statements: Drizzle builders whose text is made once a process and prepared once a connection. `.prepare(name)` alone keeps the second promise
 * only: it belongs to one transaction, and making its text again for each group costs more than running it.
 */
import { type SQL, sql } from "drizzle-orm"
import type { Db, Tx } from "./client.js"

/** What Drizzle's `.prepare(name)` makes. */
interface Prepared<Result> {
  execute(values: Record<string, unknown>): Promise<Result>
}

/** Runs the statement on a connection or in a transaction, with a value for each of its placeholders. */
export type Statement<Values, Result> = (db: Db | Tx, values: Values) => Promise<Result>

/**
 * @param name unique in the process
 * @param build makes the builder; each value that differs between calls is an `sql.placeholder`
 */
export function statement<Values extends Record<string, unknown>, Result>(
  name: string,
  build: (db: Db | Tx) => { prepare(name: string): Prepared<Result> },
): Statement<Values, Result> {
  let made: Prepared<Result> | null = null
  return (db, values) => {
    made ??= build(db).prepare(name)
    return bind(made, db).execute(values)
  }
}

/** A placeholder for many rows as one JSON text: far cheaper for the one busy thread of this process than the driver's arrays. */
export function rowsOf(placeholder: string): SQL {
  return sql`${sql.placeholder(placeholder)}::text::json`
}

/** The same statement on another connection: nothing but the client is a connection's own. */
function bind<Result>(made: Prepared<Result>, db: Db | Tx): Prepared<Result> {
  const { client } = db._.session as unknown as { client: unknown }
  if (!Object.hasOwn(made, "client") || client === undefined)
    throw new Error("a prepared query of drizzle's keeps its client")
  const own = Object.create(made) as Prepared<Result> & { client: unknown }
  own.client = client
  return own
}
