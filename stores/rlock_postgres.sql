-- What rlock_postgres.h needs in a database: two tables and the functions that change them. PostgreSQL 12 or newer.
-- SPDX-License-Identifier: MIT
--
--     psql -d shop -f rlock_postgres.sql
--
-- It may be run again, by the same role, also while locks are held: nothing is lost. A role that locks needs
-- `GRANT rlock_user TO shop` and no right to the tables: the functions run with the rights of their owner.
--
-- One row a key. A release leaves it: the last fencing token stays there. rlock.sweep() removes rows that nobody has used
-- for a day, from cron or by hand. All times are clock_timestamp(): now() would stand still in a transaction, and a lease
-- that was given at its end would be over too early.
\set ON_ERROR_STOP 1
BEGIN;
SET LOCAL client_min_messages = warning;
DO $$ BEGIN
    CREATE ROLE rlock_user NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
END $$;

CREATE SCHEMA IF NOT EXISTS rlock;
-- What somebody else has put there would run with this role's rights.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_namespace WHERE nspname = 'rlock' AND pg_get_userbyid(nspowner) <> current_user)
            OR EXISTS (SELECT FROM pg_class WHERE relnamespace = 'rlock'::regnamespace
                AND pg_get_userbyid(relowner) <> current_user)
            OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'rlock'::regnamespace
                AND pg_get_userbyid(proowner) <> current_user) THEN
        RAISE EXCEPTION 'the schema rlock, or something in it, belongs to another role';
    END IF;
END $$;

