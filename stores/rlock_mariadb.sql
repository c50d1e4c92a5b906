-- What rlock_mariadb.h needs in a database: two tables and the functions that change them. MariaDB 10.6 or newer.
-- SPDX-License-Identifier: MIT
--
--     mariadb shop < rlock_mariadb.sql
--
-- It may be run again, by the same account, also while locks are held: nothing is lost. An account that locks needs
-- `GRANT EXECUTE ON shop.* TO app` and no right to the tables: the functions run with the rights of whoever runs this file.
-- On a server with a binary log, SET GLOBAL log_bin_trust_function_creators = 1 while this runs; binlog_format is ROW or MIXED.
--
-- One row a key. A release leaves it: the last fencing token stays there. rlock_sweep() removes rows that nobody has used
-- for a day, from cron, an event or by hand. All times are microseconds since 1970 by UTC_TIMESTAMP(6), which is the begin of
-- the client's statement: no earlier than the client sent it, and it ignores time zones. Whatever decides reads with
-- FOR UPDATE: it sees what was committed while it waited for the row of the key, and two that read never wait for each other.
-- Whatever is told as held is written, also if nothing else changes: `used` rises. Semi-synchronous replication waits for
-- nothing but what is in the binary log, so a renewal that wrote nothing would confirm what no replica has.
--
-- What stands in /*M! */ MariaDB alone reads: in MySQL it runs once, and a newer one after DROP FUNCTION and DROP PROCEDURE.

SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';

