-- The tables of a store, made once. Everything is in the schema `hub` and named with it, so that nothing depends on a search path.
--
-- Moments are those of the database's clock. Durations are whole microseconds (`…_us`). The place of a notification in its log is `place`;
-- `key` and `pair` are SHA-256. There are no foreign keys: `resync-hub fsck` checks by query what they would hold.
--
-- Who locks several rows locks in this order: shards, topics by id, all the rest. Only who forgets topics locks `store` before them, and
-- skips a topic that is locked. Who makes a topic locks `store` (FOR SHARE) before it reads `floor`.

CREATE SCHEMA hub;

-- What was decided when the store was made, and what concerns all of it.
CREATE TABLE hub.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- What it is called, wherever it is.
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    format smallint NOT NULL,
    shards smallint NOT NULL CHECK (shards > 0),
    -- The last place of all topics that were forgotten: logs of new topics begin behind it.
    floor bigint NOT NULL DEFAULT 0,
    -- Logs go on, and epochs too, behind this times 2^32: what was given out before may have been lost.
    era bigint NOT NULL DEFAULT 0,
    -- The timeline of the server on which a hub last wrote whose durability is only declared, and whether one has written on it.
    timeline bigint NOT NULL,
    is_declared boolean NOT NULL DEFAULT false,
    -- The keys that are needed to read every secret, and whether some may be stored as they are.
    secret_keys bytea[] NOT NULL,
    plain_secrets boolean NOT NULL,
    -- SHA-256 of the functions that a hub has made last.
    functions bytea,
    -- Whether a restore was begun and not finished.
    unfinished boolean NOT NULL DEFAULT false
);

-- When a hub was up.
CREATE TABLE hub.uptime (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    seen timestamptz NOT NULL,
    jump_us bigint[] NOT NULL,
    jump_up_us bigint[] NOT NULL
);

CREATE SEQUENCE hub.subscription_id;
-- Requests and denials are counted together.
CREATE SEQUENCE hub.request_id;
CREATE SEQUENCE hub.ping_id;

-- Hubs, and until when each may start requests.
CREATE TABLE hub.node (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    alive_until timestamptz NOT NULL,
    -- Whether it leaves its shards to others.
    drained boolean NOT NULL DEFAULT false,
    -- Whether it has said that it stops. No heartbeat takes that back.
    stopping boolean NOT NULL DEFAULT false,
    -- The keys with which it can read secrets, and the one with which it writes them; NULL: as they are.
    reads bytea[] NOT NULL DEFAULT '{}',
    writes bytea
);

