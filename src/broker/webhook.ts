/**
 * A webhook: one POST an event, signed as Standard Webhooks say, over connections that are kept. Follows no redirect, reads no more of an answer
 * than it needs, and connects to no private address unless that is allowed: the address is checked where the socket connects, so that a name
 * that resolves to another one a moment later gets no further. The id of an event is its `webhook-id` at every attempt.
 */
import { createHmac } from "node:crypto"
import { type LookupAddress, lookup } from "node:dns"
import { BlockList, isIP } from "node:net"
import { Agent, buildConnector, type Dispatcher } from "undici"
import { limits } from "../limits.js"
import { type Broker, BrokerError, type Message, type Outcome } from "./broker.js"

export interface WebhookOptions {
  readonly url: string
  /** `whsec_…` or base64; each signs, so that the receiver may check with the old one while a new one is rolled out. */
  readonly secrets: readonly string[]
  readonly allowPrivate: boolean
  readonly userAgent: string
  /** For tests. */
  readonly now?: () => number
}

/** @throws BrokerError when the URL or a secret cannot be used */
export function webhookBroker(options: WebhookOptions): Broker {
  const url = readUrl(options.url)
  const keys = options.secrets.map(readSecret)
  if (keys.length === 0) throw new BrokerError("A webhook needs at least one secret to sign with.")
  const literal = url.hostname.replace(/^\[|\]$/g, "")
  if (isIP(literal) && !options.allowPrivate && isPrivate(literal)) throw privateAddress()
  const agent = makeAgent(options.allowPrivate)
  const path = `${url.pathname}${url.search}`
  const now = options.now ?? Date.now

  return {
    inFlightMax: limits.webhookConnectionsMax,
    async publish(message, ms) {
      try {
        const answer = await agent.request({
          origin: url.origin,
          path,
          method: "POST",
          headers: {
            "content-type": "application/cloudevents+json; charset=UTF-8",
            "user-agent": options.userAgent,
            ...signatureHeaders(keys, message, Math.floor(now() / 1000)),
          },
          body: message.body,
          signal: AbortSignal.timeout(ms),
        })
        // The status is the word; the rest is read away to keep the connection, and cut off where it goes on.
        await answer.body.dump({ limit: limits.webhookAnswerBytesMax }).catch(() => {})
        return outcomeOf(answer, now())
      } catch (error) {
        return failureOf(error)
      }
    },
    // A name that does not resolve, an address that is not allowed, nobody who listens: found before the first event is.
    check: (ms) =>
      new Promise((resolve, reject) => {
        const connector = buildConnector({ timeout: ms, lookup: guardedLookup(options.allowPrivate) })
        const port = url.port || (url.protocol === "https:" ? "443" : "80")
        connector({ hostname: literal, host: url.host, protocol: url.protocol, port }, (error, socket) => {
          socket?.destroy()
          if (error === null) resolve()
          else
            reject(
              error instanceof BrokerError
                ? error
                : new BrokerError(`The address cannot be reached: ${codeOf(error)}.`),
            )
        })
      }),
    close: () => agent.destroy(),
  }
}

function makeAgent(allowPrivate: boolean): Agent {
  return new Agent({
    connections: limits.webhookConnectionsMax,
    // A second request on a connection before the first is answered: what a cut takes with it would be unknown for both.
    pipelining: 1,
    headersTimeout: limits.publishMs,
    bodyTimeout: limits.publishMs,
    keepAliveTimeout: limits.webhookKeepAliveMs,
    keepAliveMaxTimeout: limits.webhookKeepAliveMs,
    maxHeaderSize: limits.headerBytesMax,
    connect: { timeout: limits.webhookConnectMs, lookup: guardedLookup(allowPrivate) },
  })
}

/** Standard Webhooks, https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md */
function signatureHeaders(keys: readonly Buffer[], { id, body }: Message, seconds: number): Record<string, string> {
  const signed = `${id}.${seconds}.${body}`
  const signatures = keys.map((key) => `v1,${createHmac("sha256", key).update(signed).digest("base64")}`)
  return { "webhook-id": id, "webhook-timestamp": String(seconds), "webhook-signature": signatures.join(" ") }
}

