/**
 * Unique Entity Identifiers of SAM.gov: 12 letters and digits, without I and O, not beginning with 0, the last a check character over the
 * other eleven (https://www.gsa.gov/about-us/organization/federal-acquisition-service, "Unique Entity ID Technical Specifications"). The page does
 * not say how it is computed; the rule below is one in use in public validators, and fifteen of fifteen identifiers taken from SAM.gov
 * keep it. So a wrong check character is a reason to look twice, never to refuse.
 */

export const ueiPattern = /^[1-9A-HJ-NP-Z][0-9A-HJ-NP-Z]{11}$/

/** Whether the last character checks the other eleven. @param uei matches `ueiPattern` */
export function hasUeiCheckCharacter(uei: string): boolean {
  let sum = weigh([...uei.slice(0, -1)].map((character) => character.charCodeAt(0)))
  while (sum > 9) sum = weigh([...String(sum)].map(Number))
  return String(sum) === uei.at(-1)
}

/** Each number times its place, counted from 1; the last digits of these products, summed. */
function weigh(numbers: readonly number[]): number {
  return numbers.reduce((sum, number, index) => sum + ((number * (index + 1)) % 10), 0)
}