-- token: who holds a mutex, or ''. ends: of the hold, or of the last of the holds of a queued kind. sort: the letter of the
-- kind that uses the key, m, f, w or s. permits: a number that was set, for a day.
CREATE TABLE IF NOT EXISTS rlock_keys (
    name VARBINARY(2000) NOT NULL PRIMARY KEY,
    token VARBINARY(64) NOT NULL DEFAULT '',
    ends BIGINT NOT NULL DEFAULT 0,
    fence BIGINT NOT NULL DEFAULT 0,
    sort BINARY(1) NOT NULL DEFAULT 'm',
    permits INT NOT NULL DEFAULT 0,
    permits_until BIGINT NOT NULL DEFAULT 0,
    used BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The holders and the waiters of a queued kind; a waiter has the end 0, and stays for 30 command timeouts after its client
-- has asked for any of its waiters.
CREATE TABLE IF NOT EXISTS rlock_members (
    name VARBINARY(2000) NOT NULL,
    number BIGINT NOT NULL,
    token VARBINARY(64) NOT NULL,
    sort BINARY(1) NOT NULL,
    weight INT NOT NULL,
    ends BIGINT NOT NULL,
    stays BIGINT NOT NULL,
    PRIMARY KEY (name, number),
    UNIQUE KEY (name, token)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

DELIMITER $$

-- A client works with one version. It needs its own revision of that or a later one: an older client goes on working.
CREATE /*M! OR REPLACE */ FUNCTION rlock_version() RETURNS INT DETERMINISTIC NO SQL RETURN 1 $$
CREATE /*M! OR REPLACE */ FUNCTION rlock_revision() RETURNS INT DETERMINISTIC NO SQL RETURN 2 $$

-- What a function returns begins with its outcome, as those of rlock_outcome: 0 done, 1 held, 2 gone, 3 stolen; and 4 is the
-- fault TYPE. An acquire adds for how many milliseconds another one holds (-1: nobody knows), the first fencing token, and
-- whether the next in the queue is of the same client.

-- ---- a mutex with one key ----

CREATE /*M! OR REPLACE */ FUNCTION rlock_acquire(a_name VARBINARY(2000), a_token VARBINARY(64), a_lease BIGINT, a_fences INT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_token VARBINARY(64);
    DECLARE r_sort BINARY(1);
    DECLARE r_ends, r_fence, r_until BIGINT;
    SELECT token, sort, ends, fence, permits_until INTO r_token, r_sort, r_ends, r_fence, r_until
        FROM rlock_keys WHERE name = a_name FOR UPDATE;
    IF r_ends IS NULL THEN -- somebody else may do the same
        INSERT INTO rlock_keys (name, used) VALUES (a_name, at) ON DUPLICATE KEY UPDATE used = at;
        SELECT token, sort, ends, fence, permits_until INTO r_token, r_sort, r_ends, r_fence, r_until
            FROM rlock_keys WHERE name = a_name FOR UPDATE;
    END IF;
    IF r_until > at OR (r_ends > at AND r_sort <> 'm') THEN
        RETURN '4';
    ELSEIF r_ends > at AND r_token <> a_token THEN
        RETURN CONCAT('1 ', (r_ends - at + 999) DIV 1000);
    END IF;
    SET r_fence = IF(a_fences > 0, GREATEST(r_fence + 1, at), r_fence); -- they rise though a row was swept
    UPDATE rlock_keys SET token = a_token, sort = 'm', used = GREATEST(used + 1, at),
        fence = r_fence + GREATEST(a_fences - 1, 0),
        ends = GREATEST(IF(r_token = a_token, r_ends, 0), at + a_lease * 1000) WHERE name = a_name;
    RETURN CONCAT('0 -1 ', r_fence);
END $$

-- A renewal makes no lease shorter, but for one: an end that is later than the longest lease that this token was asked for
-- comes from a clock that was set back, and is cut to that lease. A longest of 0 cuts nothing.
CREATE /*M! OR REPLACE */ FUNCTION rlock_extend(a_name VARBINARY(2000), a_token VARBINARY(64), a_lease BIGINT,
        a_longest BIGINT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_token VARBINARY(64);
    DECLARE r_sort BINARY(1);
    DECLARE r_ends BIGINT DEFAULT 0;
    DECLARE most BIGINT DEFAULT COALESCE(at + NULLIF(a_longest, 0) * 1000, 9223372036854775807);
    SELECT token, sort, ends INTO r_token, r_sort, r_ends FROM rlock_keys WHERE name = a_name FOR UPDATE;
    IF r_ends <= at THEN
        RETURN '2';
    ELSEIF r_sort <> 'm' THEN
        RETURN '4';
    ELSEIF r_token <> a_token THEN
        RETURN '3';
    ELSEIF a_lease > 0 THEN
        UPDATE rlock_keys SET ends = GREATEST(LEAST(ends, most), at + a_lease * 1000), used = GREATEST(used + 1, at)
            WHERE name = a_name;
    END IF;
    RETURN '0';
END $$

-- What clients of revision 1 call, and rlock_renew_queued below.
CREATE /*M! OR REPLACE */ FUNCTION rlock_renew(a_name VARBINARY(2000), a_token VARBINARY(64), a_lease BIGINT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
    RETURN rlock_extend(a_name, a_token, a_lease, 0) $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_release(a_name VARBINARY(2000), a_token VARBINARY(64))
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_sort BINARY(1);
    DECLARE r_ends BIGINT DEFAULT 0;
    UPDATE rlock_keys SET token = '', ends = 0 WHERE name = a_name AND token = a_token AND sort = 'm' AND ends > at;
    IF ROW_COUNT() > 0 THEN
        RETURN '0';
    END IF;
    SELECT sort, ends INTO r_sort, r_ends FROM rlock_keys WHERE name = a_name FOR UPDATE;
    RETURN CASE WHEN r_ends <= at THEN '2' WHEN r_sort <> 'm' THEN '4' ELSE '3' END;
END $$

-- ---- a mutex with several keys: all or none ----

-- The keys follow each other, each with two bytes of its length before it, in the order of their bytes: all lock in that one.
-- The operation is a, r or d, for acquire, renew and release. An acquire says how many fencing tokens it wants, a renewal the
-- longest lease, where clients of revision 1 say 0.
CREATE /*M! OR REPLACE */ FUNCTION rlock_several(a_does BINARY(1), a_names LONGBLOB, a_token VARBINARY(64), a_lease BIGINT,
        a_number BIGINT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_token VARBINARY(64);
    DECLARE r_sort BINARY(1);
    DECLARE r_ends, r_fence, r_until BIGINT;
    DECLARE others, first BIGINT DEFAULT 0;
    DECLARE most BIGINT DEFAULT COALESCE(at + NULLIF(a_number, 0) * 1000, 9223372036854775807);
    DECLARE place, bytes, count, mine INT DEFAULT 0;
    DECLARE differs BOOL DEFAULT FALSE;
    DECLARE outcome INT;
    WHILE place < LENGTH(a_names) DO
        SET bytes = ASCII(SUBSTR(a_names, place + 1, 1)) * 256 + ASCII(SUBSTR(a_names, place + 2, 1)), r_ends = NULL;
        SELECT token, sort, ends, fence, permits_until INTO r_token, r_sort, r_ends, r_fence, r_until
            FROM rlock_keys WHERE name = SUBSTR(a_names, place + 3, bytes) FOR UPDATE;
        IF r_ends IS NULL AND a_does = 'a' THEN
            INSERT INTO rlock_keys (name, used) VALUES (SUBSTR(a_names, place + 3, bytes),
                at) ON DUPLICATE KEY UPDATE used = at;
            SELECT token, sort, ends, fence, permits_until INTO r_token, r_sort, r_ends, r_fence, r_until
                FROM rlock_keys WHERE name = SUBSTR(a_names, place + 3, bytes) FOR UPDATE;
        END IF;
        IF r_ends IS NOT NULL THEN
            SET differs = differs OR r_until > at OR (r_ends > at AND r_sort <> 'm'), first = GREATEST(first, r_fence);
            IF r_ends > at AND r_token = a_token AND r_sort = 'm' THEN
                SET mine = mine + 1;
            ELSEIF r_ends > at THEN
                SET others = GREATEST(others, r_ends);
            END IF;
        END IF;
        SET count = count + 1, place = place + 2 + bytes;
    END WHILE;
    IF a_does = 'a' AND differs THEN
        RETURN '4';
    ELSEIF a_does = 'a' AND others > 0 THEN
        RETURN CONCAT('1 ', (others - at + 999) DIV 1000);
    END IF;
    SET outcome = CASE WHEN a_does = 'a' OR mine = count THEN 0 WHEN others > 0 THEN 3 ELSE 2 END;
    SET first = GREATEST(first + 1, at), place = 0;
    WHILE place < LENGTH(a_names) DO
        SET bytes = ASCII(SUBSTR(a_names, place + 1, 1)) * 256 + ASCII(SUBSTR(a_names, place + 2, 1));
        IF a_does = 'a' THEN
            UPDATE rlock_keys SET ends = GREATEST(IF(token = a_token, ends, 0), at + a_lease * 1000), token = a_token,
                sort = 'm', used = GREATEST(used + 1, at), fence = IF(a_number > 0, first + a_number - 1, fence)
                WHERE name = SUBSTR(a_names, place + 3, bytes);
        ELSEIF a_does = 'r' AND outcome = 0 AND a_lease > 0 THEN
            UPDATE rlock_keys SET ends = GREATEST(LEAST(ends, most), at + a_lease * 1000), used = GREATEST(used + 1, at)
                WHERE name = SUBSTR(a_names, place + 3, bytes);
        ELSEIF a_does = 'd' AND mine > 0 THEN
            UPDATE rlock_keys SET token = '', ends = 0
                WHERE name = SUBSTR(a_names, place + 3, bytes) AND token = a_token AND sort = 'm';
        END IF;
        SET place = place + 2 + bytes;
    END WHILE;
    RETURN CONCAT(outcome, ' -1 ', first);
END $$

-- ---- queued kinds ----

-- Locks the row of a key, removes the holds that have ended, and says what stands there; r_fence NULL: no such row.
CREATE /*M! OR REPLACE */ PROCEDURE rlock_queue(a_name VARBINARY(2000), makes BOOL, at BIGINT, OUT r_fence BIGINT,
        OUT r_permits INT,
        OUT r_until BIGINT, OUT r_mutex BIGINT, OUT r_token VARBINARY(64))
    MODIFIES SQL DATA
BEGIN
    SELECT fence, permits, permits_until, IF(token <> '', ends, 0), token INTO r_fence, r_permits, r_until, r_mutex, r_token
        FROM rlock_keys WHERE name = a_name FOR UPDATE;
    IF r_fence IS NULL AND makes THEN
        INSERT INTO rlock_keys (name, used) VALUES (a_name, at) ON DUPLICATE KEY UPDATE used = at;
        SELECT fence, permits, permits_until, IF(token <> '', ends, 0), token INTO r_fence, r_permits, r_until, r_mutex, r_token
            FROM rlock_keys WHERE name = a_name FOR UPDATE;
    END IF;
    DELETE FROM rlock_members WHERE name = a_name AND IF(ends > 0, ends, stays) <= at;
END $$

-- Whether the key is in use as another sort. A mutex has its token in the row, all others are members.
CREATE /*M! OR REPLACE */ FUNCTION rlock_differs(a_name VARBINARY(2000), a_sort BINARY(1), at BIGINT, r_until BIGINT,
        r_mutex BIGINT)
    RETURNS BOOL READS SQL DATA
BEGIN
    DECLARE found INT;
    SELECT COUNT(*) INTO found FROM rlock_members WHERE name = a_name AND sort <> a_sort AND (a_sort <> 'm' OR ends > at)
        FOR UPDATE;
    RETURN found > 0 OR (r_until > at AND a_sort <> 's') OR (a_sort <> 'm' AND r_mutex > at);
END $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_weigh(a_name VARBINARY(2000)) RETURNS BIGINT READS SQL DATA
BEGIN
    DECLARE taken BIGINT;
    SELECT COALESCE(SUM(weight), 0) INTO taken FROM rlock_members WHERE name = a_name AND ends > 0 FOR UPDATE;
    RETURN taken;
END $$

-- Serves the queue while there is room: the first waiter holds for a while.
CREATE /*M! OR REPLACE */ PROCEDURE rlock_offer(a_name VARBINARY(2000), most INT, offer BIGINT, at BIGINT)
    MODIFIES SQL DATA
BEGIN
    DECLARE taken BIGINT DEFAULT rlock_weigh(a_name);
    DECLARE m_number BIGINT;
    DECLARE m_weight INT;
    serves: LOOP
        SET m_number = NULL;
        SELECT number, weight INTO m_number, m_weight FROM rlock_members WHERE name = a_name AND ends = 0
            ORDER BY number LIMIT 1 FOR UPDATE;
        IF m_number IS NULL OR (m_weight <= most AND taken + m_weight > most) THEN
            LEAVE serves;
        ELSEIF m_weight > most THEN
            DELETE FROM rlock_members WHERE name = a_name AND number = m_number;
        ELSE
            SET taken = taken + m_weight;
            UPDATE rlock_members SET ends = at + offer * 1000 WHERE name = a_name AND number = m_number;
        END IF;
    END LOOP;
END $$

-- The row says when the last of the holds ends, so that a mutex need not look at the members.
CREATE /*M! OR REPLACE */ PROCEDURE rlock_settle(a_name VARBINARY(2000), a_sort BINARY(1), at BIGINT)
    MODIFIES SQL DATA
BEGIN
    DECLARE last BIGINT;
    SELECT COALESCE(MAX(ends), 0) INTO last FROM rlock_members WHERE name = a_name FOR UPDATE;
    UPDATE rlock_keys SET token = '', sort = a_sort, used = GREATEST(used + 1, at), ends = last WHERE name = a_name;
END $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_acquire_queued(a_name VARBINARY(2000), a_token VARBINARY(64), a_lease BIGINT,
        a_fences INT,
        once BOOL, a_sort BINARY(1), a_permits INT, a_weight INT, writer VARBINARY(64), offer BIGINT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_fence, r_until, r_mutex, ended, last BIGINT;
    DECLARE r_permits, most INT;
    DECLARE waiting BIGINT;
    DECLARE r_token, next VARBINARY(64);
    DECLARE client VARBINARY(65) DEFAULT CONCAT(SUBSTRING_INDEX(a_token, ':', 1), ':');
    DECLARE answer VARBINARY(100);
    CALL rlock_queue(a_name, TRUE, at, r_fence, r_permits, r_until, r_mutex, r_token);
    IF rlock_differs(a_name, a_sort, at, r_until, r_mutex) THEN
        RETURN '4';
    END IF;
    SET most = IF(a_sort = 's' AND r_until > at, r_permits, a_permits);
    SELECT ends INTO ended FROM rlock_members WHERE name = a_name AND token = a_token FOR UPDATE;
    IF COALESCE(ended, 0) = 0 AND writer <> '' THEN
        SELECT ends INTO last FROM rlock_members WHERE name = a_name AND token = writer FOR UPDATE;
    END IF;
    IF COALESCE(ended, 0) = 0 AND last > 0 THEN -- beside its own writer
        DELETE FROM rlock_members WHERE name = a_name AND token = a_token;
        SET ended = NULL;
    ELSEIF COALESCE(ended, 0) = 0 THEN
        CALL rlock_offer(a_name, most, offer, at);
        SET ended = NULL;
        SELECT ends INTO ended FROM rlock_members WHERE name = a_name AND token = a_token FOR UPDATE;
        SELECT COUNT(*) INTO waiting FROM rlock_members WHERE name = a_name AND ends = 0 FOR UPDATE;
        SET last = IF(ended IS NULL AND waiting = 0 AND rlock_weigh(a_name) + a_weight <= most, at, 0);
    END IF;
    IF ended IS NULL AND (last > 0 OR NOT once) THEN
        SELECT COALESCE(MAX(number), 0) + 1 INTO waiting FROM rlock_members WHERE name = a_name FOR UPDATE;
        SET ended = IF(last > 0, at, 0);
        INSERT INTO rlock_members (name, number, token, sort, weight, ends, stays)
            VALUES (a_name, waiting, a_token, a_sort, a_weight, ended, 0);
    END IF;
    IF ended > 0 THEN
        UPDATE rlock_members SET ends = GREATEST(ends, at + a_lease * 1000) WHERE name = a_name AND token = a_token;
        IF a_fences > 0 THEN
            SET r_fence = GREATEST(r_fence + 1, at);
            UPDATE rlock_keys SET fence = r_fence + a_fences - 1 WHERE name = a_name;
        END IF;
        IF r_until > at THEN
            UPDATE rlock_keys SET permits_until = at + 86400000000 WHERE name = a_name;
        END IF;
        SELECT token INTO next FROM rlock_members WHERE name = a_name AND ends = 0 ORDER BY number LIMIT 1 FOR UPDATE;
        SET answer = CONCAT('0 -1 ', r_fence, ' ', COALESCE(LOCATE(client, next) = 1, 0));
    ELSE -- its client is there, and so are all of its waiters
        UPDATE rlock_members SET stays = at + 30 * offer * 1000 WHERE name = a_name AND ends = 0 AND LOCATE(client, token) = 1
            AND stays < at + 20 * offer * 1000;
        SELECT MIN(ends) INTO last FROM rlock_members WHERE name = a_name AND ends > 0 FOR UPDATE;
        SET answer = CONCAT('1 ', COALESCE((last - at + 999) DIV 1000, -1));
    END IF;
    CALL rlock_settle(a_name, a_sort, at);
    RETURN answer;
END $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_extend_queued(a_name VARBINARY(2000), a_token VARBINARY(64), a_lease BIGINT,
        a_longest BIGINT, a_sort BINARY(1), a_permits INT, a_weight INT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_fence, r_until, r_mutex, ended BIGINT;
    DECLARE most BIGINT DEFAULT COALESCE(at + NULLIF(a_longest, 0) * 1000, 9223372036854775807);
    DECLARE r_permits INT;
    DECLARE r_token VARBINARY(64);
    CALL rlock_queue(a_name, FALSE, at, r_fence, r_permits, r_until, r_mutex, r_token);
    IF r_fence IS NULL THEN
        RETURN '2';
    ELSEIF rlock_differs(a_name, a_sort, at, r_until, r_mutex) THEN
        RETURN '4';
    END IF;
    SELECT ends INTO ended FROM rlock_members WHERE name = a_name AND token = a_token FOR UPDATE;
    IF COALESCE(ended, 0) = 0 THEN
        RETURN IF(rlock_weigh(a_name) + a_weight > IF(a_sort = 's' AND r_until > at, r_permits, a_permits), '3', '2');
    ELSEIF a_lease > 0 THEN
        UPDATE rlock_members SET ends = GREATEST(LEAST(ends, most), at + a_lease * 1000)
            WHERE name = a_name AND token = a_token;
        CALL rlock_settle(a_name, a_sort, at);
    END IF;
    RETURN '0';
END $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_renew_queued(a_name VARBINARY(2000), a_token VARBINARY(64), a_lease BIGINT,
        a_sort BINARY(1), a_permits INT, a_weight INT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
    RETURN rlock_extend_queued(a_name, a_token, a_lease, 0, a_sort, a_permits, a_weight) $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_release_queued(a_name VARBINARY(2000), a_token VARBINARY(64), a_sort BINARY(1),
        a_permits INT,
        a_weight INT, offer BIGINT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_fence, r_until, r_mutex, ended BIGINT;
    DECLARE r_permits, most, outcome INT;
    DECLARE r_token VARBINARY(64);
    CALL rlock_queue(a_name, FALSE, at, r_fence, r_permits, r_until, r_mutex, r_token);
    IF r_fence IS NULL THEN
        RETURN '2';
    END IF;
    SET most = IF(a_sort = 's' AND r_until > at, r_permits, a_permits);
    SELECT ends INTO ended FROM rlock_members WHERE name = a_name AND token = a_token AND sort = a_sort FOR UPDATE;
    DELETE FROM rlock_members WHERE name = a_name AND token = a_token AND sort = a_sort;
    SET outcome = CASE WHEN ended > 0 THEN 0 WHEN rlock_differs(a_name, a_sort, at, r_until, r_mutex) THEN 4
        WHEN rlock_weigh(a_name) + a_weight > most THEN 3 ELSE 2 END;
    IF outcome <> 4 THEN
        CALL rlock_offer(a_name, most, offer, at);
        CALL rlock_settle(a_name, a_sort, at);
    END IF;
    RETURN CONCAT(outcome);
END $$

-- ---- questions ----

-- After the outcome: holders, milliseconds, waiters, free permits, the place of the token in the queue, and a holder's token.
CREATE /*M! OR REPLACE */ FUNCTION rlock_inspect(a_name VARBINARY(2000), a_token VARBINARY(64), a_sort BINARY(1),
        a_permits INT)
    RETURNS VARBINARY(200) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_fence, r_until, r_mutex, last, mine BIGINT;
    DECLARE r_permits, most, holders, waiters, place INT;
    DECLARE r_token VARBINARY(64);
    CALL rlock_queue(a_name, FALSE, at, r_fence, r_permits, r_until, r_mutex, r_token);
    SET most = IF(a_sort = 's' AND r_until > at, r_permits, a_permits);
    IF r_fence IS NOT NULL AND rlock_differs(a_name, a_sort, at, r_until, r_mutex) THEN
        RETURN '4';
    ELSEIF a_sort = 'm' THEN
        RETURN IF(r_mutex > at, CONCAT('0 1 ', (r_mutex - at + 999) DIV 1000, ' -1 0 -1 ', r_token), '0 0 0 -1 1 -1 ');
    END IF;
    SELECT COUNT(IF(ends > 0, 1, NULL)), MAX(ends), COUNT(IF(ends = 0, 1, NULL)), MIN(IF(ends > 0, token, NULL)),
            MIN(IF(ends = 0 AND token = a_token, number, NULL))
        INTO holders, last, waiters, r_token, mine FROM rlock_members WHERE name = a_name FOR UPDATE;
    SELECT COUNT(*) INTO place FROM rlock_members WHERE name = a_name AND ends = 0 AND number < mine FOR UPDATE;
    RETURN CONCAT_WS(' ', 0, holders, GREATEST(COALESCE((last - at + 999) DIV 1000, 0), 0), waiters,
        GREATEST(most - rlock_weigh(a_name), 0), IF(mine IS NULL, -1, place), COALESCE(r_token, ''));
END $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_force(a_name VARBINARY(2000), a_sort BINARY(1), a_permits INT, offer BIGINT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_fence, r_until, r_mutex BIGINT;
    DECLARE r_permits, holders INT DEFAULT 0;
    DECLARE r_token VARBINARY(64);
    CALL rlock_queue(a_name, FALSE, at, r_fence, r_permits, r_until, r_mutex, r_token);
    IF r_fence IS NULL THEN
        RETURN '0 0';
    ELSEIF rlock_differs(a_name, a_sort, at, r_until, r_mutex) THEN
        RETURN '4';
    ELSEIF a_sort = 'm' THEN
        UPDATE rlock_keys SET token = '', ends = 0 WHERE name = a_name AND token <> '';
        RETURN IF(r_mutex > at, '0 1', '0 0');
    END IF;
    DELETE FROM rlock_members WHERE name = a_name AND ends > 0;
    SET holders = ROW_COUNT();
    CALL rlock_offer(a_name, IF(a_sort = 's' AND r_until > at, r_permits, a_permits), offer, at);
    CALL rlock_settle(a_name, a_sort, at);
    RETURN CONCAT('0 ', holders);
END $$

CREATE /*M! OR REPLACE */ FUNCTION rlock_set_permits(a_name VARBINARY(2000), a_sort BINARY(1), a_permits INT, number INT,
        offer BIGINT)
    RETURNS VARBINARY(100) MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE r_fence, r_until, r_mutex BIGINT;
    DECLARE r_permits INT;
    DECLARE r_token VARBINARY(64);
    CALL rlock_queue(a_name, TRUE, at, r_fence, r_permits, r_until, r_mutex, r_token);
    IF rlock_differs(a_name, a_sort, at, r_until, r_mutex) THEN
        RETURN '4';
    END IF;
    UPDATE rlock_keys SET permits = number, permits_until = IF(number > 0, at + 86400000000, 0) WHERE name = a_name;
    CALL rlock_offer(a_name, IF(number > 0, number, a_permits), offer, at);
    CALL rlock_settle(a_name, a_sort, at);
    RETURN '0';
END $$

-- Removes keys that nobody has used for a day, 1,000 at most: who wants one of them meanwhile waits until all of these are
-- gone. They are looked for before any is locked. Returns how many rows; 0: there are no more.
CREATE /*M! OR REPLACE */ FUNCTION rlock_sweep() RETURNS BIGINT MODIFIES SQL DATA
BEGIN
    DECLARE at BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DELETE rlock_keys, rlock_members FROM (SELECT name FROM rlock_keys WHERE GREATEST(used, ends, permits_until) <
            at - 86400000000 LIMIT 1000) old
        STRAIGHT_JOIN rlock_keys ON rlock_keys.name = old.name
        LEFT JOIN rlock_members ON rlock_members.name = rlock_keys.name
        WHERE GREATEST(rlock_keys.used, rlock_keys.ends, rlock_keys.permits_until) < at - 86400000000;
    RETURN ROW_COUNT();
END $$

DELIMITER ;

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
