-- pgbench: the writes of 64 accepted submissions as sets, in one transaction: what the SQL alone can do. The rows come from a table
-- that each client fills first, so that the statements agree; ids as in one-row.sql.
\set n random(1, 9223372036854775806)
BEGIN;
CREATE TEMP TABLE IF NOT EXISTS batch (n text, id uuid, award text, cents bigint) ON COMMIT DELETE ROWS;
INSERT INTO batch SELECT md5(:n::text || i), (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || substr(md5(:n::text || i), 13))::uuid,
  'A-2025-' || lpad((1 + floor(random() * :awards::int))::int::text, 4, '0'), 1 + floor(random() * 1000000)::bigint FROM generate_series(1, 64) i;
INSERT INTO claims (portal_id, idempotency_key, key_strategy, operation, fingerprint, award_key, resource_id, state, claimed_at)
SELECT :portal::uuid, n::uuid::text, 'client/1', 'submission', 'v1:' || encode(sha256(n::bytea), 'hex'), award, id, 'completed', now() FROM batch ORDER BY n
ON CONFLICT DO NOTHING RETURNING resource_id;
INSERT INTO awards (award_key, award_id, currency, disbursed_cents)
SELECT award, award, 'USD', sum(cents) FROM batch GROUP BY award ORDER BY award
ON CONFLICT (award_key) DO UPDATE SET disbursed_cents = awards.disbursed_cents + excluded.disbursed_cents;
INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, invoice_ref, recorded_at)
SELECT id, 'disbursement', :portal::uuid, n::uuid::text, award, award, cents, 'USD', '2025-07-01T09:00:00Z', 'INV-000001', now() FROM batch;
INSERT INTO answers (resource_id, request, request_sha256, status, content_type, location, body)
SELECT id, '{"award_id":"A-2025-0001","submission_timestamp":"2025-07-01T09:00:00Z","amount_cents":100000,"currency":"USD","invoice_ref":"INV-000001"}',
  sha256(n::bytea), 201, 'application/json', '/v1/disbursements/' || id,
  '{"id":"' || id || '","award_id":"A-2025-0001","amount_cents":100000,"currency":"USD","submission_timestamp":"2025-07-01T09:00:00Z","idempotency_key":"' || n::uuid || '","status":"recorded","recorded_at":"2025-07-01T09:00:00.000000Z","warnings":[]}' FROM batch;
WITH event AS (
  INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, event_key, created_at)
  SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || substr(md5('e' || n), 13))::uuid, 'award', award, 'disbursement.recorded',
    ('{"id":"' || id || '","kind":"disbursement","award_id":"A-2025-0001","amount_cents":100000,"currency":"USD","submission_timestamp":"2025-07-01T09:00:00Z","invoice_ref":"INV-000001","idempotency_key":"' || n::uuid || '","portal":"bench","recorded_at":"2025-07-01T09:00:00.000000Z"}')::jsonb,
    'disbursement.recorded:' || id, now() FROM batch
  RETURNING seq, aggregateid)
INSERT INTO outbox_delivery (destination_id, seq, aggregateid) SELECT d.id, e.seq, e.aggregateid FROM event e CROSS JOIN destinations d;
COMMIT;
