-- Optional: notes in the change stream who makes the changes of a transaction.
--
-- The stream of changes does not say which user changed a row. With this file, an application says it: a small message in
-- the WAL, in the transaction itself, which the hub keeps in its event log beside the changes. `tidewire row`, `event`, `tx`,
-- `tail` and `stats --by actor` show it.
--
--   tidewire.actor(actor, details)
--       Notes an actor for the current transaction: call it first, before the first change. Without an actor it takes the
--       claim `sub` of the request (`request.jwt.claims`), or else the database user. `details` is a JSON object of your own.
--       Notes also the database user, the role, and the session's `application_name`. Does nothing in a transaction that is
--       read only. Each call writes about 200 bytes of WAL, and a later call in the same transaction counts from there on.
--   tidewire.actor_of_request()
--       Does this for a request of PostgREST, with its method, path and `x-request-id`: set `db-pre-request` of PostgREST to
--       `tidewire.actor_of_request`. Supabase: ALTER ROLE authenticator SET pgrst.db_pre_request = 'tidewire.actor_of_request'.
--
-- Any role that may change rows may say what it likes here: it is a statement of the application, not a proof. Both functions
-- run with the caller's rights and may be called by everybody.

DO $tidewire$
BEGIN
    IF to_regnamespace('tidewire') IS NULL THEN
        CREATE SCHEMA tidewire;
    END IF;
    IF NOT has_schema_privilege('public', 'tidewire', 'USAGE') THEN
        GRANT USAGE ON SCHEMA tidewire TO PUBLIC;
    END IF;
END
$tidewire$;

CREATE OR REPLACE FUNCTION tidewire.actor(actor text DEFAULT NULL, details jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    claims text := nullif(current_setting('request.jwt.claims', true), '');
    subject text;
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN RETURN; END IF;
    BEGIN
        subject := claims::jsonb ->> 'sub';
    EXCEPTION WHEN data_exception THEN
        subject := NULL;
    END;
    PERFORM pg_logical_emit_message(true, 'tidewire.actor', jsonb_strip_nulls(jsonb_build_object(
        'actor', coalesce(actor, subject, session_user::text), 'sub', subject, 'user', session_user,
        'role', nullif(current_setting('role'), 'none'),
        'application', nullif(current_setting('application_name'), ''), 'details', details))::text);
END
$body$;

CREATE OR REPLACE FUNCTION tidewire.actor_of_request() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    request_id text;
BEGIN
    BEGIN
        request_id := left(nullif(current_setting('request.headers', true), '')::jsonb ->> 'x-request-id', 200);
    EXCEPTION WHEN data_exception THEN
        request_id := NULL;
    END;
    PERFORM tidewire.actor(NULL, nullif(jsonb_strip_nulls(jsonb_build_object(
        'method', nullif(current_setting('request.method', true), ''),
        'path', left(nullif(current_setting('request.path', true), ''), 500), 'request', request_id)), '{}'::jsonb));
END
$body$;
