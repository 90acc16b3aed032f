-- What an operator does to the store.

-- Delivers nothing of this topic until it is resumed. Returns whether there is one.
CREATE OR REPLACE FUNCTION hub.pause_1(line bigint, generation bigint, node bigint, of_topic bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    -- Nobody forgets it meanwhile.
    PERFORM FROM hub.topic t WHERE t.id = of_topic FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO hub.paused (topic) VALUES (of_topic) ON CONFLICT (topic) DO NOTHING;
    PERFORM hub.tell_1(node, 4::smallint, NULL, of_topic, NULL, NULL);
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION hub.resume_1(line bigint, generation bigint, node bigint, of_topic bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM FROM hub.topic t WHERE t.id = of_topic FOR NO KEY UPDATE;
    DELETE FROM hub.paused p WHERE p.topic = of_topic;
    PERFORM hub.tell_1(node, 5::smallint, NULL, of_topic, NULL, NULL);
END
$$;

-- Notes under which keys secrets are stored, if that is what it was when somebody looked, and no other hub that is up lacks a new one; returns
-- whether it did. What other hubs that are up write with stays noted.
CREATE OR REPLACE FUNCTION hub.note_secret_keys_2(
    line bigint, generation bigint, node bigint, keys_before bytea[], plain_before boolean, keys_now bytea[], plain_now boolean
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    written bytea[];
    is_plain boolean;
BEGIN
    PERFORM hub.fence_1(line, generation);
    SELECT coalesce(array_agg(n.writes) FILTER (WHERE n.writes IS NOT NULL), '{}'), coalesce(bool_or(n.writes IS NULL), false)
    INTO written, is_plain
    FROM hub.node n WHERE n.id <> node AND hub.is_up_1(n.alive_until);
    -- In their order, by which they are compared.
    UPDATE hub.store s SET secret_keys = ARRAY(SELECT DISTINCT k.key FROM unnest(keys_now || written) AS k(key) ORDER BY k.key),
        plain_secrets = plain_now OR is_plain
    WHERE s.secret_keys = keys_before AND s.plain_secrets = plain_before
        -- A hub that has come up since somebody looked.
        AND NOT EXISTS (
            SELECT FROM hub.node n, unnest(keys_now) AS k(key)
            WHERE n.id <> node AND hub.is_up_1(n.alive_until) AND k.key <> ALL (keys_before) AND k.key <> ALL (n.reads)
        );
    RETURN FOUND;
END
$$;

-- Rewrites secrets of subscriptions that are still what they were; returns how many.
CREATE OR REPLACE FUNCTION hub.reseal_subscriptions_1(
    line bigint, generation bigint, shards smallint[], topics bigint[], ids bigint[], before bytea[], now bytea[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    rewritten bigint;
BEGIN
    PERFORM hub.fence_1(line, generation);
    -- Before the rows, as always where there are several.
    PERFORM hub.lock_all_1(ARRAY(
        SELECT s.pair FROM unnest(shards, topics, ids) AS n (shard, topic, id)
        JOIN hub.subscription s ON s.shard = n.shard AND s.topic = n.topic AND s.id = n.id
    ));
    WITH changed AS (
        UPDATE hub.subscription s SET secret = n.now
        FROM unnest(shards, topics, ids, before, reseal_subscriptions_1.now) AS n (shard, topic, id, before, now)
        WHERE s.shard = n.shard AND s.topic = n.topic AND s.id = n.id AND s.secret = n.before
        RETURNING 1
    )
    SELECT count(*) INTO rewritten FROM changed;
    RETURN rewritten;
END
$$;

-- The same of requests that wait.
CREATE OR REPLACE FUNCTION hub.reseal_requests_1(line bigint, generation bigint, ids bigint[], before bytea[], now bytea[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    rewritten bigint;
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_all_1(ARRAY(SELECT r.pair FROM hub.request r WHERE r.id = ANY (ids)));
    WITH changed AS (
        UPDATE hub.request r SET secret = n.now
        FROM unnest(ids, before, reseal_requests_1.now) AS n (id, before, now)
        WHERE r.id = n.id AND r.secret = n.before
        RETURNING 1
    )
    SELECT count(*) INTO rewritten FROM changed;
    RETURN rewritten;
END
$$;

-- What there is of each topic, callback origin and client, counted from the subscriptions: for a store that was just restored. What counts for
-- whom is by the first subscription that there is.
CREATE OR REPLACE FUNCTION hub.recount_1() RETURNS void
LANGUAGE sql AS $$
    UPDATE hub.topic t SET subscriptions = n.count, founder = n.founder
    FROM (
        SELECT s.topic, count(*) AS count, (array_agg(s.client ORDER BY s.id))[1] AS founder FROM hub.subscription s GROUP BY s.topic
    ) n
    WHERE t.id = n.topic;
    DELETE FROM hub.host;
    INSERT INTO hub.host (origin, subscriptions, founder)
    SELECT s.origin, count(*), (array_agg(s.client ORDER BY s.id))[1] FROM hub.subscription s GROUP BY s.origin;
    DELETE FROM hub.client;
    INSERT INTO hub.client (client, subscriptions, topics, hosts)
    SELECT n.client, sum(n.subscriptions), sum(n.topics), sum(n.hosts)
    FROM (
        SELECT s.client, 1 AS subscriptions, 0 AS topics, 0 AS hosts FROM hub.subscription s
        UNION ALL SELECT t.founder, 0, 1, 0 FROM hub.topic t WHERE t.subscriptions > 0
        UNION ALL SELECT h.founder, 0, 0, 1 FROM hub.host h
    ) n
    WHERE n.client IS NOT NULL
    GROUP BY n.client;
    UPDATE hub.tally y SET subscriptions = coalesce(n.subscriptions, 0), topics = coalesce(n.topics, 0), hosts = coalesce(n.hosts, 0)
    FROM hub.tally a
    LEFT JOIN (
        SELECT u.shard, sum(u.subscriptions) AS subscriptions, sum(u.topics) AS topics, sum(u.hosts) AS hosts
        FROM (
            SELECT s.shard, count(*) AS subscriptions, 0 AS topics, count(DISTINCT s.origin) AS hosts FROM hub.subscription s GROUP BY s.shard
            UNION ALL SELECT t.id % o.shards, 0, count(*), 0 FROM hub.topic t, hub.store o GROUP BY 1
        ) u
        GROUP BY u.shard
    ) n ON n.shard = a.shard
    WHERE y.shard = a.shard;
$$;
