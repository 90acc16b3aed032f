-- Retention. Each statement removes a bounded slice, so that publishers wait for milliseconds at most.

-- Lets logs begin at later places: each of these topics at this one (`upto`), unless it has a subscription and its newest notification,
-- which stays then, is before that (`last_too`: that one goes all the same). Removes at most `slice` notifications that weigh `most`
-- together, or one, and answers how many, what they weighed, by how much the logs weigh less, and whether it came to the end of the list.
CREATE OR REPLACE FUNCTION hub.cut_1(
    line bigint, generation bigint, topics bigint[], uptos bigint[], last_too boolean, slice bigint, most bigint,
    OUT notifications bigint, OUT bytes bigint, OUT publishers_shrank bigint, OUT strangers_shrank bigint, OUT is_done boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    cut record;
    removed record;
    upto bigint;
    begins record;
    weighs bigint;
BEGIN
    PERFORM hub.fence_1(line, generation);
    notifications := 0;
    bytes := 0;
    publishers_shrank := 0;
    strangers_shrank := 0;
    is_done := true;
    FOR cut IN
        SELECT t.*, n.upto FROM unnest(topics, uptos) AS n(topic, upto) JOIN hub.topic t ON t.id = n.topic
        ORDER BY t.id FOR NO KEY UPDATE OF t
    LOOP
        upto := CASE
            WHEN cut.subscriptions > 0 AND NOT last_too THEN least(cut.upto, greatest(cut.latest, cut.posted))
            ELSE least(cut.upto, cut.head + 1)
        END;
        CONTINUE WHEN upto <= cut.first;
        IF notifications >= slice OR (bytes >= most AND notifications > 0) THEN
            is_done := false;
            EXIT;
        END IF;
        WITH gone AS (
            DELETE FROM hub.notification d
            WHERE d.topic = cut.id AND d.place >= cut.first AND d.place <= (
                SELECT max(v.place) FROM (
                    SELECT o.place, sum(o.weight) OVER (ORDER BY o.place) - o.weight AS before
                    FROM (
                        SELECT n.place, n.weight FROM hub.notification n
                        WHERE n.topic = cut.id AND n.place >= cut.first AND n.place < upto
                        ORDER BY n.place LIMIT slice - notifications
                    ) o
                ) v WHERE v.before <= most - bytes
            )
            RETURNING d.place, d.weight
        )
        SELECT count(*) AS count, coalesce(sum(g.weight), 0) AS weight, max(g.place) AS last INTO removed FROM gone g;
        notifications := notifications + removed.count;
        bytes := bytes + removed.weight;
        SELECT n.place, n.received_at, n.weight INTO begins FROM hub.notification n
        WHERE n.topic = cut.id AND n.place > coalesce(removed.last, cut.first - 1) ORDER BY n.place LIMIT 1;
        weighs := CASE
            WHEN begins.place IS NULL THEN 0
            WHEN begins.place = greatest(cut.latest, cut.posted) THEN begins.weight
            ELSE cut.bytes - removed.weight
        END;
        is_done := is_done AND (begins.place IS NULL OR begins.place >= upto);
        UPDATE hub.topic t SET first = coalesce(begins.place, cut.head + 1), oldest = begins.received_at, bytes = weighs
        WHERE t.id = cut.id;
        IF begins.place IS NULL THEN
            -- With them the next fetch would find that nothing has changed, and the log would not get again what it no longer holds.
            DELETE FROM hub.validators v WHERE v.topic = cut.id;
        END IF;
        IF cut.for_publishers THEN
            publishers_shrank := publishers_shrank + cut.bytes - weighs;
        ELSE
            strangers_shrank := strangers_shrank + cut.bytes - weighs;
        END IF;
    END LOOP;
END
$$;

-- Sets aside at most `slice` notifications that weigh `most` together, or one, of days on which nothing is left of what is younger than this: the
-- newest of topics with subscriptions, each of which may stay for years. Then the tables of these days can be dropped. They are the first behind
-- this one: else each command would look at all that were moved before. Answers which was the last; NULL where there was none.
CREATE OR REPLACE FUNCTION hub.set_aside_1(
    line bigint, generation bigint, older_than timestamptz, after_topic bigint, after_place bigint, slice integer, most bigint,
    OUT last_topic bigint, OUT last_place bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    aside date := date '0001-01-01';
    -- Yesterday's is left alone, as where days are dropped.
    bound date := least(older_than AT TIME ZONE 'UTC', (clock_timestamp() AT TIME ZONE 'UTC') - interval '1 day')::date;
    topics bigint[];
    places bigint[];
BEGIN
    PERFORM hub.fence_1(line, generation);
    SELECT array_agg(c.topic ORDER BY c.topic, c.place), array_agg(c.place ORDER BY c.topic, c.place) INTO topics, places FROM (
        SELECT o.topic, o.place, sum(o.weight) OVER (ORDER BY o.topic, o.place) - o.weight AS ahead FROM (
            SELECT n.topic, n.place, n.weight FROM hub.notification n
            WHERE (n.topic, n.place) > (after_topic, after_place) AND n.day > aside AND n.day < bound
            ORDER BY n.topic, n.place LIMIT slice
        ) o
    ) c WHERE c.ahead < most;
    -- Whoever cuts a log off has it locked, and would fail at a row that moves meanwhile.
    PERFORM FROM hub.topic t WHERE t.id = ANY (topics) ORDER BY t.id FOR NO KEY UPDATE;
    UPDATE hub.notification n SET day = aside FROM unnest(topics, places) AS c(topic, place)
    WHERE n.topic = c.topic AND n.place = c.place AND n.day > aside AND n.day < bound;
    last_topic := topics[cardinality(topics)];
    last_place := places[cardinality(places)];
END
$$;

-- Forgets at most `slice` skips of notifications that these logs no longer hold. Answers how many.
CREATE OR REPLACE FUNCTION hub.forget_skips_1(line bigint, generation bigint, topics bigint[], slice integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    forgotten integer;
BEGIN
    PERFORM hub.fence_1(line, generation);
    DELETE FROM hub.skip k USING (
        SELECT s.shard, s.topic, s.place, s.subscription
        FROM hub.topic t CROSS JOIN hub.shard h JOIN hub.skip s ON s.shard = h.shard AND s.topic = t.id AND s.place < t.first
        WHERE t.id = ANY (topics) LIMIT slice
    ) o
    WHERE k.shard = o.shard AND k.topic = o.topic AND k.place = o.place AND k.subscription = o.subscription;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- Forgets at most `slice` gaps that were found before then. Answers how many.
CREATE OR REPLACE FUNCTION hub.forget_gaps_1(line bigint, generation bigint, older_than timestamptz, slice integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    forgotten integer;
BEGIN
    PERFORM hub.fence_1(line, generation);
    DELETE FROM hub.gap g USING (
        SELECT o.at, o.topic, o.subscription, o.first FROM hub.gap o WHERE o.at < older_than ORDER BY o.at LIMIT slice
    ) o
    WHERE g.at = o.at AND g.topic = o.topic AND g.subscription = o.subscription AND g.first = o.first;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- Forgets at most `slice` idempotency keys that have expired. Answers how many.
CREATE OR REPLACE FUNCTION hub.forget_names_1(line bigint, generation bigint, slice integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    forgotten integer;
BEGIN
    PERFORM hub.fence_1(line, generation);
    DELETE FROM hub.idempotency i USING (
        SELECT o.topic, o.name FROM hub.idempotency o WHERE o.expires < clock_timestamp() ORDER BY o.expires LIMIT slice
    ) o
    -- The same name may have been used anew since then.
    WHERE i.topic = o.topic AND i.name = o.name AND i.expires < clock_timestamp();
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- Forgets those of these topics that nobody subscribes to, of whose log nothing is left, whose publishers may use every idempotency key
-- anew, and that are not paused. The next topic with such a URL is another one, and its log begins behind theirs. Answers how many.
CREATE OR REPLACE FUNCTION hub.forget_topics_1(line bigint, generation bigint, topics bigint[], OUT forgotten integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    idle bigint[];
    last bigint;
BEGIN
    PERFORM hub.fence_1(line, generation);
    -- Checkpoints wait meanwhile: of a topic that is forgotten they save nothing.
    PERFORM FROM hub.shard s ORDER BY s.shard FOR NO KEY UPDATE;
    PERFORM FROM hub.store s FOR UPDATE;
    WITH locked AS MATERIALIZED (
        SELECT t.id, t.head FROM hub.topic t
        WHERE t.id = ANY (topics) AND t.subscriptions = 0 AND t.first > t.head
        ORDER BY t.id FOR UPDATE SKIP LOCKED
    )
    SELECT array_agg(l.id), max(l.head) INTO idle, last FROM locked l
    WHERE NOT EXISTS (SELECT FROM hub.paused p WHERE p.topic = l.id)
        AND NOT EXISTS (SELECT FROM hub.idempotency i WHERE i.topic = l.id);
    forgotten := coalesce(cardinality(idle), 0);
    IF forgotten = 0 THEN
        RETURN;
    END IF;
    UPDATE hub.store s SET floor = greatest(s.floor, last);
    DELETE FROM hub.chain_break b WHERE b.topic = ANY (idle);
    DELETE FROM hub.validators v WHERE v.topic = ANY (idle);
    DELETE FROM hub.watermark w USING hub.shard h, unnest(idle) AS n(topic) WHERE w.shard = h.shard AND w.topic = n.topic;
    DELETE FROM hub.skip k USING hub.shard h, unnest(idle) AS n(topic) WHERE k.shard = h.shard AND k.topic = n.topic;
    DELETE FROM hub.topic t WHERE t.id = ANY (idle);
    PERFORM hub.tally_topics_1(idle, -1);
END
$$;
