-- What is recorded is never changed or removed: refused for every role, superusers included, until the trigger itself is dropped.
CREATE FUNCTION grantgate_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END
$$;
--> statement-breakpoint
CREATE TRIGGER answers_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON answers FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
CREATE TRIGGER disbursements_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON disbursements FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
CREATE TRIGGER outbox_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
CREATE TRIGGER conflicts_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON conflicts FOR EACH STATEMENT EXECUTE FUNCTION grantgate_append_only();
--> statement-breakpoint
-- Room on each page for the next version of a hot award's row: its updates stay on the page and touch no index.
ALTER TABLE awards SET (fillfactor = 50);
