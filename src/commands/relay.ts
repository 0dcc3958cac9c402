/**
 * `grantgate relay`: the announcing as a process of its own, with its own probes and metrics. Any number of them may run; they share the work by leases.
 */
import type { Command } from "commander"
import { makeLogger } from "../http/request-log.js"
import { serveRelay } from "../serve-relay.js"
import { installation, loadConfig } from "./command.js"
import { runUntilStopped } from "./serve.js"

export function relayCommand(program: Command): void {
  program
    .command("relay")
    .description("Deliver recorded events to their destinations; any number of relays may run")
    .action(async () => {
      const config = loadConfig()
      const log = makeLogger(config.logLevel)
      await runUntilStopped(log, () => serveRelay(config, log, installation.version))
    })
}
