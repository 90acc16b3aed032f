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
    INSERT INTO hub.feed (hour, kind, node, shard, topic, bounds, subject)
    VALUES (date_trunc('hour', clock_timestamp(), 'UTC'), $2, $1, $3, $4, $5, $6);
    UPDATE hub.topic t SET told = pg_current_xact_id() WHERE t.id = $4;
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

-- Puts verified subscriptions in force, one after the other, each if its request still waits: new, or in the place of the one of the same pair,
-- which keeps its identity, its beginning, and for whom it counts (W-061). Answers the topic of each, or NULL.
--
-- All pairs are locked before any topic, then hosts, tallies and clients, each kind in one order, so that hubs seldom wait for each other. (Where
-- another hub makes one of its topics at the same moment, topics are locked out of order.) A new one begins under the lock of its
-- topic: so identities grow in the order of commits within a topic, and the start is the head of the log as it is then.
CREATE OR REPLACE FUNCTION hub.activate_2(
    line bigint, generation bigint, node bigint, requests bigint[], pairs bytea[], of_shards smallint[], keys bytea[], sorts text[],
    new_topics bigint[], topics_written text[], callbacks_written text[], origins text[], secrets bytea[], leases_us bigint[],
    lease_ends timestamptz[], addresses inet[], clients inet[], asked_at timestamptz[]
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    there bytea[];
    -- Numbers of entries: with the first of each topic that is to be made.
    missing integer[];
    made bigint[] := '{}';
    leads_to hub.pair;
    known hub.subscription;
    is_first_of_topic boolean;
    -- Numbers of entries: those that began, and of these the first of each topic and host that had none.
    begun integer[] := '{}';
    first_of_topics integer[] := '{}';
    first_of_hosts integer[];
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
    FOR n IN 1..cardinality(requests) LOOP
        DELETE FROM hub.request r WHERE r.id = requests[n] AND r.pair = pairs[n];
        CONTINUE WHEN NOT FOUND;
        SELECT p.* INTO leads_to FROM hub.pair p WHERE p.pair = pairs[n];
        -- Where there is none the tables of all shards need not be looked at.
        IF FOUND THEN
            UPDATE hub.subscription s SET
                callback = callbacks_written[n], topic_url = topics_written[n], secret = secrets[n], lease_us = leases_us[n],
                lease_end = lease_ends[n], address = addresses[n], verified_at = asked_at[n]
            WHERE s.shard = leads_to.shard AND s.topic = leads_to.topic AND s.id = leads_to.id
            RETURNING s.* INTO known;
        END IF;
        IF NOT FOUND THEN
            -- Should it lead nowhere, it leads to this one from now on.
            DELETE FROM hub.pair p WHERE p.pair = pairs[n];
            UPDATE hub.topic t
            SET subscriptions = t.subscriptions + 1, founder = CASE WHEN t.subscriptions = 0 THEN clients[n] ELSE t.founder END
            WHERE t.key = keys[n]
            RETURNING t.id, t.head, t.subscriptions = 1 INTO known.topic, known.start, is_first_of_topic;
            known := ROW (
                of_shards[n], known.topic, nextval('hub.subscription_id'), pairs[n], origins[n], callbacks_written[n], topics_written[n],
                secrets[n], known.start, leases_us[n], lease_ends[n], addresses[n], clients[n], asked_at[n], asked_at[n]
            );
            INSERT INTO hub.subscription SELECT known.*;
            INSERT INTO hub.pair (pair, shard, topic, id) VALUES (known.pair, known.shard, known.topic, known.id);
            begun := begun || n;
            IF is_first_of_topic THEN
                first_of_topics := first_of_topics || n;
            END IF;
        END IF;
        PERFORM hub.tell_1(
            node, 2::smallint, known.shard, known.topic, ARRAY[t.first, t.head, t.latest, t.posted], known.id
        ) FROM hub.topic t WHERE t.id = known.topic;
        answers[n] := known.topic;
    END LOOP;
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
    SELECT s.* INTO known
    FROM hub.pair p JOIN hub.subscription s ON s.shard = p.shard AND s.topic = p.topic AND s.id = p.id
    WHERE p.pair = of_pair;
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
