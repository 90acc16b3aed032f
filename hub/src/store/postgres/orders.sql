-- Orders to the owners of shards, and their answers.

-- Gives an order to the owners of these shards, to be taken within this time from now on. Forgets those whose time has been over for a minute,
-- and takes none while there are as many as may be (`most`).
CREATE OR REPLACE FUNCTION hub.order_2(
    line bigint, generation bigint, node bigint, given_to smallint[], lasts_us bigint, kind smallint, topic bigint, subscription bigint,
    place bigint, host bytea, most bigint
) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    given bigint := nextval('hub.act_id');
BEGIN
    PERFORM hub.fence_1(line, generation);
    -- Whoever else forgets the same ones, or withdraws one of them, is not waited for.
    WITH over AS (
        DELETE FROM hub.act a WHERE a.id IN (
            SELECT o.id FROM hub.act o WHERE o.until < clock_timestamp() - interval '1 minute' FOR UPDATE SKIP LOCKED
        )
        RETURNING a.id
    )
    DELETE FROM hub.act_shard s USING over o WHERE s.act = o.id;
    IF (SELECT count(*) FROM hub.act) >= most THEN
        RAISE EXCEPTION 'too many orders wait' USING ERRCODE = 'HB003';
    END IF;
    INSERT INTO hub.act
    VALUES (given, clock_timestamp() + lasts_us * interval '1 microsecond', kind, topic, subscription, place, host);
    INSERT INTO hub.act_shard (act, shard) SELECT DISTINCT given, n.shard FROM unnest(given_to) AS n(shard);
    INSERT INTO hub.feed (kind, node, shards, subject) VALUES (9, node, given_to, given);
    RETURN given;
END
$$;

-- Takes what waits for the owner of a shard, each order once, the oldest first. Where the answer was lost, the same `taker` gets once more what it
-- has taken. Those whose time is over are left out. Where none waits, it is not asked whose the shard is.
CREATE OR REPLACE FUNCTION hub.take_orders_2(line bigint, generation bigint, of_shard smallint, epoch bigint, taker bigint)
RETURNS SETOF hub.act
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    IF NOT EXISTS (SELECT FROM hub.act_shard s WHERE s.shard = of_shard AND (s.taken_by IS NULL OR s.taken_by = taker)) THEN
        RETURN;
    END IF;
    PERFORM hub.own_1(of_shard, epoch);
    UPDATE hub.act_shard s SET taken_by = taker WHERE s.shard = of_shard AND s.taken_by IS NULL;
    RETURN QUERY
    SELECT a.* FROM hub.act_shard s JOIN hub.act a ON a.id = s.act
    WHERE s.shard = of_shard AND s.taken_by = taker AND a.until >= clock_timestamp() ORDER BY a.id;
END
$$;

-- An order was carried out in a shard. Nobody may wait for that any more.
CREATE OR REPLACE FUNCTION hub.answer_order_1(
    line bigint, generation bigint, node bigint, of_act bigint, of_shard smallint, concerned bigint
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    UPDATE hub.act_shard s SET subscriptions = concerned WHERE s.act = of_act AND s.shard = of_shard;
    IF FOUND THEN
        PERFORM hub.tell_1(node, 10::smallint, of_shard, NULL, NULL, of_act);
    END IF;
END
$$;

-- Nobody waits for answers any more.
CREATE OR REPLACE FUNCTION hub.withdraw_order_1(line bigint, generation bigint, of_act bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    DELETE FROM hub.act a WHERE a.id = of_act;
    DELETE FROM hub.act_shard s WHERE s.act = of_act;
END
$$;
