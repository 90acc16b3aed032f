-- Topics that wait to be fetched, and what fetches need to ask only for what is new.

-- Remembers pings of different topics, each in place of an older one of its topic, whose trace it takes if it has none, and whose client if that
-- alone is trusted. Answers their numbers.
CREATE OR REPLACE FUNCTION hub.put_pings_1(
    line bigint, generation bigint, node bigint, keys bytea[], of_shards smallint[], topic_urls text[], traces bytea[], clients inet[],
    are_trusted boolean[]
) RETURNS bigint[]
LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    answers bigint[];
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_all_1(keys);
    WITH put AS (
        INSERT INTO hub.ping AS p (key, shard, id, topic, trace, client, is_trusted)
        SELECT e.key, of_shards[e.n], nextval('hub.ping_id'), topic_urls[e.n], traces[e.n], clients[e.n], are_trusted[e.n]
        FROM unnest(keys) WITH ORDINALITY AS e(key, n)
        ORDER BY e.n
        ON CONFLICT (key) DO UPDATE SET id = excluded.id, topic = excluded.topic, trace = coalesce(excluded.trace, p.trace),
            client = CASE WHEN p.is_trusted AND NOT excluded.is_trusted THEN p.client ELSE excluded.client END,
            is_trusted = p.is_trusted OR excluded.is_trusted
        RETURNING p.key, p.shard, p.id
    ), told AS (
        INSERT INTO hub.feed (kind, node, shard, subject)
        SELECT 8, put_pings_1.node, p.shard, p.id FROM put p ORDER BY p.id
    )
    SELECT array_agg(p.id ORDER BY e.n) INTO answers FROM unnest(keys) WITH ORDINALITY AS e(key, n) JOIN put p ON p.key = e.key;
    RETURN answers;
END
$$;

-- Forgets pings of different topics, unless newer ones are in their place.
CREATE OR REPLACE FUNCTION hub.remove_pings_1(line bigint, generation bigint, node bigint, keys bytea[], ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_all_1(keys);
    DELETE FROM hub.ping p USING unnest(keys, ids) AS e(key, id) WHERE p.key = e.key AND p.id = e.id;
    RETURN ids;
END
$$;

-- Of a topic that is forgotten meanwhile, or of whose log nothing is left, nothing is kept.
CREATE OR REPLACE FUNCTION hub.put_validators_1(
    line bigint, generation bigint, of_topic bigint, of_version bigint, of_url text, of_etag bytea, of_last_modified bytea, of_digest bytea
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM FROM hub.topic t WHERE t.id = of_topic AND t.first <= t.head FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO hub.validators (topic, version, url, etag, last_modified, digest)
    VALUES (of_topic, of_version, of_url, of_etag, of_last_modified, of_digest)
    ON CONFLICT (topic) DO UPDATE SET
        version = excluded.version, url = excluded.url, etag = excluded.etag, last_modified = excluded.last_modified,
        digest = excluded.digest;
END
$$;
