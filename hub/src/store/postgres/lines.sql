-- Connections, hubs, and what has to be done now and then. Functions are versioned: one that is called otherwise gets another number, and
-- hubs of two versions use theirs side by side.

-- The timeline of the server: each promotion begins another one.
CREATE OR REPLACE FUNCTION hub.timeline_1() RETURNS bigint
LANGUAGE sql AS $$
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
$$;

-- Whether a hub is up whose word lasts until then. A word lasts five seconds. One that lasts much longer was given by another server's clock,
-- which is ahead of this one's: who is up gives another one at once. The sixth second is for a clock that was set back a little.
CREATE OR REPLACE FUNCTION hub.is_up_1(alive_until timestamptz) RETURNS boolean
LANGUAGE sql AS $$
    SELECT alive_until > clock_timestamp() AND alive_until <= clock_timestamp() + interval '6 seconds';
$$;

-- Makes a store in tables that were made just now.
CREATE OR REPLACE FUNCTION hub.found_1(format smallint, shards smallint, secret_keys bytea[], plain_secrets boolean)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hub.store (format, shards, secret_keys, plain_secrets, timeline)
    VALUES (format, shards, secret_keys, plain_secrets, hub.timeline_1());
    FOR number IN 0..shards - 1 LOOP
        INSERT INTO hub.shard (shard) VALUES (number);
        INSERT INTO hub.tally (shard) VALUES (number);
        EXECUTE format(
            'CREATE TABLE hub.%I PARTITION OF hub.subscription FOR VALUES IN (%s)', 'subscription_' || number, number
        );
    END LOOP;
END
$$;

