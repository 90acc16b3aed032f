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

-- What happened; behind the lock of the topic, if it is of one.
CREATE OR REPLACE FUNCTION hub.tell_1(
    node bigint, kind smallint, shard smallint, topic bigint, bounds bigint[], subject bigint
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO hub.feed (hour, kind, node, shard, topic, bounds, subject)
    VALUES (date_trunc('hour', clock_timestamp(), 'UTC'), $2, $1, $3, $4, $5, $6);
    UPDATE hub.topic t SET told = pg_current_xact_id() WHERE t.id = $4;
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

-- Begins the subscription of a pair that has none, under the lock of its topic: so identities grow in the order of commits within a topic, and
-- the start is the head of the log as it is then.
CREATE OR REPLACE FUNCTION hub.begin_subscription_1(known hub.subscription, of_key bytea, sort text, new_topic bigint)
RETURNS hub.subscription
LANGUAGE plpgsql AS $$
DECLARE
    is_first_of_topic boolean;
    is_first_of_host boolean;
    made bigint[] := '{}';
BEGIN
    LOOP
        SELECT t.id, t.head, t.subscriptions = 0 INTO known.topic, known.start, is_first_of_topic
        FROM hub.topic t WHERE t.key = of_key FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        made := made || hub.make_topics_1(ARRAY[of_key], ARRAY[sort], ARRAY[known.topic_url], ARRAY[new_topic]);
    END LOOP;
    known.id := nextval('hub.subscription_id');
    UPDATE hub.topic t
    SET subscriptions = t.subscriptions + 1, founder = CASE WHEN is_first_of_topic THEN known.client ELSE t.founder END
    WHERE t.id = known.topic;
    INSERT INTO hub.subscription SELECT known.*;
    INSERT INTO hub.pair (pair, shard, topic, id) VALUES (known.pair, known.shard, known.topic, known.id);
    INSERT INTO hub.host AS h (origin, subscriptions, founder) VALUES (known.origin, 1, known.client)
    ON CONFLICT (origin) DO UPDATE SET subscriptions = h.subscriptions + 1
    RETURNING h.subscriptions = 1 INTO is_first_of_host;
    PERFORM hub.tally_1(
        array_agg(n.shard), array_agg(n.subscriptions), array_agg(n.topics), array_agg(n.hosts)
    ) FROM (
        SELECT known.shard, 1::bigint AS subscriptions, 0::bigint AS topics, is_first_of_host::integer::bigint AS hosts
        UNION ALL
        SELECT (m % s.shards)::smallint, 0, 1, 0 FROM unnest(made) AS m, hub.store s
    ) n;
    PERFORM hub.count_1(
        ARRAY[known.client], ARRAY[1]::bigint[], ARRAY[is_first_of_topic::integer]::bigint[], ARRAY[is_first_of_host::integer]::bigint[]
    );
    RETURN known;
END
$$;

-- Puts a verified subscription in force, if its request still waits: new, or in the place of the one of the same pair, which keeps its identity,
-- its beginning, and for whom it counts (W-061). Returns where it is, since when, and the topic as it is at this moment.
CREATE OR REPLACE FUNCTION hub.activate_1(
    line bigint, generation bigint, node bigint, of_request bigint, of_pair bytea, of_shard smallint, of_key bytea, sort text,
    new_topic bigint, topic_written text, callback_written text, of_origin text, of_secret bytea, of_lease_us bigint,
    of_lease_end timestamptz, of_address inet, of_client inet, asked_at timestamptz
) RETURNS TABLE (
    shard smallint, id bigint, start bigint, topic bigint, url text, first bigint, head bigint, latest bigint, posted bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    known hub.subscription;
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_1(of_pair);
    DELETE FROM hub.request r WHERE r.id = of_request AND r.pair = of_pair;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Before the subscription, as always.
    PERFORM FROM hub.pair p JOIN hub.topic t ON t.id = p.topic WHERE p.pair = of_pair FOR NO KEY UPDATE OF t;
    UPDATE hub.subscription s SET
        callback = callback_written, topic_url = topic_written, secret = of_secret, lease_us = of_lease_us, lease_end = of_lease_end,
        address = of_address, verified_at = asked_at
    FROM hub.pair p
    WHERE p.pair = of_pair AND s.shard = p.shard AND s.topic = p.topic AND s.id = p.id
    RETURNING s.* INTO known;
    IF known.id IS NULL THEN
        -- Should it lead nowhere, it leads to this one from now on.
        DELETE FROM hub.pair p WHERE p.pair = of_pair;
        known := ROW (
            of_shard, NULL, NULL, of_pair, of_origin, callback_written, topic_written, of_secret, NULL, of_lease_us, of_lease_end,
            of_address, of_client, asked_at, asked_at
        );
        known := hub.begin_subscription_1(known, of_key, sort, new_topic);
    END IF;
    RETURN QUERY
    SELECT known.shard, known.id, known.start, t.id, t.url, t.first, t.head, t.latest, t.posted
    FROM hub.topic t WHERE t.id = known.topic FOR NO KEY UPDATE;
    PERFORM hub.tell_1(
        node, 2::smallint, known.shard, known.topic, ARRAY[t.first, t.head, t.latest, t.posted], known.id
    ) FROM hub.topic t WHERE t.id = known.topic;
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
