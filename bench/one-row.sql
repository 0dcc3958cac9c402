-- pgbench: what one accepted submission writes, in one transaction. Ids begin with the transaction's time, as uuid v7 does, and
-- end in a random number, so that each statement can spell them without asking. :portal is a uuid, :awards their number.
\set n random(1, 9223372036854775806)
\set award random(1, :awards)
\set cents random(1, 1000000)
BEGIN;
INSERT INTO claims (portal_id, idempotency_key, key_strategy, operation, fingerprint, award_key, resource_id, state, claimed_at)
VALUES (:portal::uuid, md5(:n::text)::uuid::text, 'client/1', 'submission', 'v1:' || encode(sha256((:n::text)::bytea), 'hex'), 'A-2025-' || lpad(:award::text, 4, '0'),
  (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || substr(md5(:n::text), 13))::uuid, 'completed', now())
ON CONFLICT DO NOTHING RETURNING resource_id;
INSERT INTO awards (award_key, award_id, currency, disbursed_cents)
VALUES ('A-2025-' || lpad(:award::text, 4, '0'), 'A-2025-' || lpad(:award::text, 4, '0'), 'USD', :cents::bigint)
ON CONFLICT (award_key) DO UPDATE SET disbursed_cents = awards.disbursed_cents + excluded.disbursed_cents;
INSERT INTO disbursements (id, kind, portal_id, idempotency_key, award_key, award_id, amount_cents, currency, submission_timestamp, invoice_ref, recorded_at)
VALUES ((lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || substr(md5(:n::text), 13))::uuid, 'disbursement', :portal::uuid, md5(:n::text)::uuid::text,
  'A-2025-' || lpad(:award::text, 4, '0'), 'A-2025-' || lpad(:award::text, 4, '0'), :cents::bigint, 'USD', '2025-07-01T09:00:00Z', 'INV-000001', now());
INSERT INTO answers (resource_id, request, request_sha256, status, content_type, location, body)
VALUES ((lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || substr(md5(:n::text), 13))::uuid,
  '{"award_id":"A-2025-0001","submission_timestamp":"2025-07-01T09:00:00Z","amount_cents":100000,"currency":"USD","invoice_ref":"INV-000001"}',
  sha256((:n::text)::bytea), 201, 'application/json', '/v1/disbursements/' || md5(:n::text)::uuid,
  '{"id":"' || md5(:n::text)::uuid || '","award_id":"A-2025-0001","amount_cents":100000,"currency":"USD","submission_timestamp":"2025-07-01T09:00:00Z","idempotency_key":"' || md5(:n::text)::uuid || '","status":"recorded","recorded_at":"2025-07-01T09:00:00.000000Z","warnings":[]}');
WITH event AS (
  INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, event_key, created_at)
  VALUES ((lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || substr(md5('e' || :n::text), 13))::uuid, 'award', 'A-2025-' || lpad(:award::text, 4, '0'),
    'disbursement.recorded', ('{"id":"' || md5(:n::text)::uuid || '","kind":"disbursement","award_id":"A-2025-0001","amount_cents":100000,"currency":"USD","submission_timestamp":"2025-07-01T09:00:00Z","invoice_ref":"INV-000001","idempotency_key":"' || md5(:n::text)::uuid || '","portal":"bench","recorded_at":"2025-07-01T09:00:00.000000Z"}')::jsonb,
    'disbursement.recorded:' || (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || substr(md5(:n::text), 13))::uuid, now())
  RETURNING seq, aggregateid)
INSERT INTO outbox_delivery (destination_id, seq, aggregateid) SELECT d.id, e.seq, e.aggregateid FROM event e CROSS JOIN destinations d;
COMMIT;
