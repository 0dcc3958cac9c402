/**
 * What lists have in common: the query parameters of a page, and its shape.
 */
import { z } from "zod"
import { limits } from "../limits.js"

/** Query parameters of every list. */
export const pageQuery = {
  limit: z
    .string()
    .regex(/^[0-9]{1,3}$/, "must be a whole number")
    .transform(Number)
    .refine((n) => n >= 1 && n <= limits.pageItemsMax, `must be between 1 and ${limits.pageItemsMax}`)
    .optional()
    .describe(`Items on a page, 1 to ${limits.pageItemsMax}; ${limits.pageItemsDefault} when absent`),
  cursor: z.string().optional().describe("`next_cursor` of the page before, with the same filters"),
}

/** A page of a list. */
export function pageOf(item: z.ZodType): z.ZodType {
  return z.object({
    items: z.array(item),
    next_cursor: z.string().nullable().describe("For the next page; null at the end"),
  })
}

/** An instant in a query string, written as in a submission; `+` of an offset is percent-encoded there. */
export function instant(): z.ZodType<string> {
  return z.string().refine(isInstant, "must be an RFC 3339 instant with an offset, such as 2026-07-01T09:00:00Z")
}

/** RFC 3339 section 5.6, with upper-case T and Z, and a real day. */
function isInstant(text: string): boolean {
  const parts =
    /^(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/.exec(
      text,
    )
  if (!parts) return false
  const [, year, month, day] = parts.map(Number)
  const date = new Date(Date.UTC(year ?? 0, (month ?? 0) - 1, day))
  return date.getUTCFullYear() === year && date.getUTCMonth() + 1 === month && date.getUTCDate() === day
}
