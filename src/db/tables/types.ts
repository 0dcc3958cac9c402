/** Column types that every table shares. */
import { customType, timestamp } from "drizzle-orm/pg-core"

export const bytea = customType<{ data: Buffer }>({ dataType: () => "bytea" })

/** To the microsecond, as text: a JS Date would lose the last three digits, and cursors with them. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, mode: "string", precision: 6 })
