-- Subscriptions in force: how they begin, are renewed and end.

-- What clients have the hub keep: so much more, or less. The rows are locked in the order of the clients.
CREATE OR REPLACE FUNCTION hub.count_1(clients inet[], subscriptions bigint[], topics bigint[], hosts bigint[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO hub.client AS c (client, subscriptions, topics, hosts)
    SELECT n.client, sum(n.subscriptions), sum(n.topics), sum(n.hosts)
    FROM unnest($1, $2, $3, $4) AS n (client, subscriptions, topics, hosts)
    WHERE n.client IS NOT NULL
    GROUP BY n.client
    ORDER BY n.client
    ON CONFLICT (client) DO UPDATE SET
        subscriptions = c.subscriptions + excluded.subscriptions, topics = c.topics + excluded.topics, hosts = c.hosts + excluded.hosts;
    DELETE FROM hub.client c WHERE c.client = ANY ($1) AND c.subscriptions <= 0 AND c.topics <= 0 AND c.hosts <= 0;
$$;

-- What there is: so much more, or less. The rows are locked in the order of the shards, so whoever changes them does so in one call, behind all
-- topics and hosts.
CREATE OR REPLACE FUNCTION hub.tally_1(shards smallint[], subscriptions bigint[], topics bigint[], hosts bigint[]) RETURNS void
LANGUAGE sql AS $$
    SELECT FROM hub.tally t WHERE t.shard = ANY ($1) ORDER BY t.shard FOR NO KEY UPDATE;
    UPDATE hub.tally t
    SET subscriptions = t.subscriptions + n.subscriptions, topics = t.topics + n.topics, hosts = t.hosts + n.hosts
    FROM (
        SELECT m.shard, sum(m.subscriptions) AS subscriptions, sum(m.topics) AS topics, sum(m.hosts) AS hosts
        FROM unnest($1, $2, $3, $4) AS m (shard, subscriptions, topics, hosts)
        GROUP BY m.shard
    ) n
    WHERE t.shard = n.shard;
$$;

-- What happened; behind the lock of the topic, if it is of one. Some call it many times, and plans of statements in this language are kept.
CREATE OR REPLACE FUNCTION hub.tell_1(
    node bigint, kind smallint, shard smallint, topic bigint, bounds bigint[], subject bigint
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hub.feed (kind, node, shard, topic, bounds, subject) VALUES ($2, $1, $3, $4, $5, $6);
    UPDATE hub.topic t SET told = pg_current_xact_id() WHERE t.id = $4;
END
$$;

-- What is in force of a pair, or nothing: two reads, since one of both tables would look at those of all shards.
CREATE OR REPLACE FUNCTION hub.of_pair_1(of_pair bytea) RETURNS hub.subscription
LANGUAGE plpgsql AS $$
DECLARE
    leads_to hub.pair;
    known hub.subscription;
BEGIN
    SELECT p.* INTO leads_to FROM hub.pair p WHERE p.pair = of_pair;
    SELECT s.* INTO known FROM hub.subscription s
    WHERE s.shard = leads_to.shard AND s.topic = leads_to.topic AND s.id = leads_to.id;
    RETURN known;
END
$$;

-- To be called by whoever has locked the shard alone, so that no checkpoint notes how late it is, and the pair. The topic is locked before the rest.
CREATE OR REPLACE FUNCTION hub.remove_subscription_1(known hub.subscription) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    topic_founder inet;
    host_founder inet;
    is_last_of_topic boolean;
    is_last_of_host boolean;
BEGIN
    SELECT t.founder, t.subscriptions <= 1 INTO topic_founder, is_last_of_topic
    FROM hub.topic t WHERE t.id = known.topic FOR NO KEY UPDATE;
    UPDATE hub.topic t
    SET subscriptions = greatest(t.subscriptions - 1, 0), founder = CASE WHEN is_last_of_topic THEN NULL ELSE t.founder END
    WHERE t.id = known.topic;
    DELETE FROM hub.pair p WHERE p.pair = known.pair AND p.id = known.id;
    DELETE FROM hub.subscription s WHERE s.shard = known.shard AND s.topic = known.topic AND s.id = known.id;
    DELETE FROM hub.laggard l WHERE l.shard = known.shard AND l.topic = known.topic AND l.subscription = known.id;
    SELECT h.founder, h.subscriptions <= 1 INTO host_founder, is_last_of_host
    FROM hub.host h WHERE h.origin = known.origin FOR UPDATE;
    IF is_last_of_host THEN
        DELETE FROM hub.host h WHERE h.origin = known.origin;
    ELSE
        UPDATE hub.host h SET subscriptions = h.subscriptions - 1 WHERE h.origin = known.origin;
    END IF;
    PERFORM hub.tally_1(
        ARRAY[known.shard], ARRAY[-1]::bigint[], ARRAY[0]::bigint[], ARRAY[-coalesce(is_last_of_host, false)::integer]::bigint[]
    );
    PERFORM hub.count_1(
        ARRAY[known.client, topic_founder, host_founder],
        ARRAY[-1, 0, 0]::bigint[],
        ARRAY[0, -coalesce(is_last_of_topic, false)::integer, 0]::bigint[],
        ARRAY[0, 0, -coalesce(is_last_of_host, false)::integer]::bigint[]
    );
END
$$;

-- Puts verified subscriptions of different pairs in force, each if its request still waits: new, or in the place of the one of the same pair,
-- which keeps its identity, its beginning, and for whom it counts (W-061). Answers the topic of each, or NULL.
--
-- Those that begin do so together: a topic with very many of them is written once, and not once for each. Those that are renewed are written one
-- by one, each in the table of its shard. Each statement is planned for the tables as large as they are then: a plan that is kept from when they
-- were small reads all of them.
--
-- All pairs are locked before any topic, then hosts, tallies and clients, each kind in one order, so that hubs seldom wait for each other. (Where
-- another hub makes one of its topics at the same moment, topics are locked out of order.) A new one begins under the lock of its
-- topic: so identities grow in the order of commits within a topic, and the start is the head of the log as it is then.
CREATE OR REPLACE FUNCTION hub.activate_2(
    line bigint, generation bigint, node bigint, requests bigint[], pairs bytea[], of_shards smallint[], keys bytea[], sorts text[],
    new_topics bigint[], topics_written text[], callbacks_written text[], origins text[], secrets bytea[], leases_us bigint[],
    lease_ends timestamptz[], addresses inet[], clients inet[], asked_at timestamptz[]
) RETURNS bigint[]
LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    there bytea[];
    -- Numbers of entries: with the first of each topic that is to be made.
    missing integer[];
    made bigint[] := '{}';
    entry record;
    known record;
    -- Numbers of entries: those that begin, and of these the first of each topic and host that had none.
    begun integer[];
    first_of_topics integer[] := '{}';
    first_of_hosts integer[];
    -- Of each entry that is in force now.
    at_shards smallint[] := array_fill(NULL::smallint, ARRAY[cardinality(requests)]);
    ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(requests)]);
    starts bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(requests)]);
    of_origins text[] := array_fill(NULL::text, ARRAY[cardinality(requests)]);
    answers bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(requests)]);
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_all_1(pairs);
    LOOP
        WITH locked AS MATERIALIZED (
            SELECT t.key FROM hub.topic t WHERE t.key = ANY (keys) ORDER BY t.id FOR NO KEY UPDATE
        )
        SELECT coalesce(array_agg(l.key), '{}') INTO there FROM locked l;
        missing := ARRAY(
            SELECT min(e.n)::integer
            FROM unnest(keys, requests, pairs) WITH ORDINALITY AS e(key, request, pair, n)
            WHERE e.key <> ALL (there) AND EXISTS (SELECT FROM hub.request r WHERE r.id = e.request AND r.pair = e.pair)
            GROUP BY e.key
        );
        EXIT WHEN cardinality(missing) = 0;
        made := made || hub.make_topics_1(
            ARRAY(SELECT keys[m.n] FROM unnest(missing) AS m(n)), ARRAY(SELECT sorts[m.n] FROM unnest(missing) AS m(n)),
            ARRAY(SELECT topics_written[m.n] FROM unnest(missing) AS m(n)), ARRAY(SELECT new_topics[m.n] FROM unnest(missing) AS m(n))
        );
    END LOOP;
    WITH taken AS (
        DELETE FROM hub.request r USING unnest(requests, pairs) WITH ORDINALITY AS e(request, pair, n)
        WHERE r.id = e.request AND r.pair = e.pair
        RETURNING e.n
    )
    SELECT coalesce(array_agg(t.n::integer ORDER BY t.n), '{}') INTO begun FROM taken t;
    FOR entry IN
        SELECT b.n, p.shard, p.topic, p.id FROM unnest(begun) AS b(n) JOIN hub.pair p ON p.pair = pairs[b.n] ORDER BY b.n
    LOOP
        UPDATE hub.subscription s SET
            callback = callbacks_written[entry.n], topic_url = topics_written[entry.n], secret = secrets[entry.n],
            lease_us = leases_us[entry.n], lease_end = lease_ends[entry.n], address = addresses[entry.n],
            verified_at = asked_at[entry.n]
        WHERE s.shard = entry.shard AND s.topic = entry.topic AND s.id = entry.id
        RETURNING s.start, s.origin INTO known;
        IF FOUND THEN
            begun := array_remove(begun, entry.n);
            at_shards[entry.n] := entry.shard;
            ids[entry.n] := entry.id;
            starts[entry.n] := known.start;
            of_origins[entry.n] := known.origin;
            answers[entry.n] := entry.topic;
        ELSE
            -- It leads nowhere, and to the one that begins from now on.
            DELETE FROM hub.pair p WHERE p.pair = pairs[entry.n];
        END IF;
    END LOOP;
    IF cardinality(begun) > 0 THEN
        first_of_topics := ARRAY(
            SELECT min(b.n) FROM unnest(begun) AS b(n) JOIN hub.topic t ON t.key = keys[b.n] WHERE t.subscriptions = 0 GROUP BY t.id
        );
        UPDATE hub.topic t
        SET subscriptions = t.subscriptions + c.added, told = pg_current_xact_id(),
            founder = CASE WHEN t.subscriptions = 0 THEN clients[c.first] ELSE t.founder END
        FROM (SELECT keys[b.n] AS key, count(*) AS added, min(b.n) AS first FROM unnest(begun) AS b(n) GROUP BY 1) c
        WHERE t.key = c.key;
        FOR entry IN
            WITH new AS (
                INSERT INTO hub.subscription AS s (
                    shard, topic, id, pair, origin, callback, topic_url, secret, start, lease_us, lease_end, address, client, created_at,
                    verified_at
                )
                SELECT of_shards[b.n], t.id, nextval('hub.subscription_id'), pairs[b.n], origins[b.n], callbacks_written[b.n],
                    topics_written[b.n], secrets[b.n], t.head, leases_us[b.n], lease_ends[b.n], addresses[b.n], clients[b.n], asked_at[b.n],
                    asked_at[b.n]
                FROM unnest(begun) AS b(n) JOIN hub.topic t ON t.key = keys[b.n] ORDER BY b.n
                RETURNING s.shard, s.topic, s.id, s.start, s.pair
            ), led AS (
                INSERT INTO hub.pair (pair, shard, topic, id) SELECT n.pair, n.shard, n.topic, n.id FROM new n
            )
            SELECT b.n, s.shard, s.topic, s.id, s.start FROM unnest(begun) AS b(n) JOIN new s ON s.pair = pairs[b.n]
        LOOP
            at_shards[entry.n] := entry.shard;
            ids[entry.n] := entry.id;
            starts[entry.n] := entry.start;
            of_origins[entry.n] := origins[entry.n];
            answers[entry.n] := entry.topic;
        END LOOP;
    END IF;
    INSERT INTO hub.feed (kind, node, shard, topic, bounds, subject, url, origin, start, lease_end, address)
    SELECT 2, activate_2.node, e.shard, t.id, ARRAY[t.first, t.head, t.latest, t.posted], e.id, t.url, e.origin, e.start, lease_ends[e.n],
        addresses[e.n]
    FROM unnest(at_shards, answers, ids, of_origins, starts) WITH ORDINALITY AS e(shard, topic, id, origin, start, n)
    JOIN hub.topic t ON t.id = e.topic
    ORDER BY e.n;
    UPDATE hub.topic t SET told = pg_current_xact_id() WHERE t.id = ANY (answers) AND t.told IS DISTINCT FROM pg_current_xact_id();
    IF cardinality(begun) + cardinality(made) > 0 THEN
        WITH counted AS (
            INSERT INTO hub.host AS h (origin, subscriptions, founder)
            SELECT origins[b.n], count(*), (array_agg(clients[b.n] ORDER BY b.n))[1] FROM unnest(begun) AS b(n) GROUP BY 1 ORDER BY 1
            ON CONFLICT (origin) DO UPDATE SET subscriptions = h.subscriptions + excluded.subscriptions
            RETURNING h.origin, h.subscriptions
        )
        SELECT array_agg(f.n) INTO first_of_hosts
        FROM (SELECT origins[b.n] AS origin, count(*) AS added, min(b.n) AS n FROM unnest(begun) AS b(n) GROUP BY 1) f
        JOIN counted c ON c.origin = f.origin AND c.subscriptions = f.added;
        PERFORM hub.tally_1(array_agg(c.shard), array_agg(c.subscriptions), array_agg(c.topics), array_agg(c.hosts))
        FROM (
            SELECT of_shards[b.n] AS shard, 1::bigint AS subscriptions, 0::bigint AS topics, 0::bigint AS hosts FROM unnest(begun) AS b(n)
            UNION ALL SELECT of_shards[b.n], 0, 0, 1 FROM unnest(first_of_hosts) AS b(n)
            UNION ALL SELECT (m.id % s.shards)::smallint, 0, 1, 0 FROM unnest(made) AS m(id), hub.store s
        ) c;
        PERFORM hub.count_1(array_agg(c.client), array_agg(c.subscriptions), array_agg(c.topics), array_agg(c.hosts))
        FROM (
            SELECT clients[b.n] AS client, 1::bigint AS subscriptions, 0::bigint AS topics, 0::bigint AS hosts FROM unnest(begun) AS b(n)
            UNION ALL SELECT clients[b.n], 0, 1, 0 FROM unnest(first_of_topics) AS b(n)
            UNION ALL SELECT clients[b.n], 0, 0, 1 FROM unnest(first_of_hosts) AS b(n)
        ) c;
    END IF;
    RETURN answers;
