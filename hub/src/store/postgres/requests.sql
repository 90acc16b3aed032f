-- Requests and denials that wait.

-- Whoever changes what there is of a pair, or of the ping of a topic, does so alone. It may have no row yet, so this is no row's lock. It is
-- taken behind a shard's and before any other; a number that orders events is taken behind it.
CREATE OR REPLACE FUNCTION hub.lock_1(digest bytea) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::bigint);
$$;

-- The locks of several, which everybody takes in one order.
CREATE OR REPLACE FUNCTION hub.lock_all_1(digests bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.lock_1(d.digest) FROM (SELECT DISTINCT n.digest FROM unnest(digests) AS n(digest) ORDER BY n.digest) d;
END
$$;

-- Remembers requests of different pairs, each in place of an older one of the same client for the same pair (D-17). Answers their numbers, and NULL
-- for each that would be one more than may wait (`most_…`, for each its own) of its client, for its host or in all: of strangers where its client is
-- one, else of everybody. Some places in all (`kept_in_all`) are kept for clients with few (`few_of_client`). One that replaces another makes it no
-- more. Those before it in the statement count, whether they are taken or not, and those that another hub is just putting do not.
CREATE OR REPLACE FUNCTION hub.put_requests_2(
    line bigint, generation bigint, node bigint, pairs bytea[], of_shards smallint[], clients inet[], hosts text[], topic_urls text[],
    callback_urls text[], are_subscribe boolean[], leases bigint[], secrets bytea[], tokens bytea[], came_in timestamptz[],
    are_trusted boolean[], most_of_client bigint[], few_of_client bigint[], most_at_host bigint[], most_in_all bigint[], kept_in_all bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    taken bigint[];
    answers bigint[];
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_all_1(pairs);
    WITH asked AS (
        SELECT e.*, EXISTS (
            SELECT FROM hub.request r WHERE r.pair = e.pair AND r.client IS NOT DISTINCT FROM e.client
        ) AS replaces
        FROM unnest(pairs, clients, hosts, are_trusted, most_of_client, few_of_client, most_at_host, most_in_all, kept_in_all)
            WITH ORDINALITY AS e(pair, client, host, is_trusted, of_client, few, at_host, in_all, kept, n)
    ), more AS (
        SELECT a.*, row_number() OVER (PARTITION BY a.client, a.is_trusted ORDER BY a.n) AS nth_of_client,
            row_number() OVER (PARTITION BY a.host, a.is_trusted ORDER BY a.n) AS nth_at_host,
            row_number() OVER (PARTITION BY a.is_trusted ORDER BY a.n) AS nth
        FROM asked a WHERE NOT a.replaces
    ), of_clients AS (
        SELECT c.client, c.is_trusted, (
            SELECT count(*) FROM (
                SELECT 1 FROM hub.request r WHERE r.client = c.client AND (c.is_trusted OR NOT r.is_trusted) LIMIT coalesce(c.most, 0)
            ) w
        ) AS waiting
        FROM (SELECT m.client, m.is_trusted, max(m.of_client) AS most FROM more m GROUP BY m.client, m.is_trusted) c
    ), at_hosts AS (
        SELECT h.host, h.is_trusted, (
            SELECT count(*) FROM (
                SELECT 1 FROM hub.request r WHERE r.host = h.host AND (h.is_trusted OR NOT r.is_trusted) LIMIT h.most
            ) w
        ) AS waiting
        FROM (SELECT m.host, m.is_trusted, max(m.at_host) AS most FROM more m GROUP BY m.host, m.is_trusted) h
    ), together AS (
        SELECT t.is_trusted, (
            SELECT count(*) FROM (SELECT 1 FROM hub.request r WHERE t.is_trusted OR NOT r.is_trusted LIMIT t.most) w
        ) AS waiting
        FROM (SELECT m.is_trusted, max(m.in_all) AS most FROM more m GROUP BY m.is_trusted) t
    ), counted AS (
        SELECT m.n, m.of_client, m.few, m.at_host, m.in_all, m.kept, coalesce(c.waiting, 0) + m.nth_of_client AS of_this,
            h.waiting + m.nth_at_host AS there, t.waiting + m.nth AS everywhere
        FROM more m LEFT JOIN of_clients c ON c.client = m.client AND c.is_trusted = m.is_trusted
            JOIN at_hosts h ON h.host = m.host AND h.is_trusted = m.is_trusted JOIN together t ON t.is_trusted = m.is_trusted
    )
    SELECT array_agg(a.n) INTO taken
    FROM asked a LEFT JOIN counted m ON m.n = a.n
    WHERE a.replaces OR (
        (m.of_client IS NULL OR m.of_this <= m.of_client) AND m.there <= m.at_host
        AND m.everywhere <= CASE WHEN m.of_client IS NULL OR m.of_this <= m.few THEN m.in_all ELSE m.in_all - m.kept END
    );
    DELETE FROM hub.request r USING unnest(pairs, clients) WITH ORDINALITY AS e(pair, client, n)
    WHERE e.n = ANY (taken) AND r.pair = e.pair AND r.client IS NOT DISTINCT FROM e.client;
    WITH new AS (
        INSERT INTO hub.request AS r (
            id, shard, pair, client, is_trusted, host, topic, callback, subscribes, lease, secret, verify_token, received_at
        )
        SELECT nextval('hub.request_id'), of_shards[e.n], e.pair, clients[e.n], are_trusted[e.n], hosts[e.n], topic_urls[e.n],
            callback_urls[e.n], are_subscribe[e.n], leases[e.n], secrets[e.n], tokens[e.n], came_in[e.n]
        FROM unnest(pairs) WITH ORDINALITY AS e(pair, n)
        WHERE e.n = ANY (taken)
        ORDER BY e.n
        RETURNING r.id, r.shard, r.pair
    ), told AS (
        INSERT INTO hub.feed (kind, node, shard, subject)
        SELECT 6, put_requests_2.node, n.shard, n.id FROM new n ORDER BY n.id
    )
    SELECT array_agg(n.id ORDER BY e.n) INTO answers
    FROM unnest(pairs) WITH ORDINALITY AS e(pair, n) LEFT JOIN new n ON n.pair = e.pair;
    RETURN answers;
END
$$;

CREATE OR REPLACE FUNCTION hub.remove_request_1(line bigint, generation bigint, of_pair bytea, of_request bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_1(of_pair);
    DELETE FROM hub.request r WHERE r.id = of_request AND r.pair = of_pair;
END
$$;

-- Denies everything that there is of a pair (scope 0), one request and only that (1; what is in force stays, W-062), or one that was confirmed
-- with the subscription (2). Returns the denial of which the callback has to be informed, if any.
CREATE OR REPLACE FUNCTION hub.deny_1(
    line bigint, generation bigint, node bigint, of_pair bytea, of_shard smallint, scope smallint, of_request bigint, topic_url text,
    callback_url text, because text
) RETURNS SETOF hub.denial
LANGUAGE plpgsql AS $$
DECLARE
    known hub.subscription;
    denied hub.denial;
    is_waiting boolean;
BEGIN
    PERFORM hub.fence_1(line, generation);
    -- No checkpoint meanwhile.
    PERFORM FROM hub.shard s WHERE s.shard = of_shard FOR NO KEY UPDATE;
    PERFORM hub.lock_1(of_pair);
    is_waiting := EXISTS (SELECT FROM hub.request r WHERE r.pair = of_pair AND (scope = 0 OR r.id = of_request));
    IF NOT is_waiting AND scope <> 0 THEN
        RETURN;
    END IF;
    known := hub.of_pair_1(of_pair);
    IF NOT is_waiting AND known.id IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM hub.request r WHERE r.pair = of_pair AND (scope = 0 OR r.id = of_request);
    -- Anybody can send a request in a subscriber's name, so a refused one must not end what that subscriber has confirmed.
    IF scope = 1 AND known.id IS NOT NULL THEN
        RETURN;
    END IF;
    IF known.id IS NOT NULL THEN
        PERFORM hub.remove_subscription_1(known);
        PERFORM hub.tell_1(node, 3::smallint, known.shard, known.topic, NULL, known.id);
    END IF;
    INSERT INTO hub.denial AS d (pair, shard, id, topic, callback, reason, ended_shard, ended_topic, ended_id)
    VALUES (
        of_pair, of_shard, nextval('hub.request_id'), coalesce(known.topic_url, topic_url), coalesce(known.callback, callback_url), because,
        known.shard, known.topic, known.id
    )
    ON CONFLICT (pair) DO UPDATE SET
        shard = excluded.shard, id = excluded.id, topic = excluded.topic, callback = excluded.callback, reason = excluded.reason,
        ended_shard = excluded.ended_shard, ended_topic = excluded.ended_topic, ended_id = excluded.ended_id
    RETURNING d.* INTO denied;
    PERFORM hub.tell_1(node, 7::smallint, of_shard, NULL, NULL, denied.id);
    RETURN NEXT denied;
END
$$;

CREATE OR REPLACE FUNCTION hub.remove_denial_1(line bigint, generation bigint, of_pair bytea, of_denial bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.lock_1(of_pair);
    DELETE FROM hub.denial d WHERE d.pair = of_pair AND d.id = of_denial;
END
$$;
