/** How often a race is run: a fifth of the full count in the ordinary run, all of it when GRANTGATE_TEST_LONG=1. */

/** @param full the count of the long run */
export function rounds(full: number): number {
  return process.env.GRANTGATE_TEST_LONG === "1" ? full : Math.ceil(full / 5)
}
