/**
 * The words between the gate and those who use it: what is asked, what is decided, what comes out. The gate knows keys and claims;
 * what a claim is for is the Ledger's business, and how the answer travels is the caller's.
 */
import type { Tx } from "../db/client.js"
import type { Problem } from "../problems.js"
import type { KeyStrategy } from "./key.js"

/** One request as the gate sees it: already authenticated, read strictly and valid in itself. */
export interface Ask {
  readonly portalId: string
  readonly key: string
  readonly keyStrategy: KeyStrategy
  readonly operation: string
  /** Canonical JSON of operation, path parameters and normalised body: what the fingerprint is made of. */
  readonly canonical: string
  readonly fingerprint: string
  /** The portal's own number for it, unique for ever; null when not given. */
  readonly submissionId: string | null
  /** Members of one award share a lane; null when the request touches no award. */
  readonly awardKey: string | null
  /** The disbursement that it returns or reverses: one group at a time has it. Null for other requests. */
  readonly undoes: string | null
  /** The portal's account whose balance it tells: one group at a time has it. Null for other requests. */
  readonly account: string | null
  /** One of many that came together (a batch's line, a broker's message): these take at most half of a group while others wait. */
  readonly bulk: boolean
  /** The id that its effect will have (uuid v7). On a retry after a COMMIT of unknown outcome it tells whose claim this is. */
  readonly resourceId: string
  /** The body as received, kept as evidence. */
  readonly requestText: string
  /** Id of the HTTP request or message, for the record of a conflict. */
  readonly requestId: string
  /** JSON pointers of the members in which the stored request (its text and operation) differs from this one. */
  differs(storedOperation: string, storedRequestText: string): string[]
}

/** The ledger line that an operation recorded under its resource id; null where what it recorded is none. */
export function lineOf(operation: string | null, resourceId: string): string | null {
  return operation === "balance-event" ? null : resourceId
}

/** An answer as it is stored and replayed: byte for byte. */
export interface Answer {
  readonly status: number
  readonly contentType: string
  readonly location: string | null
  readonly body: string
}

/** What a handler says to write, or why not. */
export type Decision<Rows> = (Rows & { readonly answer: Answer }) | Problem

/** A pure function of the facts. It is called again, with fresh facts, whenever its group runs again; it awaits nothing. */
export type Decide<Facts, Rows> = (facts: Facts) => Decision<Rows>

/** How a request ended. Only `recorded` took effect through this request. */
export type Settled =
  | { readonly kind: "recorded"; readonly answer: Answer; readonly resourceId: string }
  | { readonly kind: "replayed"; readonly answer: Answer; readonly resourceId: string }
  | { readonly kind: "voided" }
  | { readonly kind: "refused"; readonly problem: Problem }

/** The key is this request's, inside an open transaction: say what to write. */
export interface Claimed<Facts, Rows> {
  readonly kind: "claimed"
  /** Resolves after COMMIT, never rejects. Call it once and soon (`decideMs`). */
  write(decide: Decide<Facts, Rows>): Promise<Settled>
  /** Gives the key back, for a handler that fails before it could write. Safe to call at any time. */
  abandon(): void
}

/** What the gate asks of the ledger for one group. */
export interface Ledger<Facts, Rows> {
  /**
   * Reads the facts for the group's members, in the group's transaction.
   * Its first statement is sent in the same turn, behind the claim; it takes no lock that another may wait on before the claim is made.
   */
  open(tx: Tx, asks: readonly Ask[], how: OpenOptions): Promise<Book<Facts, Rows>>
}

export interface OpenOptions {
  /** Lock the awards first, skipping those held elsewhere; otherwise nothing is locked and `write` finds out. */
  readonly careful: boolean
  /** Start of the transaction by the database's clock, RFC 3339 UTC with six digits. */
  readonly now: string
  /** Takes each named lock that is free until the transaction ends, and waits for none; answers by position. */
  tryLocks(names: readonly string[]): Promise<readonly boolean[]>
}

/** The facts of one group's transaction, kept up to date in memory while its members are decided in the order of their arrival. */
export interface Book<Facts, Rows> {
  /** Members of the group whose award another transaction holds: they leave. */
  readonly held: ReadonlySet<Ask>
  facts(ask: Ask): Facts
  /** An accepted member's rows; later members see them in their facts. */
  enter(ask: Ask, rows: Rows): void
  /** Writes what was entered, as sets: the started statements, in order, to be awaited together. One rejects with Outdated if the facts no longer hold. */
  write(tx: Tx): Promise<unknown>[]
}

/** The facts decided on are no longer true: roll back and run again with the awards locked. */
export class Outdated extends Error {
  override readonly name = "Outdated"
}
