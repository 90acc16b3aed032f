-- Appending to the logs of topics.

-- Appends a batch of posts: as a whole, or nothing of it.
--
-- `of` says for each post which of the topics it is of, from 1, and `rank` which of that topic's posts in the batch it is, from 1. What few
-- posts have is listed for those that have it, by their numbers: idempotency keys (`named`; no two of a batch are the same), intervals
-- (`dated`), and what the topic said when it was fetched (`validated`).
--
-- Answers for each topic its id, and for each post its place and what became of it: 0 new, 1 repeated, 2 its key stands for another body.
-- For each topic also the transaction that told something of it before, if any (`told`); by how much the logs weigh more, the publishers' and
-- the strangers'; and how many topics were made.
--
-- Its statements are not planned anew for each call: that would take as long as to carry them out.
CREATE OR REPLACE FUNCTION hub.append_1(
    line bigint, generation bigint, node bigint, batch bigint,
    keys bytea[], sorts text[], urls text[], candidates bigint[],
    of integer[], rank integer[], received timestamptz[], weights bigint[], fetched boolean[],
    publishers boolean[], networks inet[], heads bytea[], bodies bytea[],
    named integer[], names bytea[], digests bytea[], remember_us bigint[],
    dated integer[], froms bytea[], untils bytea[],
    validated integer[], validator_urls text[], etags bytea[], last_modified bytea[], contents bytea[],
    OUT xid bigint, OUT topics bigint[], OUT told bigint[], OUT places bigint[], OUT outcomes smallint[],
    OUT publishers_grew bigint, OUT strangers_grew bigint, OUT made integer
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    -- Every log goes on behind this place.
    leaped bigint;
    ids bigint[];
    ends bigint[];
    weighed bigint[];
    spoken_for boolean[];
    ranked integer[] := rank;
    new_topics bigint[] := '{}';
    seen_posts integer[];
    seen_places bigint[];
    seen_same boolean[];
BEGIN
    PERFORM hub.fence_1(line, generation);
    SELECT s.era << 32 INTO leaped FROM hub.store s;
    -- Topics are locked in the order of their ids, and stay so until this is committed: places are dense in the order of commits.
    LOOP
        WITH locked AS MATERIALIZED (
            SELECT t.id, t.key, t.head, t.bytes, t.for_publishers, t.told
            FROM hub.topic t WHERE t.key = ANY (keys) ORDER BY t.id FOR NO KEY UPDATE
        )
        SELECT array_agg(l.id ORDER BY k.n), array_agg(greatest(l.head, leaped) ORDER BY k.n), array_agg(l.bytes ORDER BY k.n),
            array_agg(l.for_publishers ORDER BY k.n), array_agg(l.told::text::bigint ORDER BY k.n)
        INTO ids, ends, weighed, spoken_for, told
        FROM unnest(keys) WITH ORDINALITY AS k(key, n) LEFT JOIN locked l ON l.key = k.key;
        EXIT WHEN array_position(ids, NULL) IS NULL;
        new_topics := new_topics || hub.make_topics_1(
            (SELECT array_agg(keys[n] ORDER BY n) FROM generate_subscripts(ids, 1) n WHERE ids[n] IS NULL),
            (SELECT array_agg(sorts[n] ORDER BY n) FROM generate_subscripts(ids, 1) n WHERE ids[n] IS NULL),
            (SELECT array_agg(urls[n] ORDER BY n) FROM generate_subscripts(ids, 1) n WHERE ids[n] IS NULL),
            (SELECT array_agg(candidates[n] ORDER BY n) FROM generate_subscripts(ids, 1) n WHERE ids[n] IS NULL)
        );
    END LOOP;
    -- From here on every statement sees all that was committed under these locks.
    IF cardinality(named) > 0 THEN
        SELECT array_agg(n.post ORDER BY n.post), array_agg(i.place ORDER BY n.post),
            array_agg(i.digest = n.digest ORDER BY n.post)
        INTO seen_posts, seen_places, seen_same
        FROM unnest(named, names, digests, remember_us) AS n(post, name, digest, remember_us)
        JOIN hub.idempotency i ON i.topic = ids[of[n.post]] AND i.name = n.name
        WHERE i.seen_at + n.remember_us * interval '1 microsecond' > received[n.post];
        IF seen_posts IS NOT NULL THEN
            SELECT array_agg(CASE WHEN NOT r.is_seen THEN r.rank END ORDER BY r.post) INTO ranked
            FROM (
                SELECT p.post, s.post IS NOT NULL AS is_seen,
                    (row_number() OVER (PARTITION BY p.of, s.post IS NULL ORDER BY p.post))::integer AS rank
                FROM unnest(of) WITH ORDINALITY AS p(of, post) LEFT JOIN unnest(seen_posts) AS s(post) ON s.post = p.post
            ) r;
        END IF;
    END IF;
    INSERT INTO hub.notification (topic, place, day, received_at, weight, head, body)
    SELECT ids[p.of], ends[p.of] + p.rank, today, p.received, p.weight, p.head, p.body
    FROM unnest(of, ranked, received, weights, heads, bodies) AS p(of, rank, received, weight, head, body)
    WHERE p.rank IS NOT NULL;
    WITH new AS (
        SELECT p.of, max(p.rank) AS count, max(p.rank) FILTER (WHERE p.fetched) AS latest,
            max(p.rank) FILTER (WHERE NOT p.fetched) AS posted, sum(p.weight) AS weight,
            (array_agg(p.received ORDER BY p.rank))[1] AS oldest,
            bool_or(p.publishers OR NOT p.fetched) AS publishers,
            (array_agg(p.network ORDER BY p.rank DESC))[1] AS network
        FROM unnest(of, ranked, received, weights, fetched, publishers, networks)
            AS p(of, rank, received, weight, fetched, publishers, network)
        WHERE p.rank IS NOT NULL
        GROUP BY p.of
    ), changed AS (
        UPDATE hub.topic t SET
            -- A log of which nothing is left begins with this.
            first = CASE WHEN t.first > t.head THEN ends[new.of] + 1 ELSE t.first END,
            head = ends[new.of] + new.count,
            latest = coalesce(ends[new.of] + new.latest, t.latest),
            posted = coalesce(ends[new.of] + new.posted, t.posted),
            bytes = t.bytes + new.weight,
            oldest = coalesce(t.oldest, new.oldest),
            -- A log that is the publishers' stays so: a stranger's ping must not move it.
            for_publishers = t.for_publishers OR new.publishers,
            network = CASE WHEN NOT (t.for_publishers OR new.publishers) THEN new.network END,
            told = pg_current_xact_id()
        FROM new WHERE t.id = ids[new.of]
        RETURNING new.of, t.bytes, t.for_publishers
    )
    SELECT
        coalesce(sum(CASE WHEN c.for_publishers THEN c.bytes ELSE 0 END
            - CASE WHEN spoken_for[c.of] THEN weighed[c.of] ELSE 0 END), 0),
        coalesce(sum(CASE WHEN c.for_publishers THEN 0 ELSE c.bytes END
            - CASE WHEN spoken_for[c.of] THEN 0 ELSE weighed[c.of] END), 0)
    INTO publishers_grew, strangers_grew
    FROM changed c;
    IF cardinality(named) > 0 THEN
        INSERT INTO hub.idempotency AS i (topic, name, place, digest, seen_at, expires)
        SELECT ids[of[n.post]], n.name, ends[of[n.post]] + ranked[n.post], n.digest, received[n.post],
            least(received[n.post] + n.remember_us * interval '1 microsecond', '9999-12-30 22:00:00+00')
        FROM unnest(named, names, digests, remember_us) AS n(post, name, digest, remember_us)
        WHERE ranked[n.post] IS NOT NULL
        ON CONFLICT (topic, name) DO UPDATE SET
            place = excluded.place, digest = excluded.digest, seen_at = excluded.seen_at, expires = excluded.expires;
    END IF;
    IF cardinality(dated) > 0 THEN
        PERFORM hub.link_chains_1(ids, of, ends, ranked, dated, froms, untils);
    END IF;
    IF cardinality(validated) > 0 THEN
        INSERT INTO hub.validators (topic, version, url, etag, last_modified, digest)
        SELECT DISTINCT ON (topic) ids[of[v.post]] AS topic, ends[of[v.post]] + ranked[v.post] AS version, v.url, v.etag,
            v.last_modified, v.content
        FROM unnest(validated, validator_urls, etags, last_modified, contents)
            AS v(post, url, etag, last_modified, content)
        WHERE ranked[v.post] IS NOT NULL
        ORDER BY topic, version DESC
        ON CONFLICT (topic) DO UPDATE SET version = excluded.version, url = excluded.url, etag = excluded.etag,
            last_modified = excluded.last_modified, digest = excluded.digest;
    END IF;
    INSERT INTO hub.feed (kind, node, batch, topic, first, posts, weights, fetched)
    SELECT 1, node, batch, ids[p.of], ends[p.of] + 1, array_agg(p.post ORDER BY p.rank),
        array_agg(p.weight ORDER BY p.rank), CASE WHEN bool_or(p.fetched) THEN array_agg(p.fetched ORDER BY p.rank) END
    FROM unnest(of, ranked, weights, fetched) WITH ORDINALITY AS p(of, rank, weight, fetched, post)
    WHERE p.rank IS NOT NULL
    GROUP BY p.of;
    made := cardinality(new_topics);
    IF made > 0 THEN
        PERFORM hub.tally_topics_1(new_topics, 1);
    END IF;
    xid := pg_current_xact_id()::text::bigint;
    topics := ids;
    SELECT array_agg(coalesce(ends[p.of] + p.rank, seen_places[array_position(seen_posts, p.post)]) ORDER BY p.post),
        array_agg((CASE
            WHEN p.rank IS NOT NULL THEN 0
            WHEN seen_same[array_position(seen_posts, p.post)] THEN 1
            ELSE 2
        END)::smallint ORDER BY p.post)
    INTO places, outcomes
    FROM (SELECT u.of, u.rank, u.post::integer AS post FROM unnest(of, ranked) WITH ORDINALITY AS u(of, rank, post)) p;
END
$$;

-- Notes how the Change Notifications of a batch follow those before them, each by its topic's chain (CN-008).
CREATE OR REPLACE FUNCTION hub.link_chains_1(
    ids bigint[], of integer[], ends bigint[], ranked integer[], dated integer[], froms bytea[], untils bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    broken bigint[];
BEGIN
    WITH linked AS (
        SELECT d.of, ids[d.of] AS topic, ends[d.of] + d.rank AS place, d.started, d.ended,
            coalesce(lag(d.ended) OVER (PARTITION BY d.of ORDER BY d.rank), t.chain_until) AS before,
            row_number() OVER (PARTITION BY d.of ORDER BY d.rank DESC) = 1 AS is_last
        FROM (
            SELECT of[u.post] AS of, ranked[u.post] AS rank, u.started, u.ended
            FROM unnest(dated, froms, untils) AS u(post, started, ended)
            WHERE ranked[u.post] IS NOT NULL
        ) d JOIN hub.topic t ON t.id = ids[d.of]
    ), breaks AS (
        INSERT INTO hub.chain_break (topic, place, ended, started)
        SELECT l.topic, l.place, l.before, l.started FROM linked l WHERE l.before <> l.started
        RETURNING topic
    ), counted AS (
        SELECT b.topic, count(*) AS breaks FROM breaks b GROUP BY b.topic
    ), newest AS (
        UPDATE hub.topic t SET chain_place = l.place, chain_until = l.ended,
            chain_broken = t.chain_broken + coalesce(c.breaks, 0)
        FROM linked l LEFT JOIN counted c ON c.topic = l.topic
        WHERE l.is_last AND t.id = l.topic
    )
    SELECT array_agg(c.topic) INTO broken FROM counted c;
    -- So many are kept; older ones are only counted.
    DELETE FROM hub.chain_break b USING (
        SELECT n.topic, n.place, row_number() OVER (PARTITION BY n.topic ORDER BY n.place DESC) AS nth
        FROM hub.chain_break n WHERE n.topic = ANY (broken)
    ) o WHERE o.nth > 100 AND b.topic = o.topic AND b.place = o.place;
END
$$;

-- Writes down when a hub was up.
CREATE OR REPLACE FUNCTION hub.put_uptime_1(
    line bigint, generation bigint, seen timestamptz, jump_us bigint[], jump_up_us bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    PERFORM hub.fence_1(line, generation);
    INSERT INTO hub.uptime VALUES (true, seen, jump_us, jump_up_us)
    ON CONFLICT (one) DO UPDATE SET seen = excluded.seen, jump_us = excluded.jump_us, jump_up_us = excluded.jump_up_us;
END
$$;