-- Leaves places in all logs and epochs of all shards free behind whatever was given out: some of it may have been lost, and who has seen it would
-- take something else for a repetition of it. A log leaps when it is appended to.
--
-- Eras only grow, even where the last one was lost too: each is behind the hours since 2025, which no restore sets back, and within an hour
-- each timeline has its own (`timelines`: so many have begun since the last leap that is known). Until the year 2264 there are fewer than 2^21
-- of them, so that places and epochs stay below 2^53, which every reader of JSON can count to.
CREATE OR REPLACE FUNCTION hub.leap_2(timelines bigint, at_least bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    hours bigint := floor(extract(epoch FROM clock_timestamp() - timestamptz '2025-01-01 00:00:00+00') / 3600);
    next bigint;
BEGIN
    SELECT greatest(greatest(s.era, hours) + greatest(timelines, 1), at_least) INTO next FROM hub.store s;
    -- In the order of everybody else.
    PERFORM FROM hub.shard h ORDER BY h.shard FOR NO KEY UPDATE;
    UPDATE hub.shard h SET epoch = greatest(h.epoch, next << 32);
    UPDATE hub.store s SET era = next;
END
$$;

-- Leaps where the server is another one than that on which hubs wrote whose durability is only declared: it may lack what was acknowledged. Hubs
-- call it before anything else that they do there; where durability is proven nothing is missing.
CREATE OR REPLACE FUNCTION hub.follow_timeline_1(proven boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now_on bigint := hub.timeline_1();
    known hub.store;
BEGIN
    SELECT s.* INTO known FROM hub.store s;
    IF (proven AND NOT known.is_declared) OR (known.timeline = now_on AND known.is_declared) THEN
        RETURN;
    END IF;
    -- One at a time; whoever has waited finds it done.
    PERFORM pg_advisory_xact_lock(1752523264, 3);
    SELECT s.* INTO known FROM hub.store s;
    IF known.timeline <> now_on AND (known.is_declared OR NOT proven) THEN
        PERFORM hub.leap_2(now_on - known.timeline, 0);
    END IF;
    UPDATE hub.store s SET timeline = now_on, is_declared = NOT proven OR (known.is_declared AND known.timeline = now_on);
END
$$;

-- The database was restored to an earlier point: leaps at least to this era, unless hubs are up. Answers whether it did, when, and which hubs
-- the database knows, those first that were up last.
CREATE OR REPLACE FUNCTION hub.restored_2(
    at_least bigint, most bigint, OUT is_done boolean, OUT now timestamptz, OUT names text[], OUT alive_until timestamptz[]
)
LANGUAGE plpgsql SET lock_timeout = '20s' AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    -- No hub gives its word meanwhile.
    PERFORM pg_advisory_xact_lock(1752523264, 3);
    now := clock_timestamp();
    SELECT array_agg(l.name ORDER BY l.alive_until DESC, l.name), array_agg(l.alive_until ORDER BY l.alive_until DESC, l.name)
    INTO names, alive_until
    FROM (SELECT n.name, n.alive_until FROM hub.node n ORDER BY n.alive_until DESC, n.name LIMIT most) l;
    is_done := NOT EXISTS (SELECT FROM hub.node n WHERE hub.is_up_1(n.alive_until));
    IF is_done THEN
        PERFORM hub.leap_2(hub.timeline_1() - s.timeline, at_least) FROM hub.store s;
        UPDATE hub.store s SET timeline = hub.timeline_1(), is_declared = false;
    END IF;
END
$$;

-- Begins a connection: from now on what was sent through the one before it is refused. It waits for what is under way there, and no longer than
-- its caller does: nobody would end it, and while no standby acknowledges there would be more and more of them. The commit of this is also the
-- proof that the server still acknowledges, before anything is read from it.
CREATE OR REPLACE FUNCTION hub.open_line_1(line bigint, node bigint, proven boolean, OUT generation bigint, OUT xid bigint)
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    -- Behind a pooler what was set for the session may have been set for another one.
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_advisory_xact_lock(line);
    PERFORM hub.follow_timeline_1(proven);
    INSERT INTO hub.line AS l VALUES (line, node, 1, clock_timestamp(), proven)
    ON CONFLICT (id) DO UPDATE SET generation = l.generation + 1, opened_at = excluded.opened_at
    RETURNING l.generation INTO generation;
    xid := pg_current_xact_id()::text::bigint;
END
$$;

-- To be called first by whatever writes.
CREATE OR REPLACE FUNCTION hub.fence_1(line bigint, generation bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    must_wait boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_advisory_xact_lock_shared(line);
    -- A statement of its own, hence a fresh snapshot.
    SELECT l.proven INTO must_wait FROM hub.line l WHERE l.id = line AND l.generation = fence_1.generation;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the connection was made anew' USING ERRCODE = 'HB001';
    END IF;
    IF must_wait AND current_setting('synchronous_standby_names') = '' THEN
        RAISE EXCEPTION 'commits wait for no standby' USING ERRCODE = 'HB004';
    END IF;
END
$$;

-- A hub is up for so much longer. Returns the present moment, what a standby must have to have this, whether other hubs are up, and in
-- which era how often a hub with this data folder has said so. `are_noted`: the hub has noted the key with which it writes.
CREATE OR REPLACE FUNCTION hub.beat_3(
    line bigint, generation bigint, node bigint, name text, version text, lasts_us bigint, is_drained boolean,
    keys bytea[], are_noted boolean, of_folder bigint,
    OUT now timestamptz, OUT lsn text, OUT has_others boolean, OUT era bigint, OUT beats bigint
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    -- Not while the store leaps: who says that no hub is up has to be right until it has.
    PERFORM pg_advisory_xact_lock_shared(1752523264, 3);
    now := clock_timestamp();
    -- With the first key it writes.
    INSERT INTO hub.node AS n (id, name, version, alive_until, drained, reads, writes)
    VALUES (
        node, beat_3.name, beat_3.version, beat_3.now + lasts_us * interval '1 microsecond', is_drained, keys, keys[1]
    )
    ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until,
        drained = excluded.drained, reads = excluded.reads, writes = excluded.writes;
    INSERT INTO hub.witness AS w (folder, beats, seen_at) VALUES (of_folder, 1, beat_3.now)
    ON CONFLICT (folder) DO UPDATE SET beats = w.beats + 1, seen_at = excluded.seen_at
    RETURNING w.beats INTO beats;
    SELECT s.era INTO era FROM hub.store s;
    -- While it was taken for dead others may have found that nobody needs its key any more.
    IF are_noted AND NOT EXISTS (
        SELECT FROM hub.store s WHERE CASE WHEN keys[1] IS NULL THEN s.plain_secrets ELSE keys[1] = ANY (s.secret_keys) END
    ) THEN
        UPDATE hub.store s SET plain_secrets = s.plain_secrets OR keys[1] IS NULL, secret_keys = ARRAY(
            SELECT DISTINCT k.key FROM unnest(array_append(s.secret_keys, keys[1])) AS k(key) WHERE k.key IS NOT NULL ORDER BY k.key
        );
    END IF;
    lsn := pg_current_wal_insert_lsn()::text;
    has_others := EXISTS (SELECT FROM hub.node n WHERE n.id <> node AND hub.is_up_1(n.alive_until));
END
$$;

-- A hub stops: others may have its shards at once.
CREATE OR REPLACE FUNCTION hub.leave_1(line bigint, generation bigint, node bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    DELETE FROM hub.node n WHERE n.id = node;
    DELETE FROM hub.line l WHERE l.node = leave_1.node;
END
$$;

-- Makes the table of a day or an hour to come. It is made by itself and then attached, since that holds up nobody.
CREATE OR REPLACE FUNCTION hub.make_part_1(whole regclass, part text, since text, until text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass(format('hub.%I', part)) IS NULL THEN
        EXECUTE format('CREATE TABLE hub.%I (LIKE %s INCLUDING ALL)', part, whole);
        EXECUTE format('ALTER TABLE %s ATTACH PARTITION hub.%I FOR VALUES FROM (%L) TO (%L)', whole, part, since, until);
    END IF;
END
$$;

-- Drops the table of a day or an hour, unless it holds something that stays. To drop one waits for everybody who reads the whole, and whoever
-- comes later waits for that: where it is not soon done it is left for the next time.
CREATE OR REPLACE FUNCTION hub.drop_part_1(part regclass, only_empty boolean) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    is_empty boolean;
BEGIN
    IF only_empty THEN
        EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s)', part) INTO is_empty;
        IF NOT is_empty THEN
            RETURN;
        END IF;
    END IF;
    EXECUTE format('DROP TABLE %s', part);
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$$;

-- Makes the tables of the days and hours to come. One at a time: two that make the same table would fail.
CREATE OR REPLACE FUNCTION hub.make_parts_1() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    hour timestamptz := date_trunc('hour', clock_timestamp(), 'UTC');
    next timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(1752523264, 2);
    PERFORM hub.make_part_1('hub.notification', 'notification_aside', '0001-01-01', '0001-01-02');
    FOR ahead IN 0..2 LOOP
        PERFORM hub.make_part_1(
            'hub.notification', 'notification_' || to_char(today + ahead, 'YYYYMMDD'),
            (today + ahead)::text, (today + ahead + 1)::text
        );
        next := hour + ahead * interval '1 hour';
        PERFORM hub.make_part_1(
            'hub.feed', 'feed_' || to_char(next AT TIME ZONE 'UTC', 'YYYYMMDD_HH24'),
            next::text, (next + interval '1 hour')::text
        );
    END LOOP;
END
$$;

-- Makes the tables that will be needed, and forgets who has been gone for long. Returns which tables are over, those of the feed first, since it is
-- not looked whether they are empty.
CREATE OR REPLACE FUNCTION hub.housekeep_2(line bigint, generation bigint) RETURNS TABLE (part text, only_empty boolean)
LANGUAGE plpgsql AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    hour timestamptz := date_trunc('hour', clock_timestamp(), 'UTC');
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.make_parts_1();
    DELETE FROM hub.node n WHERE n.alive_until < clock_timestamp() - interval '1 day';
    -- A hub that comes back after longer takes the database for restored.
    DELETE FROM hub.witness w WHERE w.seen_at < clock_timestamp() - interval '1 year';
    DELETE FROM hub.line l WHERE l.opened_at < clock_timestamp() - interval '1 day'
        AND NOT EXISTS (SELECT FROM hub.node n WHERE n.id = l.node);
    RETURN QUERY
    SELECT format('hub.%I', c.relname), false FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'hub.feed'::regclass
        AND c.relname < 'feed_' || to_char((hour - interval '2 hours') AT TIME ZONE 'UTC', 'YYYYMMDD_HH24');
    -- Yesterday's is left alone: a statement that began before midnight may still write into it.
    RETURN QUERY
    SELECT format('hub.%I', c.relname), true FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'hub.notification'::regclass
        AND c.relname < 'notification_' || to_char(today - 1, 'YYYYMMDD');
END
$$;

-- Drops a table that is over; to be called by a statement of its own. Whoever drops one keeps everybody from the whole until the transaction ends,
-- and to look whether a log is empty may take long. Of several hubs one does it.
CREATE OR REPLACE FUNCTION hub.drop_over_1(line bigint, generation bigint, part text, only_empty boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    IF NOT pg_try_advisory_xact_lock(1752523264, 4) THEN
        RETURN;
    END IF;
    -- It may be gone by now.
    PERFORM hub.drop_part_1(to_regclass(part), only_empty) WHERE to_regclass(part) IS NOT NULL;
END
$$;

-- Makes topics that nobody knows, and returns those that it has made, for `hub.tally_1`. The store is locked, so that none of these is being
-- forgotten meanwhile, and the floor is final.
CREATE OR REPLACE FUNCTION hub.make_topics_1(keys bytea[], sorts text[], urls text[], ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    behind bigint;
    made bigint[];
BEGIN
    SELECT s.floor INTO behind FROM hub.store s FOR SHARE;
    WITH inserted AS (
        INSERT INTO hub.topic (id, key, sort, url, first, head)
        SELECT n.id, n.key, n.sort, n.url, behind + 1, behind
        FROM unnest(keys, sorts, urls, ids) AS n(key, sort, url, id)
        ORDER BY n.key
        ON CONFLICT (key) DO NOTHING
        RETURNING id
    )
    SELECT coalesce(array_agg(id), '{}') INTO made FROM inserted;
    RETURN made;
END
$$;

-- Counts topics that were made (1) or forgotten (-1), each in the shard of its id.
CREATE OR REPLACE FUNCTION hub.tally_topics_1(ids bigint[], by integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.tally_1(array_agg(n.shard), array_agg(0::bigint), array_agg(n.count), array_agg(0::bigint))
    FROM (
        SELECT (i % s.shards)::smallint AS shard, count(*) * by AS count FROM unnest(ids) AS i, hub.store s GROUP BY 1
    ) n;
END
$$;
