/**
 * The server that a textbook would have one write: Fastify, one plain Drizzle transaction a request, its statements awaited one by one, a pool of ten
 * connections. It writes the same rows to the product's own tables, and leaves out what the product does besides: tokens, strict reading, logs.
 */
import { createHash, randomUUID } from "node:crypto"
import { and, eq, sql } from "drizzle-orm"
import { drizzle } from "drizzle-orm/postgres-js"
import Fastify from "fastify"
import postgres from "postgres"
import { destinations, outbox, outboxDelivery } from "../src/db/tables/announcing.js"
import { answers, claims } from "../src/db/tables/keys.js"
import { awards, disbursements } from "../src/db/tables/money.js"

interface Submission {
  award_id: string
  submission_timestamp: string
  amount_cents: number
  currency: string
  invoice_ref?: string
}

const portalId = randomUUID()
const sha256 = (text: string) => createHash("sha256").update(text)
const db = drizzle(postgres(process.env.DATABASE_URL ?? "", { max: 10 }))
const app = Fastify()

app.get("/readyz", async () => ({ status: "ready" }))
app.post<{ Body: Submission }>("/v1/submissions", async (request, reply) => {
  const key = String(request.headers["idempotency-key"])
  const answer = await record(key, request.body)
  return reply.code(answer.status).header("location", answer.location).type("application/json").send(answer.body)
})

function record(key: string, submission: Submission) {
  const text = JSON.stringify(submission)
  const id = randomUUID()
  const now = new Date().toISOString()
  return db.transaction(async (tx) => {
    const won = await tx
      .insert(claims)
      .values({
        portal_id: portalId,
        idempotency_key: key,
        key_strategy: "client/1",
        operation: "submission",
        fingerprint: `v1:${sha256(text).digest("hex")}`,
        award_key: submission.award_id,
        resource_id: id,
        state: "completed",
        claimed_at: now,
      })
      .onConflictDoNothing()
      .returning({ id: claims.resource_id })
    if (won.length === 0) {
      const [stored] = await tx
        .select({ body: answers.body, location: answers.location })
        .from(claims)
        .innerJoin(answers, eq(answers.resource_id, claims.resource_id))
        .where(and(eq(claims.portal_id, portalId), eq(claims.idempotency_key, key)))
      if (!stored) throw new Error("a claim has its answer")
      return { status: 200, ...stored }
    }
    await tx
      .insert(awards)
      .values({
        award_key: submission.award_id,
        award_id: submission.award_id,
        currency: submission.currency,
        disbursed_cents: submission.amount_cents,
      })
      .onConflictDoUpdate({
        target: awards.award_key,
        set: { disbursed_cents: sql`${awards.disbursed_cents} + excluded.disbursed_cents` },
      })
    await tx.insert(disbursements).values({
      id,
      kind: "disbursement",
      portal_id: portalId,
      idempotency_key: key,
      award_key: submission.award_id,
      award_id: submission.award_id,
      amount_cents: submission.amount_cents,
      currency: submission.currency,
      submission_timestamp: submission.submission_timestamp,
      invoice_ref: submission.invoice_ref,
      recorded_at: now,
    })
    const payload = { id, kind: "disbursement", ...submission, idempotency_key: key, portal: "bench", recorded_at: now }
    const [event] = await tx
      .insert(outbox)
      .values({
        id: randomUUID(),
        aggregatetype: "award",
        aggregateid: submission.award_id,
        type: "disbursement.recorded",
        payload,
        event_key: `disbursement.recorded:${id}`,
        created_at: now,
      })
      .returning({ seq: outbox.seq })
    if (!event) throw new Error("an event has its number")
    for (const { id: destination_id } of await tx.select({ id: destinations.id }).from(destinations)) {
      await tx.insert(outboxDelivery).values({ destination_id, seq: event.seq, aggregateid: submission.award_id })
    }
    const location = `/v1/disbursements/${id}`
    const body = JSON.stringify({
      id,
      ...submission,
      idempotency_key: key,
      status: "recorded",
      recorded_at: now,
      warnings: [],
    })
    await tx.insert(answers).values({
      resource_id: id,
      request: text,
      request_sha256: sha256(text).digest(),
      status: 201,
      content_type: "application/json",
      location,
      body,
    })
    return { status: 201, location, body }
  })
}

process.once("SIGTERM", () => void app.close().then(() => process.exit(0)))
await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) })
