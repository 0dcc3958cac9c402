/**
 * What lists have in common: the query parameters of a page and of a period, and a page's shape.
 */
import { z } from "zod"
import { limits } from "../limits.js"

/** Text to look for: anything that a row could hold, which a NUL could not. */
export const filterText = z
  .string()
  // An empty one is a variable that was not set: it would find nothing, as if there were nothing.
  .min(1)
  .refine((text) => !text.includes("\0"), { error: "must not hold a NUL character", params: { code: "format" } })

/** For the end of a query with `from` and `to`: swapped, they would find nothing, as if there were nothing. */
export const periodInOrder = {
  check: ({ from, to }: { from?: string | undefined; to?: string | undefined }): boolean =>
    from === undefined || to === undefined || Date.parse(from) <= Date.parse(to),
  otherwise: { path: ["to"], error: "must not be before `from`", params: { code: "range" } },
}

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
