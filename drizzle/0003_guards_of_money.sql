-- Rules as they stood, what operators did, accounts and balances: never changed or removed.
CREATE TRIGGER award_rules_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON award_rules FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
CREATE TRIGGER operator_actions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON operator_actions FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
CREATE TRIGGER accounts_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON accounts FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
CREATE TRIGGER balance_events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON balance_events FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