-- How often a hub with this data folder has said that it is up: the hub remembers it too, and so knows a database that was restored to an earlier
-- point. Nobody else counts there.
CREATE TABLE hub.witness (
    folder bigint PRIMARY KEY,
    beats bigint NOT NULL,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Connections that write. Each has a new generation whenever it is made anew, and what was sent under an older one is refused, however late
-- it is carried out: so what became of a statement is certain once its connection was made anew.
CREATE TABLE hub.line (
    id bigint PRIMARY KEY,
    node bigint NOT NULL,
    generation bigint NOT NULL,
    opened_at timestamptz NOT NULL,
    -- Whether it may write only where commits wait for a standby.
    proven boolean NOT NULL
);

-- Owners of shards.
CREATE TABLE hub.shard (
    shard smallint PRIMARY KEY,
    owner bigint,
    epoch bigint NOT NULL DEFAULT 0
);

-- What there is, by shards so that not everybody waits for one row: a topic counts in the shard of its id, a callback origin in its own.
CREATE TABLE hub.tally (
    shard smallint PRIMARY KEY,
    subscriptions bigint NOT NULL DEFAULT 0,
    topics bigint NOT NULL DEFAULT 0,
    hosts bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE hub.topic (
    id bigint PRIMARY KEY,
    -- Of the URL as it is compared.
    key bytea NOT NULL UNIQUE,
    -- As it is compared.
    sort text COLLATE "C" NOT NULL,
    -- As first seen.
    url text NOT NULL,
    first bigint NOT NULL,
    head bigint NOT NULL,
    latest bigint NOT NULL DEFAULT 0,
    posted bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    -- When the oldest notification came in.
    oldest timestamptz,
    -- Whose share its log takes: the publishers', or that of strangers, fetched from this network.
    for_publishers boolean NOT NULL DEFAULT false,
    network inet,
    subscriptions bigint NOT NULL DEFAULT 0,
    -- For which client it counts: that of its first subscription.
    founder inet,
    -- The newest Change Notification, where its interval ended, and how many times the chain was broken.
    chain_place bigint,
    chain_until bytea,
    chain_broken bigint NOT NULL DEFAULT 0,
    -- The last transaction that told of something of this topic in the feed.
    told xid8
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- URLs may be longer than an index takes.
CREATE INDEX topic_sort ON hub.topic (left(sort, 256) COLLATE "C");
CREATE INDEX topic_oldest ON hub.topic (oldest);

CREATE TABLE hub.paused (
    topic bigint PRIMARY KEY
);

CREATE TABLE hub.validators (
    topic bigint PRIMARY KEY,
    version bigint NOT NULL,
    url text NOT NULL,
    etag bytea,
    last_modified bytea,
    digest bytea NOT NULL
);

-- A Change Notification that does not start where the one before it ended. Moments as documents write them: to the nanosecond.
CREATE TABLE hub.chain_break (
    topic bigint NOT NULL,
    place bigint NOT NULL,
    ended bytea NOT NULL,
    started bytea NOT NULL,
    PRIMARY KEY (topic, place)
);

-- The log. `day` is that on which a notification was written down, so that a whole day can be dropped; place and topic are unique without it.
-- What stays for longer is moved to the first day of all, so that there are no more days than retention keeps.
CREATE TABLE hub.notification (
    topic bigint NOT NULL,
    place bigint NOT NULL,
    day date NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date,
    received_at timestamptz NOT NULL,
    weight bigint NOT NULL,
    -- Content type, links, kind, moment and trace, framed by a version and a checksum.
    head bytea NOT NULL,
    -- NULL where a repair of the store that this one was restored from found it damaged.
    body bytea,
    PRIMARY KEY (topic, place, day)
) PARTITION BY RANGE (day);

-- Bodies are what publishers have compressed, or what costs more time than room.
ALTER TABLE hub.notification ALTER body SET STORAGE EXTERNAL;

CREATE TABLE hub.idempotency (
    topic bigint NOT NULL,
    -- SHA-256 of what the publisher calls the notification.
    name bytea NOT NULL,
    place bigint NOT NULL,
    -- SHA-256 of its body.
    digest bytea NOT NULL,
    seen_at timestamptz NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (topic, name)
);

CREATE INDEX idempotency_expires ON hub.idempotency (expires);

-- Subscriptions in force. One table for each shard, so that a shard is read in one go.
CREATE TABLE hub.subscription (
    shard smallint NOT NULL,
    topic bigint NOT NULL,
    id bigint NOT NULL,
    pair bytea NOT NULL,
    origin text NOT NULL,
    callback text NOT NULL,
    topic_url text NOT NULL,
    -- Sealed by the hub and bound to the pair.
    secret bytea,
    start bigint NOT NULL,
    lease_us bigint NOT NULL,
    lease_end timestamptz NOT NULL,
    address inet,
    client inet,
    created_at timestamptz NOT NULL,
    verified_at timestamptz NOT NULL,
    PRIMARY KEY (shard, topic, id)
) PARTITION BY LIST (shard);

-- The subscription of each topic and callback.
CREATE TABLE hub.pair (
    pair bytea PRIMARY KEY,
    shard smallint NOT NULL,
    topic bigint NOT NULL,
    id bigint NOT NULL
);

-- Callback origins with subscriptions, and for which client each counts.
CREATE TABLE hub.host (
    origin text PRIMARY KEY,
    subscriptions bigint NOT NULL,
    founder inet
);

-- What each client has the hub keep.
CREATE TABLE hub.client (
    client inet PRIMARY KEY,
    subscriptions bigint NOT NULL DEFAULT 0,
    topics bigint NOT NULL DEFAULT 0,
    hosts bigint NOT NULL DEFAULT 0
);

CREATE TABLE hub.watermark (
    shard smallint NOT NULL,
    topic bigint NOT NULL,
    done bigint NOT NULL,
    -- The sweep that was under way.
    target bigint,
    through bigint,
    PRIMARY KEY (shard, topic)
) WITH (fillfactor = 70);

CREATE TABLE hub.laggard (
    shard smallint NOT NULL,
    topic bigint NOT NULL,
    subscription bigint NOT NULL,
    cursor bigint NOT NULL,
    streak_failures integer NOT NULL,
    next_attempt timestamptz NOT NULL,
    pause_us bigint NOT NULL,
    failing_since timestamptz,
    failing_us bigint,
    class smallint NOT NULL,
    PRIMARY KEY (shard, topic, subscription)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Notifications that were given up for one subscription.
CREATE TABLE hub.skip (
    shard smallint NOT NULL,
    topic bigint NOT NULL,
    place bigint NOT NULL,
    subscription bigint NOT NULL,
    at timestamptz NOT NULL,
    class smallint NOT NULL,
    status integer,
    PRIMARY KEY (shard, topic, place, subscription)
);

-- Notifications that a subscription has lost.
CREATE TABLE hub.gap (
    at timestamptz NOT NULL,
    topic bigint NOT NULL,
    subscription bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (at, topic, subscription, first)
);

-- Requests that wait for verification of intent; of each client at most one for a pair.
CREATE TABLE hub.request (
    id bigint PRIMARY KEY,
    shard smallint NOT NULL,
    pair bytea NOT NULL,
    client inet,
    is_trusted boolean NOT NULL,
    -- Of the callback.
    host text NOT NULL,
    topic text NOT NULL,
    callback text NOT NULL,
    subscribes boolean NOT NULL,
    lease bigint,
    secret bytea,
    -- What a stranger wrote: a text here may not hold the character 0.
    verify_token bytea,
    received_at timestamptz NOT NULL
);

CREATE INDEX request_pair ON hub.request (pair);
CREATE INDEX request_shard ON hub.request (shard, id);
CREATE INDEX request_client ON hub.request (client);
CREATE INDEX request_host ON hub.request (host);

-- Denials of which callbacks have to be informed.
CREATE TABLE hub.denial (
    pair bytea PRIMARY KEY,
    shard smallint NOT NULL,
    id bigint NOT NULL,
    topic text NOT NULL,
    callback text NOT NULL,
    reason text NOT NULL,
    -- The subscription that has ended by it.
    ended_shard smallint,
    ended_topic bigint,
    ended_id bigint
);

CREATE INDEX denial_shard ON hub.denial (shard, id);

-- Topics that wait to be fetched.
CREATE TABLE hub.ping (
    -- Of the topic.
    key bytea PRIMARY KEY,
    shard smallint NOT NULL,
    id bigint NOT NULL,
    topic text NOT NULL,
    trace bytea,
    -- Whose it is, and whether that is a trusted client.
    client inet,
    is_trusted boolean NOT NULL DEFAULT false
);

CREATE INDEX ping_shard ON hub.ping (shard, id);

-- Orders to the owners of shards. They need not outlive the hub that gave them.
CREATE SEQUENCE hub.act_id;

CREATE TABLE hub.act (
    id bigint PRIMARY KEY,
    -- Until when it may be taken.
    until timestamptz NOT NULL,
    -- 1 halt, 2 retry, 3 skip, 4 replay.
    kind smallint NOT NULL,
    topic bigint,
    subscription bigint,
    -- The first of a replay.
    place bigint,
    -- What an operator wrote: a text here may not hold the character 0.
    host bytea
);

-- Each of the shards that an order is for: by which call its owner has taken it, if it has, and how many subscriptions it was about there.
CREATE TABLE hub.act_shard (
    act bigint NOT NULL,
    shard smallint NOT NULL,
    taken_by bigint,
    subscriptions bigint,
    PRIMARY KEY (act, shard)
);

CREATE INDEX act_taken ON hub.act_shard (shard, taken_by);

-- Small documents that all hubs share.
CREATE TABLE hub.document (
    -- 1 the publishers' tokens, 2 when these were used last, 3 the key of status URLs, 4 replaced addresses of pages, 5 sessions of
    -- the admin pages that were ended.
    kind smallint PRIMARY KEY,
    version bigint NOT NULL,
    -- By which change: a number that nobody else has.
    mark bigint NOT NULL,
    -- NULL: it was never written. What is secret is sealed by the hub.
    content bytea,
    -- Who is about to change it, and until when nobody else is.
    changing bigint,
    changing_until timestamptz
);

-- What operators did, line by line.
CREATE TABLE hub.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    line bytea NOT NULL
);

-- Where something stands among all that is told: of one topic in the order of commits, since it is taken under the lock of the topic.
CREATE SEQUENCE hub.feed_ordinal;

-- What happened. Hubs read what a snapshot of theirs had not seen. An hour at a time is dropped.
CREATE TABLE hub.feed (
    hour timestamptz NOT NULL DEFAULT date_trunc('hour', clock_timestamp(), 'UTC'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    ordinal bigint NOT NULL DEFAULT nextval('hub.feed_ordinal'),
    -- 1 appended, 2 subscribed, 3 unsubscribed, 4 paused, 5 resumed, 6 asked, 7 denied, 8 pinged, 9 ordered, 10 answered, 11 a document changed,
    -- 12 a shard was released, or a hub stops.
    kind smallint NOT NULL,
    -- By whom.
    node bigint NOT NULL,
    -- Of an append: which, and of which of its posts these are the notifications, from place `first` on.
    batch bigint,
    posts integer[],
    weights bigint[],
    -- NULL: all of them were posted.
    fetched boolean[],
    shard smallint,
    topic bigint,
    first bigint,
    -- Of a subscription that began or was renewed: `first`, `head`, `latest` and `posted` of its topic at this moment. Further below, the URL of
    -- that, and what the subscription is from this moment on.
    bounds bigint[],
    -- For whose owners an order is.
    shards smallint[],
    -- The subscription, the request, the denial, the ping, the order or the document.
    subject bigint,
    url text,
    origin text,
    start bigint,
    lease_end timestamptz,
    address inet,
    PRIMARY KEY (xid, ordinal, hour)
) PARTITION BY RANGE (hour);