-- token: who holds a mutex. ends: of the hold, or of the last of the holds of a queued kind. sort: the letter of the kind
-- that uses the key, m, f, w or s. watched: until when a change is to be notified. permits: a number that was set, for a day.
CREATE TABLE IF NOT EXISTS rlock.keys (
    key bytea PRIMARY KEY,
    token text COLLATE "C",
    ends timestamptz NOT NULL DEFAULT '-infinity',
    fence bigint NOT NULL DEFAULT 0,
    sort "char" NOT NULL DEFAULT 'm',
    permits int NOT NULL DEFAULT 0,
    permits_until timestamptz NOT NULL DEFAULT '-infinity',
    watched timestamptz NOT NULL DEFAULT '-infinity',
    used timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The holders and the waiters of a queued kind; a waiter has no end, and stays for 30 command timeouts after its client
-- has asked for any of its waiters.
CREATE TABLE IF NOT EXISTS rlock.members (
    key bytea NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    token text COLLATE "C" NOT NULL,
    sort "char" NOT NULL,
    weight int NOT NULL,
    ends timestamptz,
    stays timestamptz NOT NULL DEFAULT 'infinity',
    PRIMARY KEY (key, number),
    UNIQUE (key, token)
);

-- A client works with one version. It needs its own revision of that or a later one: an older client goes on working.
CREATE OR REPLACE FUNCTION rlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE OR REPLACE FUNCTION rlock.revision() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2';

-- Outcomes are those of rlock_outcome: 0 done, 1 held, 2 gone, 3 stolen; and 4 is the fault TYPE.

CREATE OR REPLACE FUNCTION rlock.left_ms(ends timestamptz, at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT greatest(ceil(extract(epoch FROM ends - at) * 1000), 0)::bigint $$;

-- The first of so many fencing tokens after `last`: no less than the clock, so that they rise though a row was lost.
CREATE OR REPLACE FUNCTION rlock.next_fence(last bigint, at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT greatest(last + 1, (extract(epoch FROM at) * 1000000)::bigint) $$;

-- Clients that wait for a change listen to the channel of the key; which one, they compute alike.
CREATE OR REPLACE FUNCTION rlock.changed(k bytea) RETURNS void LANGUAGE sql AS
    $$ SELECT pg_notify('rlock_' || (get_byte(k, 0) + get_byte(k, length(k) - 1) * 7 + length(k)) % 64, encode(k, 'hex')) $$;

-- Each client listens to a channel of its own, named by its id, which its tokens begin with.
CREATE OR REPLACE FUNCTION rlock.notify(k bytea, t text) RETURNS void LANGUAGE sql AS
    $$ SELECT pg_notify('rlock_' || split_part(t, ':', 1), split_part(t, ':', 2) || ' ' || encode(k, 'hex')) $$;

-- ---- a mutex with one key ----

CREATE OR REPLACE FUNCTION rlock.acquire(k bytea, t text, lease bigint, fences int, waits bool,
        OUT outcome int, OUT left_ms bigint, OUT fence bigint) LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys;
    at timestamptz;
BEGIN
    left_ms := -1;
    LOOP
        UPDATE rlock.keys x SET token = t, sort = 'm', used = clock_timestamp(),
                ends = greatest(CASE WHEN x.token = t THEN x.ends END, clock_timestamp() + lease * interval '1 ms'),
                fence = CASE WHEN fences > 0 THEN rlock.next_fence(x.fence, clock_timestamp()) + fences - 1 ELSE x.fence END
            WHERE x.key = k AND (x.ends <= clock_timestamp() OR (x.token = t AND x.sort = 'm'))
                AND x.permits_until <= clock_timestamp()
            RETURNING x.fence - fences + 1 INTO fence;
        IF FOUND THEN
            outcome := 0;
            RETURN;
        END IF;
        IF waits THEN -- whoever lets go after this sees it, and notifies
            UPDATE rlock.keys x SET watched = clock_timestamp() + interval '10 min'
                WHERE x.key = k AND x.watched < clock_timestamp() + interval '5 min';
        END IF;
        SELECT * INTO r FROM rlock.keys x WHERE x.key = k;
        at := clock_timestamp();
        IF NOT FOUND THEN
            INSERT INTO rlock.keys (key) VALUES (k) ON CONFLICT DO NOTHING;
        ELSIF r.permits_until > at OR (r.ends > at AND r.sort <> 'm') THEN
            outcome := 4;
            RETURN;
        ELSIF r.ends > at AND waits AND r.watched < at THEN
            CONTINUE; -- the row was made in between, and does not say yet that somebody waits
        ELSIF r.ends > at THEN
            outcome := 1;
            left_ms := rlock.left_ms(r.ends, at);
            RETURN;
        END IF;
    END LOOP;
END $$;

-- A renewal makes no lease shorter, but for one: an end that is later than the longest lease that this token was asked for
-- comes from a clock that was set back, and is cut to that lease. A longest of 0 cuts nothing: least() ignores a NULL. The
-- functions without it, here and below, are what clients of revision 1 call.
CREATE OR REPLACE FUNCTION rlock.renew(k bytea, t text, lease bigint, longest bigint, OUT outcome int) LANGUAGE plpgsql
        SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys;
BEGIN
    IF lease > 0 THEN
        UPDATE rlock.keys x SET ends = greatest(least(x.ends, clock_timestamp() + nullif(longest, 0) * interval '1 ms'),
                clock_timestamp() + lease * interval '1 ms')
            WHERE x.key = k AND x.token = t AND x.sort = 'm' AND x.ends > clock_timestamp();
        IF FOUND THEN
            outcome := 0;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO r FROM rlock.keys x WHERE x.key = k;
    outcome := CASE WHEN NOT FOUND OR r.ends <= clock_timestamp() THEN 2
                    WHEN r.sort <> 'm' THEN 4
                    WHEN r.token <> t THEN 3
                    WHEN lease > 0 THEN 2 -- it ended in between
                    ELSE 0 END;
END $$;

CREATE OR REPLACE FUNCTION rlock.renew(k bytea, t text, lease bigint, OUT outcome int) LANGUAGE sql AS
    $$ SELECT rlock.renew(k, t, lease, 0) $$;

CREATE OR REPLACE FUNCTION rlock.release(k bytea, t text, OUT outcome int) LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys;
BEGIN
    UPDATE rlock.keys x SET token = NULL, ends = '-infinity'
        WHERE x.key = k AND x.token = t AND x.sort = 'm' AND x.ends > clock_timestamp() RETURNING * INTO r;
    IF FOUND THEN
        outcome := 0;
        IF r.watched > clock_timestamp() THEN
            PERFORM rlock.changed(k);
        END IF;
        RETURN;
    END IF;
    SELECT * INTO r FROM rlock.keys x WHERE x.key = k;
    outcome := CASE WHEN NOT FOUND OR r.ends <= clock_timestamp() THEN 2 WHEN r.sort <> 'm' THEN 4 ELSE 3 END;
END $$;

-- ---- a mutex with several keys: all or none; their rows are locked in one order ----

CREATE OR REPLACE FUNCTION rlock.lock_rows(ks bytea[]) RETURNS void LANGUAGE plpgsql
        SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k bytea;
BEGIN
    FOR k IN SELECT DISTINCT x FROM unnest(ks) x ORDER BY x LOOP
        LOOP -- it may be swept in between
            PERFORM 1 FROM rlock.keys x WHERE x.key = k FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO rlock.keys (key) VALUES (k) ON CONFLICT DO NOTHING;
        END LOOP;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION rlock.acquire_all(ks bytea[], t text, lease bigint, fences int, waits bool,
        OUT outcome int, OUT left_ms bigint, OUT fence bigint) LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz;
    others timestamptz;
    differs bool;
BEGIN
    left_ms := -1;
    PERFORM rlock.lock_rows(ks);
    at := clock_timestamp();
    SELECT max(x.ends) FILTER (WHERE x.ends > at AND x.token IS DISTINCT FROM t),
           bool_or(x.permits_until > at OR (x.ends > at AND x.sort <> 'm')), max(x.fence)
        INTO others, differs, fence FROM rlock.keys x WHERE x.key = ANY (ks);
    IF differs THEN
        outcome := 4;
    ELSIF others IS NOT NULL THEN
        outcome := 1;
        left_ms := rlock.left_ms(others, at);
        UPDATE rlock.keys x SET watched = at + interval '10 min'
            WHERE waits AND x.key = ANY (ks) AND x.watched < at + interval '5 min';
    ELSE
        outcome := 0;
        fence := rlock.next_fence(fence, at);
        UPDATE rlock.keys x SET token = t, sort = 'm', used = at,
                ends = greatest(CASE WHEN x.token = t THEN x.ends END, at + lease * interval '1 ms'),
                fence = CASE WHEN fences > 0 THEN acquire_all.fence + fences - 1 ELSE x.fence END
            WHERE x.key = ANY (ks);
    END IF;
END $$;

-- Locks the rows, and says how they stand for a token: 0 = it has all of them, 2 = nobody has one, 3 = another one has.
CREATE OR REPLACE FUNCTION rlock.stand(ks bytea[], t text, OUT outcome int, OUT at timestamptz) LANGUAGE plpgsql
        SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM rlock.keys x WHERE x.key = ANY (ks) ORDER BY x.key FOR UPDATE;
    at := clock_timestamp();
    SELECT CASE WHEN count(*) FILTER (WHERE x.token = t AND x.sort = 'm' AND x.ends > at) = cardinality(ks) THEN 0
                WHEN bool_or(x.ends > at AND x.token IS DISTINCT FROM t) THEN 3 ELSE 2 END
        INTO outcome FROM rlock.keys x WHERE x.key = ANY (ks);
END $$;

CREATE OR REPLACE FUNCTION rlock.renew_all(ks bytea[], t text, lease bigint, longest bigint, OUT outcome int)
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz;
BEGIN
    SELECT s.outcome, s.at INTO outcome, at FROM rlock.stand(ks, t) s;
    UPDATE rlock.keys x SET ends = greatest(least(x.ends, at + nullif(longest, 0) * interval '1 ms'),
            at + lease * interval '1 ms')
        WHERE outcome = 0 AND lease > 0 AND x.key = ANY (ks);
END $$;

CREATE OR REPLACE FUNCTION rlock.renew_all(ks bytea[], t text, lease bigint, OUT outcome int) LANGUAGE sql AS
    $$ SELECT rlock.renew_all(ks, t, lease, 0) $$;

CREATE OR REPLACE FUNCTION rlock.release_all(ks bytea[], t text, OUT outcome int) LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at timestamptz;
BEGIN
    SELECT s.outcome, s.at INTO outcome, at FROM rlock.stand(ks, t) s;
    PERFORM rlock.changed(x.key) FROM rlock.keys x
        WHERE x.key = ANY (ks) AND x.token = t AND x.sort = 'm' AND x.ends > at AND x.watched > at;
    UPDATE rlock.keys x SET token = NULL, ends = '-infinity' WHERE x.key = ANY (ks) AND x.token = t AND x.sort = 'm';
END $$;

-- ---- queued kinds ----

-- Locks the row of a key, removes the holds that have ended, and says what stands there; NULL: no such row.
CREATE OR REPLACE FUNCTION rlock.queue(k bytea, makes bool) RETURNS rlock.keys LANGUAGE plpgsql
        SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys;
BEGIN
    SELECT * INTO r FROM rlock.keys x WHERE x.key = k FOR UPDATE;
    WHILE NOT FOUND AND makes LOOP
        INSERT INTO rlock.keys (key) VALUES (k) ON CONFLICT DO NOTHING;
        SELECT * INTO r FROM rlock.keys x WHERE x.key = k FOR UPDATE;
    END LOOP;
    DELETE FROM rlock.members m WHERE m.key = k AND coalesce(m.ends, m.stays) <= clock_timestamp();
    RETURN r;
END $$;

-- True if the key is in use as another sort. A mutex has its token in the row, all others are members.
CREATE OR REPLACE FUNCTION rlock.differs(r rlock.keys, s "char", at timestamptz) RETURNS bool LANGUAGE sql AS $$
    SELECT (r.permits_until > at AND s <> 's') OR (s <> 'm' AND r.token IS NOT NULL AND r.ends > at)
        OR EXISTS (SELECT FROM rlock.members m WHERE m.key = r.key AND m.sort <> s AND (s <> 'm' OR m.ends > at)) $$;

CREATE OR REPLACE FUNCTION rlock.permits(r rlock.keys, s "char", permits int, at timestamptz) RETURNS int LANGUAGE sql AS
    $$ SELECT CASE WHEN s = 's' AND r.permits_until > at THEN r.permits ELSE permits END $$;

-- Serves the queue while there is room: the first waiter holds for a while, and is notified, but for one.
CREATE OR REPLACE FUNCTION rlock.offer(k bytea, most int, offer bigint, but text, at timestamptz) RETURNS void
        LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    used bigint;
    m rlock.members;
BEGIN
    SELECT coalesce(sum(x.weight), 0) INTO used FROM rlock.members x WHERE x.key = k AND x.ends IS NOT NULL;
    FOR m IN SELECT * FROM rlock.members x WHERE x.key = k AND x.ends IS NULL ORDER BY x.number LOOP
        IF m.weight > most THEN
            DELETE FROM rlock.members x WHERE x.key = k AND x.number = m.number;
            CONTINUE;
        END IF;
        EXIT WHEN used + m.weight > most;
        used := used + m.weight;
        UPDATE rlock.members x SET ends = at + offer * interval '1 ms' WHERE x.key = k AND x.number = m.number;
        IF m.token IS DISTINCT FROM but THEN
            PERFORM rlock.notify(k, m.token);
        END IF;
    END LOOP;
END $$;

-- The row says when the last of the holds ends, so that a mutex need not look at the members.
CREATE OR REPLACE FUNCTION rlock.settle(k bytea, s "char") RETURNS void LANGUAGE sql AS $$
    UPDATE rlock.keys x SET token = NULL, sort = s, used = clock_timestamp(), ends = coalesce(
        (SELECT max(m.ends) FROM rlock.members m WHERE m.key = k), '-infinity') WHERE x.key = k $$;

CREATE OR REPLACE FUNCTION rlock.acquire_queued(k bytea, t text, lease bigint, fences int, once bool, s "char", permits int,
        weight int, writer text, offer bigint, OUT outcome int, OUT left_ms bigint, OUT fence bigint, OUT ours bool)
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys := rlock.queue(k, true);
    at timestamptz := clock_timestamp();
    most int := rlock.permits(r, s, permits, at);
    used bigint;
    holds bool;
BEGIN
    left_ms := -1;
    ours := false;
    IF rlock.differs(r, s, at) THEN
        outcome := 4;
        RETURN;
    END IF;
    holds := EXISTS (SELECT FROM rlock.members m WHERE m.key = k AND m.token = t AND m.ends IS NOT NULL);
    IF NOT holds AND writer <> ''
            AND EXISTS (SELECT FROM rlock.members m WHERE m.key = k AND m.token = writer AND m.ends IS NOT NULL) THEN
        DELETE FROM rlock.members m WHERE m.key = k AND m.token = t;
        INSERT INTO rlock.members (key, token, sort, weight, ends) VALUES (k, t, s, acquire_queued.weight, at);
        holds := true;
    ELSIF NOT holds THEN
        PERFORM rlock.offer(k, most, offer, t, at);
        SELECT coalesce(sum(m.weight) FILTER (WHERE m.ends IS NOT NULL), 0),
               coalesce(bool_or(m.token = t AND m.ends IS NOT NULL), false)
            INTO used, holds FROM rlock.members m WHERE m.key = k;
        IF NOT holds AND used + weight <= most
                AND NOT EXISTS (SELECT FROM rlock.members m WHERE m.key = k AND m.ends IS NULL) THEN
            INSERT INTO rlock.members (key, token, sort, weight, ends) VALUES (k, t, s, acquire_queued.weight, at);
            holds := true;
        ELSIF NOT holds AND NOT once THEN
            INSERT INTO rlock.members (key, token, sort, weight) VALUES (k, t, s, acquire_queued.weight) ON CONFLICT DO NOTHING;
            UPDATE rlock.members m SET stays = at + 30 * offer * interval '1 ms' WHERE m.key = k AND m.ends IS NULL
                AND split_part(m.token, ':', 1) = split_part(t, ':', 1)
                AND (m.stays = 'infinity' OR m.stays < at + 20 * offer * interval '1 ms');
        END IF;
    END IF;
    IF holds THEN
        outcome := 0;
        UPDATE rlock.members m SET ends = greatest(m.ends, at + lease * interval '1 ms') WHERE m.key = k AND m.token = t;
        IF fences > 0 THEN
            fence := rlock.next_fence(r.fence, at);
            UPDATE rlock.keys x SET fence = acquire_queued.fence + fences - 1 WHERE x.key = k;
        END IF;
        IF r.permits_until > at THEN
            UPDATE rlock.keys x SET permits_until = at + interval '1 day' WHERE x.key = k;
        END IF;
        SELECT split_part(m.token, ':', 1) = split_part(t, ':', 1) INTO ours
            FROM rlock.members m WHERE m.key = k AND m.ends IS NULL ORDER BY m.number LIMIT 1;
        ours := coalesce(ours, false);
    ELSE
        outcome := 1;
        SELECT CASE WHEN count(m.ends) > 0 THEN rlock.left_ms(min(m.ends), at) END INTO left_ms
            FROM rlock.members m WHERE m.key = k; -- of nobody's hold nothing is left to wait for
        left_ms := coalesce(left_ms, -1);
    END IF;
    PERFORM rlock.settle(k, s);
END $$;

CREATE OR REPLACE FUNCTION rlock.renew_queued(k bytea, t text, lease bigint, longest bigint, s "char", permits int,
        weight int, OUT outcome int) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys := rlock.queue(k, false);
    at timestamptz := clock_timestamp();
    most timestamptz := CASE WHEN lease > 0 THEN at + nullif(longest, 0) * interval '1 ms' END;
BEGIN
    IF r.key IS NULL THEN
        outcome := 2;
    ELSIF rlock.differs(r, s, at) THEN
        outcome := 4;
    ELSE
        UPDATE rlock.members m SET ends = greatest(least(m.ends, most), at + lease * interval '1 ms')
            WHERE m.key = k AND m.token = t AND m.ends IS NOT NULL;
        outcome := CASE WHEN FOUND THEN 0 WHEN (SELECT coalesce(sum(m.weight), 0) FROM rlock.members m
                WHERE m.key = k AND m.ends IS NOT NULL) + weight > rlock.permits(r, s, permits, at) THEN 3 ELSE 2 END;
        IF outcome = 0 AND lease > 0 THEN
            PERFORM rlock.settle(k, s);
        END IF;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION rlock.renew_queued(k bytea, t text, lease bigint, s "char", permits int, weight int,
        OUT outcome int) LANGUAGE sql AS $$ SELECT rlock.renew_queued(k, t, lease, 0, s, permits, weight) $$;

-- `next` is the token of the waiter whose acquire follows: it need not be notified.
CREATE OR REPLACE FUNCTION rlock.release_queued(k bytea, t text, s "char", permits int, weight int, offer bigint, next text,
        OUT outcome int) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys := rlock.queue(k, false);
    at timestamptz := clock_timestamp();
    most int := rlock.permits(r, s, permits, at);
    held bool;
BEGIN
    IF r.key IS NULL THEN
        outcome := 2;
        RETURN;
    END IF;
    DELETE FROM rlock.members m WHERE m.key = k AND m.token = t AND m.sort = s RETURNING m.ends IS NOT NULL INTO held;
    outcome := CASE WHEN held THEN 0 WHEN rlock.differs(r, s, at) THEN 4 WHEN (SELECT coalesce(sum(m.weight), 0)
            FROM rlock.members m WHERE m.key = k AND m.ends IS NOT NULL) + weight > most THEN 3 ELSE 2 END;
    IF outcome <> 4 THEN
        PERFORM rlock.offer(k, most, offer, next, at);
        PERFORM rlock.settle(k, s);
    END IF;
END $$;

-- ---- questions ----

CREATE OR REPLACE FUNCTION rlock.inspect(k bytea, t text, s "char", permits int, OUT outcome int, OUT holders bigint,
        OUT left_ms bigint, OUT waiters bigint, OUT free bigint, OUT place bigint, OUT holder text)
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys;
    at timestamptz;
    most int;
BEGIN
    IF s = 'm' THEN -- it changes nothing
        SELECT * INTO r FROM rlock.keys x WHERE x.key = k;
    ELSE
        r := rlock.queue(k, false);
    END IF;
    at := clock_timestamp();
    most := rlock.permits(r, s, permits, at);
    outcome := 0;
    holders := 0;
    left_ms := 0;
    waiters := CASE WHEN s = 'm' THEN -1 ELSE 0 END;
    free := CASE WHEN s = 'm' THEN 1 ELSE most END;
    place := -1;
    IF r.key IS NULL THEN
        RETURN;
    END IF;
    IF rlock.differs(r, s, at) THEN
        outcome := 4;
    ELSIF s = 'm' THEN
        IF r.ends > at THEN
            holders := 1;
            free := 0;
            holder := r.token;
            left_ms := rlock.left_ms(r.ends, at);
        END IF;
    ELSE
        SELECT count(*) FILTER (WHERE m.ends IS NOT NULL), rlock.left_ms(max(m.ends), at),
               count(*) FILTER (WHERE m.ends IS NULL),
               greatest(most - coalesce(sum(m.weight) FILTER (WHERE m.ends IS NOT NULL), 0), 0),
               min(m.token) FILTER (WHERE m.ends IS NOT NULL)
            INTO holders, left_ms, waiters, free, holder FROM rlock.members m WHERE m.key = k;
        left_ms := coalesce(left_ms, 0);
        SELECT count(*) INTO place FROM rlock.members m, rlock.members mine WHERE mine.key = k AND mine.token = t
            AND mine.ends IS NULL AND m.key = k AND m.ends IS NULL AND m.number < mine.number;
        IF NOT EXISTS (SELECT FROM rlock.members m WHERE m.key = k AND m.token = t AND m.ends IS NULL) THEN
            place := -1;
        END IF;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION rlock.force(k bytea, s "char", permits int, offer bigint, OUT outcome int, OUT holders bigint)
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys := rlock.queue(k, false);
    at timestamptz := clock_timestamp();
BEGIN
    outcome := 0;
    holders := 0;
    IF r.key IS NULL THEN
        RETURN;
    END IF;
    IF rlock.differs(r, s, at) THEN
        outcome := 4;
    ELSIF s = 'm' THEN
        IF r.ends > at THEN
            holders := 1;
            UPDATE rlock.keys x SET token = NULL, ends = '-infinity' WHERE x.key = k;
            PERFORM rlock.changed(k);
        END IF;
    ELSE
        PERFORM rlock.notify(k, m.token) FROM rlock.members m WHERE m.key = k AND m.ends IS NOT NULL;
        DELETE FROM rlock.members m WHERE m.key = k AND m.ends IS NOT NULL;
        GET DIAGNOSTICS holders = ROW_COUNT;
        PERFORM rlock.offer(k, rlock.permits(r, s, permits, at), offer, NULL, at);
        PERFORM rlock.settle(k, s);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION rlock.set_permits(k bytea, s "char", permits int, number int, offer bigint, OUT outcome int)
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r rlock.keys := rlock.queue(k, true);
    at timestamptz := clock_timestamp();
BEGIN
    outcome := 0;
    IF rlock.differs(r, s, at) THEN
        outcome := 4;
        RETURN;
    END IF;
    UPDATE rlock.keys x SET permits = number,
        permits_until = CASE WHEN number > 0 THEN at + interval '1 day' ELSE '-infinity' END WHERE x.key = k;
    PERFORM rlock.offer(k, CASE WHEN number > 0 THEN number ELSE set_permits.permits END, offer, NULL, at);
    PERFORM rlock.settle(k, s);
END $$;

-- Removes keys that nobody has used for a day, 1,000 at most: who wants one of them meanwhile waits until all of these are
-- gone. They are looked for before any is locked; reading the table seems so costly that it would be compiled, each time.
-- Returns how many; 0: there are no more.
CREATE OR REPLACE FUNCTION rlock.sweep() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    swept bigint;
    found bytea[] := ARRAY(SELECT x.key FROM rlock.keys x WHERE greatest(x.used, x.ends, x.permits_until) <
            clock_timestamp() - interval '1 day' LIMIT 1000);
BEGIN
    WITH old AS (SELECT x.key FROM rlock.keys x WHERE x.key = ANY (found) AND greatest(x.used, x.ends, x.permits_until) <
            clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED),
        members AS (DELETE FROM rlock.members m USING old WHERE m.key = old.key)
    DELETE FROM rlock.keys x USING old WHERE x.key = old.key;
    GET DIAGNOSTICS swept = ROW_COUNT;
    RETURN swept;
END $$;

-- Rows are found by the index. Once vacuum has seen the tables empty, the planner would read all of them each time, and a
-- session would go on so while they grow.
DO $$ DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'rlock'::regnamespace AND prosecdef LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', f);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', f);
    END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA rlock FROM PUBLIC;
DO $$ BEGIN
    GRANT USAGE ON SCHEMA rlock TO rlock_user;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA rlock TO rlock_user;
EXCEPTION WHEN undefined_object THEN NULL;
END $$;
COMMIT;

-- Copyright (c) 2026 the rlock authors
--
-- Permission is hereby granted, free of charge, to any person obtaining a copy
-- of this software and associated documentation files (the "Software"), to deal
-- in the Software without restriction, including without limitation the rights
-- to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
-- copies of the Software, and to permit persons to whom the Software is
-- furnished to do so, subject to the following conditions:
--
-- The above copyright notice and this permission notice shall be included in all
-- copies or substantial portions of the Software.
--
-- THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
-- IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
-- FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
-- AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
-- LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
-- OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
-- SOFTWARE.
