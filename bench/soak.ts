/** A long run at 128 connections, in minutes: throughput of each, and the server's memory every five seconds. Both should stay flat. */
import { type Bench, loadOf, withProduct } from "./cells.js"
import { countRows } from "./database.js"
import { generate } from "./load.js"

const sampleMs = 5_000
const rssMbMax = 250

export interface Soak {
  readonly minutes: readonly { readonly perSecond: number; readonly p99Ms: number }[]
  readonly rssMb: readonly number[]
  readonly rows: number
  readonly flat: boolean
}

export function runSoak(bench: Bench, minutes: number, print: (text: string) => void): Promise<Soak> {
  return withProduct(bench, {}, async (product, databaseUrl) => {
    const rssMb: number[] = []
    const sampler = setInterval(() => {
      // A log of millions of lines is not what is measured.
      product.forgetOutput()
      void product.rssBytes().then((bytes) => rssMb.push(Math.round(bytes / 1024 / 1024)))
    }, sampleMs)
    const perMinute: { perSecond: number; p99Ms: number }[] = []
    try {
      for (let left = minutes * 60; left > 0; left -= 60) {
        const load = { ...loadOf(bench, product.submissions, product.token), seconds: Math.ceil(Math.min(60, left)) }
        const { answers, seconds, p99Ms, refused, broken } = await generate(load)
        if (refused + broken > 0) throw new Error(`${refused} requests were refused, ${broken} failed`)
        perMinute.push({ perSecond: Math.round(answers / seconds), p99Ms: Math.round(p99Ms) })
        print(
          `minute ${perMinute.length}: ${Math.round(answers / seconds)}/s, p99 ${Math.round(p99Ms)} ms, memory ${rssMb.at(-1) ?? 0} MB`,
        )
      }
    } finally {
      clearInterval(sampler)
    }
    const { claims, inOrder } = await countRows(databaseUrl)
    if (!inOrder) throw new Error("the tables do not agree")
    // The first fifth is still filling caches.
    const settled = rssMb.slice(Math.floor(rssMb.length / 5))
    const flat = Math.max(...settled) <= rssMbMax
    print(
      `memory: first ${rssMb[0]} MB, last ${rssMb.at(-1)} MB, peak ${Math.max(...rssMb)} MB (at most ${rssMbMax}: ${flat ? "yes" : "NO"}); ${claims} rows`,
    )
    return { minutes: perMinute, rssMb, rows: claims, flat }
  })
}
