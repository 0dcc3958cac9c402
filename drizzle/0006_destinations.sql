CREATE TABLE "delivery_holds" (
	"destination_id" integer NOT NULL,
	"aggregateid" text NOT NULL,
	"seq" bigint NOT NULL,
	"reason" text NOT NULL,
	"attempts" integer NOT NULL,
	"since" timestamp(6) with time zone NOT NULL,
	"retry_at" timestamp(6) with time zone,
	"lease_token" uuid,
	"leased_until" timestamp(6) with time zone,
	CONSTRAINT "delivery_holds_pkey" PRIMARY KEY("destination_id","aggregateid")
);
--> statement-breakpoint
CREATE TABLE "delivery_receipts" (
	"destination_id" integer NOT NULL,
	"seq" bigint NOT NULL,
	"attempts" integer NOT NULL,
	"delivered_at" timestamp(6) with time zone NOT NULL,
	CONSTRAINT "delivery_receipts_pkey" PRIMARY KEY("destination_id","seq")
);
--> statement-breakpoint
CREATE TABLE "outbox_held" (
	"destination_id" integer NOT NULL,
	"aggregateid" text NOT NULL,
	"seq" bigint NOT NULL,
	CONSTRAINT "outbox_held_pkey" PRIMARY KEY("destination_id","aggregateid","seq")
);
--> statement-breakpoint
ALTER TABLE "destinations" ADD COLUMN "kind" text DEFAULT 'stdout' NOT NULL;--> statement-breakpoint
ALTER TABLE "destinations" ADD COLUMN "config" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "destinations" ADD COLUMN "paused" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "destinations" ADD COLUMN "disabled_reason" text;--> statement-breakpoint
ALTER TABLE "outbox_delivery" DROP COLUMN "not_before";--> statement-breakpoint
ALTER TABLE "outbox_delivery" DROP COLUMN "parked_reason";--> statement-breakpoint
ALTER TABLE "destinations" ADD CONSTRAINT "destinations_kind" CHECK ("destinations"."kind" IN ('webhook', 'nats', 'rabbitmq', 'stdout'));--> statement-breakpoint
ALTER TABLE "destinations" ADD CONSTRAINT "destinations_config" CHECK (jsonb_typeof("destinations"."config") = 'object');
--> statement-breakpoint
CREATE TRIGGER delivery_receipts_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON delivery_receipts FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
-- A queue: rows come, are leased on their page and go. Cleaned by what went, not by a share of what is there, and room for the lease beside the row.
ALTER TABLE outbox_delivery SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
