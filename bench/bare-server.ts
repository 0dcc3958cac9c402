/** The upper bound of HTTP alone: Fastify, a JSON body in, a small JSON answer out, nothing recorded. */
import Fastify from "fastify"

const app = Fastify()
app.get("/readyz", async () => ({ status: "ready" }))
app.post<{ Body: { award_id: string; amount_cents: number } }>("/v1/submissions", async (request, reply) => {
  reply.code(201)
  return { status: "recorded", award_id: request.body.award_id, amount_cents: request.body.amount_cents }
})
process.once("SIGTERM", () => void app.close())
await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) })
