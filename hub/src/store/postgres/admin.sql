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
    PERFORM hub.tell_1(node, 0, 4::smallint, NULL, of_topic, NULL, NULL);
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION hub.resume_1(line bigint, generation bigint, node bigint, of_topic bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM FROM hub.topic t WHERE t.id = of_topic FOR NO KEY UPDATE;
    DELETE FROM hub.paused p WHERE p.topic = of_topic;
    PERFORM hub.tell_1(node, 0, 5::smallint, NULL, of_topic, NULL, NULL);
END
$$;

-- Notes under which keys secrets are stored, if that is what it was when somebody looked; returns whether it was.
CREATE OR REPLACE FUNCTION hub.note_secret_keys_1(
    line bigint, generation bigint, keys_before bytea[], plain_before boolean, keys_now bytea[], plain_now boolean
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    UPDATE hub.store s SET secret_keys = keys_now, plain_secrets = plain_now
    WHERE s.secret_keys = keys_before AND s.plain_secrets = plain_before;
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
