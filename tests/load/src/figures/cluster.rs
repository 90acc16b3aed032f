//! What is measured of several hubs over one PostgreSQL, and what is promised: each against its bound in the same run.

use super::figure::Figure;
use super::measurement::{Measurement, Program};

pub(super) const POSTS: Measurement = Measurement {
    name: "cluster-posts",
    program: Program::Load(&["cluster", "posts"]),
    seconds: 80,
    figures: &[
        Figure::new("over PostgreSQL: posts of 1 publisher", "/posts/publishers/0/posts/per_second", "/s"),
        Figure::new("over PostgreSQL: posts of 16 publishers", "/posts/publishers/1/posts/per_second", "/s"),
        Figure::new("over PostgreSQL: posts of 256 publishers", "/posts/publishers/2/posts/per_second", "/s"),
        Figure::new(
            "over PostgreSQL: posts of 1 publisher, of bare INSERTs over 1 connection",
            "/posts/publishers/0/ratio",
            "",
        )
        .at_least(0.45),
        Figure::new(
            "over PostgreSQL: posts of 16 publishers, of bare INSERTs over 16 connections",
            "/posts/publishers/1/ratio",
            "",
        )
        .at_least(0.6),
        Figure::new(
            "over PostgreSQL: posts of 256 publishers, of bare INSERTs over 48 connections",
            "/posts/publishers/2/ratio",
            "",
        )
        .at_least(1.3),
    ],
};

pub(super) const FANOUT: Measurement = Measurement {
    name: "cluster-fanout",
    program: Program::Load(&["cluster", "fanout"]),
    seconds: 80,
    figures: &[
        Figure::new("over PostgreSQL: fan-out to 1,000 hosts", "/fanout/postgres", "/s"),
        Figure::new(
            "over PostgreSQL: fan-out to 1,000 hosts, of that with the embedded store",
            "/fanout/ratio",
            "",
        )
        .at_least(0.6),
        Figure::new("over PostgreSQL: fan-out: copies that are wrong", "/fanout/copies/wrong", "")
            .at_most(0.0),
    ],
};

pub(super) const HOP: Measurement = Measurement {
    name: "cluster-hop",
    program: Program::Load(&["cluster", "hop"]),
    seconds: 80,
    figures: &[
        Figure::new("posted at the hub that delivers: delivered after, p50", "/hop/same/p50", "ms"),
        Figure::new("posted at another hub: delivered later by, p50", "/hop/p50", "ms").at_most(2.0),
        Figure::new("posted at another hub: delivered later by, p99", "/hop/p99", "ms").at_most(15.0),
        Figure::new("posted at another hub: copies that are wrong", "/hop/copies/wrong", "").at_most(0.0),
    ],
};

pub(super) const SCALE: Measurement = Measurement {
    name: "cluster-scale",
    program: Program::Load(&["cluster", "scale"]),
    seconds: 120,
    figures: &[
        Figure::new("1 hub with a fifth of a core: deliveries", "/scale/per_second/0", "/s"),
        Figure::new("2 hubs with a fifth of a core each: deliveries, of those of 1", "/scale/of_two", "")
            .at_least(1.8),
        Figure::new("4 hubs with a fifth of a core each: deliveries, of those of 1", "/scale/of_four", "")
            .at_least(3.2),
        Figure::new("hubs with a fifth of a core: copies that are wrong", "/scale/copies/wrong", "")
            .at_most(0.0),
    ],
};

pub(super) const TAKEOVER: Measurement = Measurement {
    name: "cluster-takeover",
    program: Program::Load(&["cluster", "takeover"]),
    seconds: 120,
    figures: &[
        Figure::new("1 of 3 hubs killed: its subscriptions have the next after", "/takeover/killed", "s")
            .at_most(6.5),
        Figure::new(
            "1 of 3 hubs killed: p99 of the others, by what it was",
            "/takeover/p99_ratio_of_others",
            "",
        )
        .at_most(2.0),
        Figure::new("1 of 3 hubs stopped: delivered after at most", "/takeover/stopped", "s").at_most(1.0),
        Figure::new("1 of 3 hubs killed or stopped: copies that are wrong", "/takeover/copies/wrong", "")
            .at_most(0.0),
    ],
};

pub(super) const FAILOVER: Measurement = Measurement {
    name: "cluster-failover",
    program: Program::Load(&["cluster", "failover"]),
    seconds: 120,
    figures: &[
        Figure::new("primary killed: no INSERT of a bare client for", "/failover/inserts", "s"),
        Figure::new("primary killed: no post for, beyond that", "/failover/posts_beyond", "s").at_most(1.0),
        Figure::new("primary killed: no delivery for, beyond that", "/failover/deliveries_beyond", "s")
            .at_most(1.5),
    ],
};

pub(super) const WAL: Measurement = Measurement {
    name: "cluster-wal",
    program: Program::Load(&["cluster", "wal"]),
    seconds: 180,
    figures: &[
        Figure::new("WAL for a post of 1 kB, 64 publishers", "/wal/per_post", "B").at_most(2_200.0),
        Figure::new("WAL for a delivery of a fan-out to 100,000", "/wal/per_delivery", "B").at_most(2.0),
        Figure::new("WAL for a failed attempt", "/wal/per_failed_attempt", "B").at_most(300.0),
        Figure::new("fan-out to 100,000 over PostgreSQL: copies that are wrong", "/wal/copies/wrong", "")
            .at_most(0.0),
    ],
};

pub(super) const MILLION: Measurement = Measurement {
    name: "cluster-million",
    program: Program::Load(&["cluster", "million"]),
    seconds: 600,
    figures: &[
        Figure::new("1,000,000 at 3 hubs: ready after", "/million/start", "s").at_most(4.0),
        Figure::new(
            "1,000,000 at 3 hubs: ready after, by a plain copy out of the database",
            "/million/ratio",
            "",
        ),
        Figure::new("1,000,000 at 3 hubs: memory of each", "/million/memory_per_subscription", "B")
            .at_most(128.0),
    ],
};