END
$$;

-- Ends the subscription of a pair, if the request still waits; no row where it does not, and one without a place where there is none (D-07).
CREATE OR REPLACE FUNCTION hub.deactivate_1(
    line bigint, generation bigint, node bigint, of_request bigint, of_pair bytea, of_shard smallint
) RETURNS TABLE (shard smallint, topic bigint, id bigint)
LANGUAGE plpgsql AS $$
DECLARE
    known hub.subscription;
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM FROM hub.shard s WHERE s.shard = of_shard FOR NO KEY UPDATE;
    PERFORM hub.lock_1(of_pair);
    DELETE FROM hub.request r WHERE r.id = of_request AND r.pair = of_pair;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    known := hub.of_pair_1(of_pair);
    IF known.id IS NOT NULL THEN
        PERFORM hub.remove_subscription_1(known);
        PERFORM hub.tell_1(node, 3::smallint, known.shard, known.topic, NULL, known.id);
    END IF;
    RETURN QUERY SELECT known.shard, known.topic, known.id;
END
$$;

-- Ends a subscription as the owner of its shard has found, unless it was renewed since: one whose lease is over by this clock, or one that still
-- has the lease under which it was asked last (`of_lease_end`).
CREATE OR REPLACE FUNCTION hub.end_1(
    line bigint, generation bigint, node bigint, of_shard smallint, epoch bigint, of_topic bigint, of_id bigint, of_lease_end timestamptz
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    known hub.subscription;
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.own_1(of_shard, epoch, true);
    PERFORM hub.lock_1(s.pair) FROM hub.subscription s WHERE s.shard = of_shard AND s.topic = of_topic AND s.id = of_id;
    SELECT s.* INTO known FROM hub.subscription s
    WHERE s.shard = of_shard AND s.topic = of_topic AND s.id = of_id
        AND CASE WHEN of_lease_end IS NULL THEN s.lease_end <= clock_timestamp() ELSE s.lease_end = of_lease_end END;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM hub.remove_subscription_1(known);
    PERFORM hub.tell_1(node, 3::smallint, of_shard, of_topic, NULL, of_id);
    RETURN true;
END
$$;

-- Ends a subscription that the hub cannot read, with the requests that wait for its pair.
CREATE OR REPLACE FUNCTION hub.end_unreadable_1(
    line bigint, generation bigint, node bigint, of_shard smallint, of_topic bigint, of_id bigint
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    known hub.subscription;
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM FROM hub.shard s WHERE s.shard = of_shard FOR NO KEY UPDATE;
    PERFORM hub.lock_1(s.pair) FROM hub.subscription s WHERE s.shard = of_shard AND s.topic = of_topic AND s.id = of_id;
    SELECT s.* INTO known FROM hub.subscription s WHERE s.shard = of_shard AND s.topic = of_topic AND s.id = of_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM hub.request r WHERE r.pair = known.pair;
    PERFORM hub.remove_subscription_1(known);
    PERFORM hub.tell_1(node, 3::smallint, of_shard, of_topic, NULL, of_id);
    RETURN true;
END
$$;
