/**
 * What the relay needs of a destination: hand over one message, say truly how it went. An adapter decides nothing about retries, keeps no message
 * and never claims a delivery that the other side did not confirm.
 */

/** One event on its way out. */
export interface Message {
  /** The event's id, the same at every attempt: receivers drop repeats by it. */
  readonly id: string
  readonly type: string
  /** The award or account; messages of one subject come one after the other. */
  readonly subject: string
  /** A CloudEvents 1.0 JSON text. */
  readonly body: string
}

/** How it went. `reason` is for people and holds nothing of the message. */
export type Outcome =
  /** Confirmed by the other side, or known to it already. */
  | { readonly kind: "delivered" }
  /** Nobody there: refused, cut, not resolved. The message is not to blame. */
  | { readonly kind: "unreachable"; readonly reason: string }
  /** An error or silence of the other side; it may have the message. Whether the message or the destination is to blame shows in how others fare. */
  | { readonly kind: "failed"; readonly reason: string }
  /** Asked to wait. */
  | { readonly kind: "throttled"; readonly ms: number; readonly reason: string }
  /** This message will not be taken. */
  | { readonly kind: "refused"; readonly reason: string }
  /** The destination wants nothing any more. */
  | { readonly kind: "gone"; readonly reason: string }

export interface Broker {
  /** Messages that may be on their way side by side. */
  readonly inFlightMax: number
  /** Never rejects. Answers within `ms`. */
  publish(message: Message, ms: number): Promise<Outcome>
  /** Is everything there that publishing needs? @throws BrokerError with a sentence for the operator */
  check(ms: number): Promise<void>
  close(): Promise<void>
}

/** A destination that cannot be used as it is configured; `message` is a sentence for the operator, without secrets. */
export class BrokerError extends Error {
  override readonly name = "BrokerError"
}
