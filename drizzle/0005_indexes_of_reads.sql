DROP INDEX "disbursements_owner_award";--> statement-breakpoint
DROP INDEX "disbursements_invoice_ref";--> statement-breakpoint
CREATE INDEX "disbursements_award_amount" ON "disbursements" USING btree ("award_key","amount_cents","recorded_at") WHERE kind = 'disbursement';--> statement-breakpoint
CREATE INDEX "disbursements_owner_award" ON "disbursements" USING btree (coalesce(owner_id, portal_id),"award_key","recorded_at","id");--> statement-breakpoint
CREATE INDEX "disbursements_invoice_ref" ON "disbursements" USING btree ("invoice_ref","award_key") WHERE invoice_ref IS NOT NULL;