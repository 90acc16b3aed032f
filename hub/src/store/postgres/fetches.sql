-- Topics that wait to be fetched, and what fetches need to ask only for what is new.

-- Remembers a ping in place of an older one of the same topic, whose trace it takes if it has none, and whose client if that alone is trusted.
CREATE OR REPLACE FUNCTION hub.put_ping_2(
    line bigint, generation bigint, node bigint, of_key bytea, of_shard smallint, topic_url text, of_trace bytea,
    of_client inet, by_trusted boolean
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    given bigint;
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_1(of_key);
    INSERT INTO hub.ping AS p (key, shard, id, topic, trace, client, is_trusted)
    VALUES (of_key, of_shard, nextval('hub.ping_id'), topic_url, of_trace, of_client, by_trusted)
    ON CONFLICT (key) DO UPDATE SET id = excluded.id, topic = excluded.topic, trace = coalesce(excluded.trace, p.trace),
        client = CASE WHEN p.is_trusted AND NOT excluded.is_trusted THEN p.client ELSE excluded.client END,
        is_trusted = p.is_trusted OR excluded.is_trusted
    RETURNING p.id INTO given;
    PERFORM hub.tell_1(node, 8::smallint, of_shard, NULL, NULL, given);
    RETURN given;
END
$$;

CREATE OR REPLACE FUNCTION hub.remove_ping_1(line bigint, generation bigint, of_key bytea, of_ping bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_1(of_key);
    DELETE FROM hub.ping p WHERE p.key = of_key AND p.id = of_ping;
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
