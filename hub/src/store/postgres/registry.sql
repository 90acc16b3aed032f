-- Small documents that all hubs share, and the log of what operators did.

-- Begins to change a document: for so long nobody else does. Answers what it is now; no row while somebody else is changing it.
CREATE OR REPLACE FUNCTION hub.begin_change_1(
    line bigint, generation bigint, of_kind smallint, by bigint, lasts_us bigint, OUT version bigint, OUT content bytea
) RETURNS SETOF record
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM hub.fence_1(line, generation);
    INSERT INTO hub.document (kind, version, mark) VALUES (of_kind, 0, 0) ON CONFLICT (kind) DO NOTHING;
    RETURN QUERY
    UPDATE hub.document d
    SET changing = by, changing_until = clock_timestamp() + lasts_us * interval '1 microsecond'
    WHERE d.kind = of_kind AND (d.changing IS NULL OR d.changing = by OR d.changing_until < clock_timestamp())
    RETURNING d.version, d.content;
END
$$;

-- Writes a document in place of this version, or leaves it as it is where there is none; either way others may change it now. Answers which
-- version it is from now on; NULL where somebody else has changed it meanwhile. Sent twice it does nothing more.
CREATE OR REPLACE FUNCTION hub.end_change_1(
    line bigint, generation bigint, node bigint, of_kind smallint, by bigint, before bigint, written bytea
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    known hub.document;
BEGIN
    PERFORM hub.fence_1(line, generation);
    SELECT d.* INTO known FROM hub.document d WHERE d.kind = of_kind FOR UPDATE;
    IF known.changing = by THEN
        UPDATE hub.document d SET changing = NULL, changing_until = NULL WHERE d.kind = of_kind;
    END IF;
    IF written IS NULL OR known.mark = by THEN
        RETURN known.version;
    END IF;
    IF known.version IS DISTINCT FROM before THEN
        RETURN NULL;
    END IF;
    UPDATE hub.document d SET version = before + 1, mark = by, content = written WHERE d.kind = of_kind;
    PERFORM hub.tell_1(node, 11::smallint, NULL, NULL, NULL, of_kind::bigint);
    RETURN before + 1;
END
$$;

-- Seals a document anew, if it is still what somebody has read; its version stays, since nothing else of it changes.
CREATE OR REPLACE FUNCTION hub.reseal_document_1(line bigint, generation bigint, of_kind smallint, before bytea, now bytea)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    UPDATE hub.document d SET content = reseal_document_1.now WHERE d.kind = of_kind AND d.content = before;
    RETURN FOUND;
END
$$;

-- Drops the older half of the log, where it has more bytes than these; the newest line stays.
CREATE OR REPLACE FUNCTION hub.drop_half_of_audit_1(longest bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM hub.audit a USING (
        SELECT l.id, sum(octet_length(l.line)) OVER (ORDER BY l.id DESC) AS newer, sum(octet_length(l.line)) OVER () AS whole,
            max(l.id) OVER () AS newest
        FROM hub.audit l
    ) o
    WHERE o.whole > longest AND o.newer > o.whole / 2 AND o.id < o.newest AND a.id = o.id;
END
$$;

CREATE OR REPLACE FUNCTION hub.shorten_audit_1(line bigint, generation bigint, longest bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hub.fence_1(line, generation);
    PERFORM hub.drop_half_of_audit_1(longest);
END
$$;

-- Appends a line. Now and then it is looked whether the log has grown too long: hubs may run for years.
CREATE OR REPLACE FUNCTION hub.append_audit_1(line bigint, generation bigint, written bytea, longest bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    given bigint;
BEGIN
    PERFORM hub.fence_1(line, generation);
    INSERT INTO hub.audit (line) VALUES (written) RETURNING id INTO given;
    IF given % 1000 = 0 THEN
        PERFORM hub.drop_half_of_audit_1(longest);
    END IF;
END
$$;
