CREATE TABLE "answers" (
	"resource_id" uuid PRIMARY KEY NOT NULL,
	"request" text NOT NULL,
	"request_sha256" "bytea" NOT NULL,
	"status" smallint NOT NULL,
	"content_type" text NOT NULL,
	"location" text,
	"body" text NOT NULL,
	CONSTRAINT "answers_status" CHECK ("answers"."status" BETWEEN 200 AND 299)
);
--> statement-breakpoint
CREATE TABLE "awards" (
	"award_key" text PRIMARY KEY NOT NULL,
	"award_id" text NOT NULL,
	"currency" text NOT NULL,
	"rules_version" integer DEFAULT 0 NOT NULL,
	"disbursed_cents" bigint NOT NULL,
	"returned_cents" bigint DEFAULT 0 NOT NULL,
	"opened_at" timestamp(6) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "awards_disbursed_cents" CHECK ("awards"."disbursed_cents" BETWEEN 0 AND 9007199254740991),
	CONSTRAINT "awards_returned_cents" CHECK ("awards"."returned_cents" BETWEEN 0 AND "awards"."disbursed_cents"),
	CONSTRAINT "awards_currency" CHECK ("awards"."currency" ~ '^[A-Z]{3}$')
);
--> statement-breakpoint
CREATE TABLE "claims" (
	"portal_id" uuid NOT NULL,
	"idempotency_key" text NOT NULL,
	"key_strategy" text,
	"operation" text,
	"fingerprint" text,
	"award_key" text,
	"submission_id" text,
	"resource_id" uuid NOT NULL,
	"state" text NOT NULL,
	"claimed_at" timestamp(6) with time zone NOT NULL,
	CONSTRAINT "claims_pkey" PRIMARY KEY("portal_id","idempotency_key"),
	CONSTRAINT "claims_state" CHECK ("claims"."state" IN ('completed', 'voided', 'purged')),
	CONSTRAINT "claims_key_length" CHECK (octet_length("claims"."idempotency_key") BETWEEN 1 AND 255),
	CONSTRAINT "claims_completed" CHECK ("claims"."state" = 'voided' OR ("claims"."key_strategy" IS NOT NULL AND "claims"."operation" IS NOT NULL AND "claims"."fingerprint" IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE "conflicts" (
	"id" uuid PRIMARY KEY NOT NULL,
	"portal_id" uuid NOT NULL,
	"idempotency_key" text NOT NULL,
	"operation" text NOT NULL,
	"fingerprint" text NOT NULL,
	"original_operation" text NOT NULL,
	"original_fingerprint" text NOT NULL,
	"differs" jsonb NOT NULL,
	"disbursement_id" uuid NOT NULL,
	"request_id" text NOT NULL,
	"occurred_at" timestamp(6) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "conflicts_differs" CHECK (jsonb_typeof("conflicts"."differs") = 'array')
);
--> statement-breakpoint
CREATE TABLE "destinations" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "destinations_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"name" text NOT NULL,
	"created_at" timestamp(6) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "destinations_name" UNIQUE("name")
);
--> statement-breakpoint
CREATE TABLE "disbursements" (
	"id" uuid PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"portal_id" uuid NOT NULL,
	"idempotency_key" text NOT NULL,
	"award_key" text NOT NULL,
	"award_id" text NOT NULL,
	"amount_cents" bigint NOT NULL,
	"currency" text NOT NULL,
	"submission_timestamp" timestamp(6) with time zone NOT NULL,
	"submission_id" text,
	"assistance_listing_number" text,
	"fain" text,
	"recipient_uei" text,
	"invoice_ref" text,
	"period_from" text,
	"period_to" text,
	"disbursement_id" uuid,
	"reason" text,
	"recorded_at" timestamp(6) with time zone NOT NULL,
	CONSTRAINT "disbursements_amount_cents" CHECK (CASE WHEN "disbursements"."kind" = 'disbursement' THEN "disbursements"."amount_cents" BETWEEN 1 AND 9007199254740991 ELSE "disbursements"."amount_cents" BETWEEN -9007199254740991 AND -1 END),
	CONSTRAINT "disbursements_kind" CHECK ("disbursements"."kind" IN ('disbursement', 'return', 'reversal')),
	CONSTRAINT "disbursements_original" CHECK (("disbursements"."kind" = 'disbursement') = ("disbursements"."disbursement_id" IS NULL) AND ("disbursements"."kind" = 'disbursement') = ("disbursements"."reason" IS NULL)),
	CONSTRAINT "disbursements_currency" CHECK ("disbursements"."currency" ~ '^[A-Z]{3}$')
);
--> statement-breakpoint
CREATE TABLE "outbox" (
	"seq" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "outbox_seq_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"id" uuid NOT NULL,
	"aggregatetype" text NOT NULL,
	"aggregateid" text NOT NULL,
	"type" text NOT NULL,
	"payload" jsonb NOT NULL,
	"event_key" text NOT NULL,
	"created_at" timestamp(6) with time zone NOT NULL,
	CONSTRAINT "outbox_id" UNIQUE("id"),
	CONSTRAINT "outbox_event_key" UNIQUE("event_key"),
	CONSTRAINT "outbox_payload" CHECK (jsonb_typeof("outbox"."payload") = 'object')
);
--> statement-breakpoint
CREATE TABLE "outbox_delivery" (
	"destination_id" integer NOT NULL,
	"seq" bigint NOT NULL,
	"aggregateid" text NOT NULL,
	"lease_token" uuid,
	"leased_until" timestamp(6) with time zone,
	"not_before" timestamp(6) with time zone,
	"attempts" integer DEFAULT 0 NOT NULL,
	"parked_reason" text,
	CONSTRAINT "outbox_delivery_pkey" PRIMARY KEY("destination_id","seq")
);
--> statement-breakpoint
CREATE TABLE "portal_tokens" (
	"id" uuid PRIMARY KEY NOT NULL,
	"portal_id" uuid NOT NULL,
	"token_sha256" "bytea" NOT NULL,
	"created_at" timestamp(6) with time zone DEFAULT now() NOT NULL,
	"revoked_at" timestamp(6) with time zone
);
--> statement-breakpoint
CREATE TABLE "portals" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"role" text NOT NULL,
	"key_required" boolean DEFAULT false NOT NULL,
	"created_at" timestamp(6) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "portals_name" UNIQUE("name"),
	CONSTRAINT "portals_role" CHECK ("portals"."role" IN ('portal', 'operator', 'auditor'))
);
--> statement-breakpoint
ALTER TABLE "portal_tokens" ADD CONSTRAINT "portal_tokens_portal_id_portals_id_fk" FOREIGN KEY ("portal_id") REFERENCES "public"."portals"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "claims_submission_id" ON "claims" USING btree ("portal_id","submission_id") WHERE submission_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "conflicts_occurred_at" ON "conflicts" USING btree ("occurred_at","id");--> statement-breakpoint
CREATE UNIQUE INDEX "disbursements_key" ON "disbursements" USING btree ("portal_id","idempotency_key");--> statement-breakpoint
CREATE INDEX "disbursements_recorded_at" ON "disbursements" USING btree ("recorded_at","id");--> statement-breakpoint
CREATE INDEX "disbursements_portal" ON "disbursements" USING btree ("portal_id","recorded_at","id");--> statement-breakpoint
CREATE INDEX "disbursements_award" ON "disbursements" USING btree ("award_key","recorded_at","id");--> statement-breakpoint
CREATE INDEX "disbursements_submission_id" ON "disbursements" USING btree ("submission_id") WHERE submission_id IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX "portal_tokens_token_sha256" ON "portal_tokens" USING btree ("token_sha256");--> statement-breakpoint
CREATE INDEX "portal_tokens_portal_id" ON "portal_tokens" USING btree ("portal_id");