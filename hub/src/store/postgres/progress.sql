-- The progress of delivery.

-- Refuses a shard's owner that has a successor. Until the caller's statement is committed nobody else claims the shard, and none of its
-- subscriptions ends: who ends one locks the shard FOR NO KEY UPDATE (`alone`).
CREATE OR REPLACE FUNCTION hub.own_1(shard smallint, epoch bigint, alone boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
BEGIN
    IF alone THEN
        SELECT s.epoch INTO newest FROM hub.shard s WHERE s.shard = own_1.shard FOR NO KEY UPDATE;
    ELSE
        SELECT s.epoch INTO newest FROM hub.shard s WHERE s.shard = own_1.shard FOR SHARE;
    END IF;
    IF newest IS DISTINCT FROM own_1.epoch THEN
        RAISE EXCEPTION 'the shard has a newer owner' USING ERRCODE = 'HB002';
    END IF;
END
$$;

-- Takes a shard over, unless another hub owns it: then the answer is NULL. One that has left without a word owns nothing any more. One whose
-- word is over is taken for dead by a hub that renews its own for some time already (`is_steady`): where the database was away, all words are
-- over, and their hubs go on as soon as they have renewed them.
CREATE OR REPLACE FUNCTION hub.claim_1(
    line bigint, generation bigint, node bigint, shard smallint, is_steady boolean, OUT epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE
    -- Where the clock was set since, this one's own word is over too, or nearly.
    is_certain boolean := is_steady AND EXISTS (
        SELECT FROM hub.node n WHERE n.id = claim_1.node AND n.alive_until > clock_timestamp() + interval '2 seconds'
    );
BEGIN
    PERFORM hub.fence_1(line, generation);
    UPDATE hub.shard s SET owner = node, epoch = s.epoch + 1
    WHERE s.shard = claim_1.shard AND (
        s.owner IS NULL OR s.owner = node OR NOT EXISTS (
            SELECT FROM hub.node n WHERE n.id = s.owner AND (hub.is_up_1(n.alive_until) OR NOT is_certain)
        )
    )
    RETURNING s.epoch INTO epoch;
END
$$;

-- Gives a shard up; all hear of that.
CREATE OR REPLACE FUNCTION hub.release_1(line bigint, generation bigint, shard smallint, epoch bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    released_by bigint;
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.own_1(shard, epoch, true);
    -- One that nobody has ever claimed has no owner.
    SELECT coalesce(s.owner, 0) INTO released_by FROM hub.shard s WHERE s.shard = release_1.shard;
    UPDATE hub.shard s SET owner = NULL, epoch = s.epoch + 1 WHERE s.shard = release_1.shard;
    PERFORM hub.tell_1(released_by, 12::smallint, shard, NULL, NULL, NULL);
END
$$;

-- A hub stops: from now on the others share its shards, as it releases them.
CREATE OR REPLACE FUNCTION hub.stopping_1(line bigint, generation bigint, node bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    UPDATE hub.node n SET stopping = true WHERE n.id = stopping_1.node;
    PERFORM hub.tell_1(node, 12::smallint, NULL, NULL, NULL, NULL);
END
$$;

-- Saves how far delivery is, but nothing of topics that are forgotten, and no laggards whose subscription has ended. Of what is owed again
-- at most `slice` skips are forgotten for each replay; answers which replays (by their numbers) have more.
CREATE OR REPLACE FUNCTION hub.checkpoint_1(
    line bigint, generation bigint, shard smallint, epoch bigint,
    marked bigint[], done bigint[], targets bigint[], throughs bigint[],
    late_topics bigint[], late bigint[], cursors bigint[], streaks integer[], next_attempts timestamptz[],
    pauses_us bigint[], failing_since timestamptz[], failing_us bigint[], classes smallint[],
    caught_up_topics bigint[], caught_up bigint[],
    skipped_topics bigint[], skipped_places bigint[], skipped bigint[], skipped_at timestamptz[],
    skip_classes smallint[], statuses integer[],
    gap_topics bigint[], gap_subscriptions bigint[], gap_firsts bigint[], gap_lasts bigint[], gaps_at timestamptz[],
    replayed_topics bigint[], replayed bigint[], replayed_from bigint[], slice integer,
    OUT unfinished integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.own_1(shard, epoch);
    unfinished := '{}';
    FOR number IN 1..cardinality(replayed_topics) LOOP
        IF hub.forget_replayed_1(
            checkpoint_1.shard, replayed_topics[number], replayed[number], replayed_from[number], '{}', '{}', '{}', slice
        ) = slice THEN
            unfinished := unfinished || number;
        END IF;
    END LOOP;
    IF cardinality(marked) > 0 THEN
        INSERT INTO hub.watermark AS w (shard, topic, done, target, through)
        SELECT checkpoint_1.shard, n.topic, n.done, n.target, n.through
        FROM unnest(marked, done, targets, throughs) AS n(topic, done, target, through)
        WHERE EXISTS (SELECT FROM hub.topic t WHERE t.id = n.topic)
        ON CONFLICT (shard, topic) DO UPDATE SET
            done = excluded.done, target = excluded.target, through = excluded.through;
    END IF;
    -- Before the laggards: should a subscription be in both, repeating a delivery is better than losing one.
    IF cardinality(caught_up) > 0 THEN
        DELETE FROM hub.laggard l USING unnest(caught_up_topics, caught_up) AS n(topic, subscription)
        WHERE l.shard = checkpoint_1.shard AND l.topic = n.topic AND l.subscription = n.subscription;
    END IF;
    IF cardinality(late) > 0 THEN
        INSERT INTO hub.laggard AS l (
            shard, topic, subscription, cursor, streak_failures, next_attempt, pause_us, failing_since, failing_us, class
        )
        SELECT checkpoint_1.shard, n.*
        FROM unnest(
            late_topics, late, cursors, streaks, next_attempts, pauses_us, failing_since, failing_us, classes
        ) AS n(topic, subscription, cursor, streak, next_attempt, pause_us, failing_since, failing_us, class)
        WHERE EXISTS (
            SELECT FROM hub.subscription s
            WHERE s.shard = checkpoint_1.shard AND s.topic = n.topic AND s.id = n.subscription
        )
        ON CONFLICT (shard, topic, subscription) DO UPDATE SET
            cursor = excluded.cursor, streak_failures = excluded.streak_failures, next_attempt = excluded.next_attempt,
            pause_us = excluded.pause_us, failing_since = excluded.failing_since, failing_us = excluded.failing_us,
            class = excluded.class;
    END IF;
    IF cardinality(skipped) > 0 THEN
        INSERT INTO hub.skip AS k (shard, topic, place, subscription, at, class, status)
        SELECT checkpoint_1.shard, n.*
        FROM unnest(skipped_topics, skipped_places, skipped, skipped_at, skip_classes, statuses)
            AS n(topic, place, subscription, at, class, status)
        WHERE EXISTS (SELECT FROM hub.topic t WHERE t.id = n.topic)
        ON CONFLICT (shard, topic, place, subscription) DO UPDATE SET
            at = excluded.at, class = excluded.class, status = excluded.status;
    END IF;
    IF cardinality(gap_topics) > 0 THEN
        INSERT INTO hub.gap AS g (at, topic, subscription, first, last)
        SELECT n.* FROM unnest(gaps_at, gap_topics, gap_subscriptions, gap_firsts, gap_lasts)
            AS n(at, topic, subscription, first, last)
        ON CONFLICT (at, topic, subscription, first) DO UPDATE SET last = excluded.last;
    END IF;
END
$$;

-- Forgets at most `slice` skips that are owed again, but those that were given up again since (`kept…`). Answers how many.
CREATE OR REPLACE FUNCTION hub.forget_replayed_1(
    shard smallint, topic bigint, subscription bigint, since bigint,
    kept_topics bigint[], kept_places bigint[], kept bigint[], slice integer
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    forgotten integer;
BEGIN
    DELETE FROM hub.skip k USING (
        SELECT s.place, s.subscription FROM hub.skip s
        WHERE s.shard = forget_replayed_1.shard AND s.topic = forget_replayed_1.topic AND s.place >= since
            AND (forget_replayed_1.subscription IS NULL OR s.subscription = forget_replayed_1.subscription)
            AND NOT EXISTS (
                SELECT FROM unnest(kept_topics, kept_places, kept) AS n(topic, place, subscription)
                WHERE n.topic = s.topic AND n.place = s.place AND n.subscription = s.subscription
            )
        ORDER BY s.place, s.subscription LIMIT slice
    ) o
    WHERE k.shard = forget_replayed_1.shard AND k.topic = forget_replayed_1.topic AND k.place = o.place
        AND k.subscription = o.subscription;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- The same in a statement of its own, for the owner of the shard.
CREATE OR REPLACE FUNCTION hub.forget_more_replayed_1(
    line bigint, generation bigint, shard smallint, epoch bigint, topic bigint, subscription bigint, since bigint,
    kept_topics bigint[], kept_places bigint[], kept bigint[], slice integer
) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.own_1(shard, epoch);
    RETURN hub.forget_replayed_1(shard, topic, subscription, since, kept_topics, kept_places, kept, slice);
END
$$;