function outcomeOf({ statusCode: status, headers }: Dispatcher.ResponseData, now: number): Outcome {
  const reason = `HTTP ${status}`
  if (status >= 200 && status < 300) return { kind: "delivered" }
  if (status === 410) return { kind: "gone", reason }
  const ms = readRetryAfter(headers["retry-after"], now)
  if (status === 429 || (status === 503 && ms !== null))
    return { kind: "throttled", ms: ms ?? limits.throttleMsDefault, reason }
  // What a receiver says of a message. Anything else (its address, our credentials, a redirect) would be said of every message.
  if ([400, 406, 411, 412, 413, 414, 415, 422, 431].includes(status)) return { kind: "refused", reason }
  return { kind: "failed", reason }
}

/** Seconds or a date (RFC 9110 section 10.2.3), bounded. */
function readRetryAfter(header: string | string[] | undefined, now: number): number | null {
  if (typeof header !== "string") return null
  const ms = /^[0-9]{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), limits.throttleMsMax) : null
}

/** Codes of a connection that never stood: the message has not left. */
const unreachable =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|UND_ERR_CONNECT_TIMEOUT|ERR_TLS_.*|CERT_.*|DEPTH_ZERO_.*|SELF_SIGNED.*|UNABLE_TO_.*)$/

function failureOf(error: unknown): Outcome {
  if (error instanceof BrokerError) return { kind: "unreachable", reason: error.message }
  const code = codeOf(error)
  return { kind: unreachable.test(code) ? "unreachable" : "failed", reason: code }
}

/** Node's or undici's code: never a text, which may hold an address with credentials. */
function codeOf(error: unknown): string {
  if (error instanceof AggregateError) return codeOf(error.errors[0])
  const { code, name } = error as { code?: unknown; name?: unknown }
  return typeof code === "string" ? code : String(name)
}

function readUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:"))
    throw new BrokerError("A webhook's URL begins with https:// or http://.")
  if (url.username !== "" || url.password !== "")
    throw new BrokerError("A webhook's URL holds no credentials: the signature says who sends.")
  return url
}

function readSecret(text: string): Buffer {
  const key = Buffer.from(text.replace(/^whsec_/, ""), "base64")
  if (key.length < limits.webhookSecretBytesMin || key.length > limits.webhookSecretBytesMax)
    throw new BrokerError(
      `A webhook's secret is whsec_ and base64 of ${limits.webhookSecretBytesMin} to ${limits.webhookSecretBytesMax} bytes.`,
    )
  return key
}

const privateNets = new BlockList()
for (const [net, bits] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["224.0.0.0", 3],
] as const)
  privateNets.addSubnet(net, bits, "ipv4")
for (const [net, bits] of [
  ["::", 127],
  // Translations of IPv4 that would go round the list above.
  ["64:ff9b::", 96],
  ["2002::", 16],
  ["fc00::", 7],
  ["fe80::", 10],
  ["fec0::", 10],
  ["ff00::", 8],
] as const)
  privateNets.addSubnet(net, bits, "ipv6")

/** Addresses that are no public receiver's: of this machine, of this network, or of nobody (IANA special-purpose registries). */
export function isPrivate(address: string): boolean {
  const bare = address.replace(/%.*$/, "")
  return privateNets.check(bare, isIP(bare) === 6 ? "ipv6" : "ipv4")
}

function privateAddress(): BrokerError {
  return new BrokerError("The address is a private one; GRANTGATE_WEBHOOK_PRIVATE=true allows those.")
}

type Lookup = NonNullable<NonNullable<buildConnector.BuildOptions & { lookup?: typeof lookup }>["lookup"]>

/** Resolves as node does, and refuses where any address is private. */
function guardedLookup(allowPrivate: boolean): Lookup {
  if (allowPrivate) return lookup
  const guarded = (
    host: string,
    options: object,
    done: (error: Error | null, address?: string | LookupAddress[], family?: number) => void,
  ) =>
    lookup(host, { ...options, all: true }, (error, found) => {
      if (error) done(error)
      else if (found.some(({ address }) => isPrivate(address))) done(privateAddress())
      else if ((options as { all?: boolean }).all) done(null, found)
      else done(null, found[0]?.address, found[0]?.family)
    })
  return guarded as unknown as Lookup
}
