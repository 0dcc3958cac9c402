/**
 * What a destination may be configured with, and how a configuration becomes a broker. Secrets are named, never held: `secret_env` and `url_env` are
 * names of environment variables of the relay's process, with a prefix of their own so that nothing else of its environment can be sent anywhere.
 */
import { z } from "zod"
import { type Broker, BrokerError } from "../broker/broker.js"
import { stdoutBroker } from "../broker/stdout.js"
import { webhookBroker } from "../broker/webhook.js"
import { limits } from "../limits.js"

const secretName = z
  .string()
  .regex(
    /^GRANTGATE_DESTINATION_[A-Z0-9_]{1,80}$/,
    "must be the name of a variable that begins with GRANTGATE_DESTINATION_",
  )

/** Letters, digits and `. _ -`: names stand in metrics, URLs and logs. */
export const destinationName = z
  .string()
  .regex(
    new RegExp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,${limits.destinationNameCharsMax - 1}}$`),
    `must be at most ${limits.destinationNameCharsMax} letters, digits and . _ -, beginning with a letter or digit`,
  )

/** Each kind's members. */
export const destinationConfigs = {
  webhook: z.strictObject({
    url: z.url({ protocol: /^https?$/ }),
    secret_env: z.array(secretName).min(1).max(2),
  }),
  stdout: z.strictObject({}),
} as const

export type DestinationKind = keyof typeof destinationConfigs
export type DestinationConfig = z.infer<(typeof destinationConfigs)[DestinationKind]>

export interface BrokerSettings {
  /** A secret by its name; undefined: not set. */
  readonly secret: (name: string) => string | undefined
  readonly allowPrivate: boolean
  readonly version: string
}

/** @throws BrokerError when the configuration cannot be used here: a secret that is not set, an address that is not allowed */
export async function openBroker(kind: DestinationKind, config: unknown, settings: BrokerSettings): Promise<Broker> {
  const secret = (name: string): string => {
    const found = settings.secret(name)
    if (found === undefined) throw new BrokerError(`${name} is not set.`)
    return found
  }
  switch (kind) {
    case "webhook": {
      const { url, secret_env } = destinationConfigs.webhook.parse(config)
      return webhookBroker({
        url,
        secrets: secret_env.map(secret),
        allowPrivate: settings.allowPrivate,
        userAgent: `grantgate/${settings.version}`,
      })
    }
    case "stdout":
      return stdoutBroker()
  }
}
