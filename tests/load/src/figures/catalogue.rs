//! What is measured for the table, by which command, and what is promised.

use super::cluster;
use super::figure::{At, Figure};
use super::measurement::{Measurement, Program};

const LOST: &str = "/rungs/0/judgement/lost";
const REPEATED: &str = "/rungs/0/judgement/repeated";
const FAILED: &str = "/rungs/0/published/failed";
const TAKEN_AGAIN: &str = "/rungs/0/taken_again_after";
const P50: &str = "/rungs/0/delivered/latency/p50";
const P99: &str = "/rungs/0/delivered/latency/p99";
const CPU: &str = "/rungs/0/resources/cpu_per_delivery";
const MEMORY: &str = "/rungs/0/resources/memory_most";

/// A scenario with faults: nothing may be lost by it, and posts are taken again soon.
macro_rules! fault {
    ($name:literal, $what:literal, $seconds:literal $(, $more:expr)*) => {
        Measurement {
            name: $name,
            program: Program::Scenario($name, &[]),
            seconds: $seconds,
            figures: &[
                Figure::new(concat!($what, ": lost"), LOST, "").at_most(0.0),
                Figure::new(concat!($what, ": posts taken again after"), TAKEN_AGAIN, "s").at_most(1.0),
                $($more,)*
                Figure::said(concat!($what, ": all that the scenario expects"), At::Ended, "").at_least(1.0),
            ],
        }
    };
}

/// A scenario of honest work.
macro_rules! work {
    ($name:literal, $what:literal, $seconds:literal) => {
        Measurement {
            name: $name,
            program: Program::Scenario($name, &[]),
            seconds: $seconds,
            figures: &[
                Figure::new(concat!($what, ": delivered after, p50"), P50, "ms"),
                Figure::new(concat!($what, ": delivered after, p99"), P99, "ms"),
                Figure::new(concat!($what, ": CPU for a delivery"), CPU, "µs"),
                Figure::new(concat!($what, ": lost"), LOST, "").at_most(0.0),
                Figure::said(concat!($what, ": all that the scenario expects"), At::Ended, "").at_least(1.0),
            ],
        }
    };
}

/// All of them, in the order of the table.
pub(super) const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "limit",
        program: Program::Load(&["limit"]),
        seconds: 30,
        figures: &[
            Figure::new("the bound: signed requests of a bare client loop", "/bare_client/per_second", "/s"),
            Figure::new("the bound: durable appends", "/durable_appends/per_second", "/s"),
        ],
    },
    Measurement {
        name: "fanout",
        program: Program::Load(&["fanout", "--rounds", "25"]),
        seconds: 75,
        figures: &[
            Figure::new(
                "fan-out to 1,000 hosts, of the bare client loop at its best",
                "/ratio_to_the_best",
                "",
            )
            .at_least(0.78),
            Figure::new("fan-out to 1,000 hosts", "/hub/per_second", "/s"),
            Figure::new("fan-out: CPU for a delivery", "/hub_cpu_per_delivery", "µs"),
            Figure::new("fan-out: CPU for a delivery, by that of the loop for a request", "/cpu_ratio", "")
                .at_most(1.6),
            Figure::new("fan-out: copies that are wrong", "/copies/wrong", "").at_most(0.0),
        ],
    },
    Measurement {
        name: "burst",
        program: Program::Load(&[
            "fanout",
            "--subscribers",
            "200",
            "--hosts",
            "200",
            "--notifications",
            "20",
            "--rounds",
            "15",
        ]),
        seconds: 30,
        figures: &[
            Figure::new("20 posts to 200 subscribers, of the loop at its best", "/ratio_to_the_best", "")
                .at_least(0.45),
            Figure::new("20 posts to 200 subscribers: copies that are wrong", "/copies/wrong", "")
                .at_most(0.0),
        ],
    },
    Measurement {
        name: "million",
        program: Program::Load(&["scale"]),
        seconds: 420,
        figures: &[
            Figure::new("1,000,000 on one topic: memory of each", "/memory_per_subscription", "B"),
            Figure::new("1,000,000 on one topic: ready after", "/start", "s").at_most(1.0),
            Figure::new("1,000,000 on one topic: deliveries", "/per_second", "/s"),
            Figure::new("1,000,000 on one topic: copies that are wrong", "/copies/wrong", "").at_most(0.0),
            Figure::new("1,000,000 on one topic: time of a delivery by that of 1,000", "/time_ratio", "")
                .at_most(1.3),
            Figure::new("1,000,000 on one topic: CPU of a delivery by that of 1,000", "/cpu_ratio", "")
                .at_most(1.3),
        ],
    },
    Measurement {
        name: "topics",
        program: Program::Load(&["scale", "--topics", "10000", "--subscribers", "100"]),
        seconds: 420,
        figures: &[
            Figure::new("10,000 topics of 100: time of a delivery by that of 10 topics", "/time_ratio", "")
                .at_most(1.3),
            Figure::new("10,000 topics of 100: CPU of a delivery by that of 10 topics", "/cpu_ratio", "")
                .at_most(1.3),
            Figure::new("10,000 topics of 100: copies that are wrong", "/copies/wrong", "").at_most(0.0),
        ],
    },
    Measurement {
        name: "pages",
        program: Program::Load(&["pages"]),
        seconds: 30,
        figures: &[Figure::new(
            "10,000 topics: the slowest of the operator's pages, median",
            "/slowest",
            "ms",
        )
        .at_most(50.0)],
    },
    Measurement {
        name: "ladder",
        program: Program::Scenario("ladder", &[]),
        seconds: 150,
        figures: &[
            Figure::new("1,000 subscribers: deliveries", "/rungs/0/delivered/per_second", "/s"),
            Figure::new("10,000 subscribers: deliveries", "/rungs/2/delivered/per_second", "/s"),
            Figure::new("100,000 subscribers: deliveries", "/rungs/4/delivered/per_second", "/s"),
            Figure::new(
                "100,000 subscribers: the hub's memory at most",
                "/rungs/4/resources/memory_most",
                "B",
            ),
            Figure::said("ladder: all that the scenario expects", At::Ended, "").at_least(1.0),
        ],
    },
    Measurement {
        name: "publish",
        program: Program::Load(&["publish"]),
        seconds: 100,
        figures: &[
            Figure::new("durable posts of 1 publisher", "/publishers/0/appends/per_second", "/s"),
            Figure::new("durable posts of 16 publishers", "/publishers/1/appends/per_second", "/s"),
            Figure::new("durable posts of 256 publishers", "/publishers/2/appends/per_second", "/s"),
            Figure::new("durable posts of 1 publisher, of bare appends", "/publishers/0/of_bare_appends", ""),
            Figure::new(
                "durable posts of 1 publisher, of a bare HTTP server",
                "/publishers/0/of_bare_server",
                "",
            ),
            Figure::new(
                "durable posts of 256 publishers, of a bare HTTP server",
                "/publishers/2/of_bare_server",
                "",
            )
            .at_least(0.5),
            Figure::new(
                "durable posts of 256 publishers, of bare appends",
                "/publishers/2/of_bare_appends",
                "",
            ),
            Figure::new("from a post to its first delivery, p50", "/first_delivery/p50", "ms"),
            Figure::new("from a post to its first delivery, p99", "/first_delivery/p99", "ms").at_most(3.0),
            Figure::new("from a post to its first delivery: copies that are wrong", "/copies/wrong", "")
                .at_most(0.0),
        ],
    },
    Measurement {
        name: "isolation",
        program: Program::Load(&["isolation"]),
        seconds: 300,
        figures: &[
            Figure::new(
                "1 % hang, 1 % refuse: throughput of the others, of what it was",
                "/throughput_ratio",
                "",
            )
            .at_least(0.95),
            Figure::new("1 % hang, 1 % refuse: p99 of the others, by what it was", "/p99_ratio", "")
                .at_most(1.2),
            Figure::new("1 % hang, 1 % refuse: copies that are wrong", "/copies/wrong", "").at_most(0.0),
        ],
    },
    Measurement {
        name: "recovery",
        program: Program::Load(&["recovery"]),
        seconds: 60,
        figures: &[
            Figure::new("50,000 come back: requests at once (8 allowed)", "/most_at_once", "").at_most(8.0),
            Figure::new("50,000 come back: until the last has its own", "/until_last", "s"),
            Figure::new("50,000 come back: copies that are wrong", "/copies/wrong", "").at_most(0.0),
        ],
    },
    Measurement {
        name: "attack",
        program: Program::Load(&["attack"]),
        seconds: 300,
        figures: &[
            Figure::new("all attackers at once: p99 of honest posts, by what it was", "/posts/p99_ratio", "")
                .at_most(3.0),
            Figure::new(
                "all attackers at once: p99 of honest deliveries, by what it was",
                "/deliveries/p99_ratio",
                "",
            )
            .at_most(3.0),
            // Whoever refuses them quickly has a fine p99.
            Figure::new("all attackers at once: honest posts that were not acknowledged", "/failed", "")
                .at_most(0.0),
            Figure::new("all attackers at once: honest deliveries lost", "/lost", "").at_most(0.0),
            Figure::new("all attackers at once: honest subscribers kept out", "/kept_out", "").at_most(0.0),
            Figure::new(
                "all attackers at once: honest queries of a status not answered in 2 s",
                "/unanswered",
                "",
            )
            .at_most(0.0),
            Figure::new("all attackers at once: honest notifications that left the log", "/forgotten", "")
                .at_most(0.0),
            Figure::new("all attackers at once: memory above what it was", "/memory/grown", "B")
                .at_most(268_435_456.0),
            Figure::new("all attackers at once: disk above what it was", "/disk/grown", "B"),
            Figure::said("all attackers at once: each attack took place, and each bar holds", At::Ended, "")
                .at_least(1.0),
        ],
    },
    work!("dbpedia", "DBpedia, 2/s to 1,000", 80),
    work!("fourteen", "14/s to 1,000", 80),
    work!("arxiv", "arXiv, 1,600 at once to 200", 80),
    work!("world", "the world as it is", 100),
    work!("churn", "subscribers come and go", 40),
    Measurement {
        name: "pinged",
        program: Program::Scenario("pinged", &[]),
        seconds: 40,
        figures: &[
            Figure::new("pinged, our hub: delivered after, p50", P50, "ms"),
            Figure::new("pinged, our hub: delivered after, p99", P99, "ms"),
            Figure::new("pinged, our hub: CPU for a delivery", CPU, "µs"),
            Figure::new("pinged, our hub: memory at most", MEMORY, "B"),
            Figure::new("pinged, our hub: lost", LOST, "").at_most(0.0),
        ],
    },
    Measurement {
        name: "peer",
        program: Program::Peer,
        seconds: 90,
        figures: &[
            Figure::new("pinged, Flask-WebSub: delivered after, p50", P50, "ms"),
            Figure::new("pinged, Flask-WebSub: delivered after, p99", P99, "ms"),
            Figure::new("pinged, Flask-WebSub: CPU for a delivery", CPU, "µs"),
            Figure::new("pinged, Flask-WebSub: memory at most", MEMORY, "B"),
            Figure::new("pinged, Flask-WebSub: lost", LOST, ""),
        ],
    },
    Measurement {
        name: "soak",
        program: Program::Scenario("soak", &[]),
        seconds: 1_950,
        figures: &[
            Figure::new("half an hour: deliveries", "/rungs/0/delivered/per_second", "/s"),
            Figure::new(
                "half an hour: deliveries, of what the hub can do",
                "/rungs/0/delivered/ratio_to_limit",
                "",
            )
            .at_least(0.69),
            Figure::new("half an hour: delivered after, p99", P99, "ms"),
            Figure::new(
                "half an hour: delivered after, p99 of nine of ten windows of ten seconds",
                "/rungs/0/delivered/latency_p99_of_windows",
                "ms",
            )
            .at_most(30.0),
            Figure::new("half an hour: memory grows by, an hour", "/rungs/0/slopes/memory", "B"),
            Figure::new("half an hour: p99 grows by, an hour", "/rungs/0/slopes/delivery_p99", "ms"),
            Figure::new("half an hour: the store at its end", "/rungs/0/resources/store", "B"),
            Figure::new("half an hour: the store grows by, an hour", "/rungs/0/slopes/store", "B"),
            Figure::new("half an hour: lost", LOST, "").at_most(0.0),
            Figure::said("half an hour: all that the scenario expects", At::Ended, "").at_least(1.0),
        ],
    },
    fault!(
        "crash-loop",
        "killed ten times",
        40,
        Figure::new("killed ten times: of 2,000 posts failed", FAILED, "").at_most(400.0),
        Figure::new("killed ten times: delivered once more after it", REPEATED, "")
    ),
    fault!("pause", "stopped and continued", 45),
    fault!(
        "full-disk",
        "a full disk",
        35,
        Figure::new("a full disk: of 800 posts failed", FAILED, "").at_most(300.0)
    ),
    fault!(
        "failing-writes",
        "failing writes",
        40,
        Figure::new("failing writes: of 800 posts failed", FAILED, "").at_most(300.0),
        Figure::new("failing writes: delivered once more after it", REPEATED, "")
    ),
    fault!("clock-jump", "a clock that jumps", 70),
    fault!("host-outage", "a host away", 60),
    fault!("mass-renewal", "all renew at once", 35),
    Measurement {
        name: "slow-third",
        program: Program::Scenario("slow-third", &[]),
        seconds: 45,
        figures: &[
            Figure::new("a third is slow: delivered to the others after, p99", P99, "ms").at_most(500.0),
            Figure::new("a third is slow: lost", LOST, "").at_most(0.0),
            Figure::said("a third is slow: all that the scenario expects", At::Ended, "").at_least(1.0),
        ],
    },
    fault!("poisoned", "a poisoned message", 35),
    fault!("resolver", "no answers from the resolver", 45),
    Measurement {
        name: "deaths",
        program: Program::Test(&["crash"], ("RESYNC_TEST_DEATHS", "200")),
        seconds: 1_500,
        figures: &[
            Figure::said("200 deaths of each kind: nothing lost, lives of sled below apart", At::Ended, "")
                .at_least(1.0),
            Figure::said(
                "200 deaths and failing writes, sled: lives that went on",
                At::Before(" lives go on"),
                "",
            ),
            Figure::said(
                "200 deaths and failing writes, sled: lives that did not",
                At::Before(" lives do not"),
                "",
            ),
            Figure::said("200 power cuts, sled: lives with everything", At::Before(" lives whole"), ""),
            Figure::said(
                "200 power cuts, sled: lives that cannot be read",
                At::Before(" lives unreadable"),
                "",
            ),
            Figure::said("200 power cuts, sled: lives with losses", At::Before(" lives with losses"), ""),
        ],
    },
    Measurement {
        name: "copy",
        program: Program::Load(&["copy", "--rounds", "7"]),
        seconds: 120,
        figures: &[
            Figure::new("first copy of 5,000 files, times as fast as Python's resync", "/times_faster", "")
                .at_least(5.0),
            Figure::new("the same copy once more, unchanged", "/again", "s"),
        ],
    },
    Measurement {
        name: "changes",
        program: Program::Test(&["kit", "many_changes::"], ("RESYNC_CHANGES", "1000000")),
        seconds: 180,
        figures: &[Figure::said(
            "1,000,000 changes: memory of the Destination at most, KiB",
            At::Before(" KiB at most"),
            "",
        )
        .at_most(131_072.0)],
    },
    Measurement {
        name: "fire",
        program: Program::Test(&["kit", "mirror_under_fire::"], ("RESYNC_FIRE_SECONDS", "600")),
        seconds: 660,
        figures: &[
            Figure::said("ten minutes under fire: the copy is the same, byte for byte", At::Ended, "")
                .at_least(1.0),
            Figure::said("ten minutes under fire: changes a second", At::Before(" changes a second"), "/s")
                .at_least(13.9),
        ],
    },
    Measurement {
        name: "rehearsal",
        program: Program::Bench("resync-publisher", "rehearsal", "2400000"),
        seconds: 300,
        figures: &[
            Figure::said(
                "2,400,000 entries, a day's 1,600 changes: % of a full build's processor time",
                At::Before(" % of a full build's processor time"),
                "",
            )
            .at_most(1.0),
            Figure::said(
                "2,400,000 entries, a day's 1,600 changes: % of what a full build writes",
                At::Before(" % of what it writes"),
                "",
            )
            .at_most(1.0),
            Figure::said("2,400,000 entries: memory at most, MiB", At::Before(" MiB of memory at most"), "")
                .at_most(64.0),
        ],
    },
    Measurement {
        name: "versions",
        program: Program::Bench("resync-publisher", "versions", "100000"),
        seconds: 240,
        figures: &[
            Figure::said(
                "100,000 files, 1,600 changes without new bytes: % that versions add to a build's time",
                At::Before(" % of the time"),
                "",
            )
            .at_most(1.0),
            Figure::said(
                "100,000 files, 1,600 changes without new bytes: % that versions add to its processor time",
                At::Before(" % of the processor time"),
                "",
            ),
        ],
    },
    Measurement {
        name: "watch",
        program: Program::Bench("resync-publisher", "rehearsal", "watch"),
        seconds: 180,
        figures: &[
            Figure::said("watch of 50,000 files: changes a second", At::Before(" changes a second"), "/s")
                .at_least(13.9),
            Figure::said(
                "watch of 50,000 files: 99 % of them heard of within",
                At::After("99 % within "),
                "ms",
            )
            .at_most(1_000.0),
            Figure::said(
                "watch of 50,000 files, bursts of 10,000: the last heard of within",
                At::After("all heard within "),
                "ms",
            )
            .at_most(1_000.0),
        ],
    },
    Measurement {
        name: "site",
        program: Program::Bench("resync-publisher", "rehearsal", "python"),
        seconds: 150,
        figures: &[
            Figure::said(
                "site of 20,000 files, times as fast as Python's resync",
                At::Before(" times as fast"),
                "",
            )
            .at_least(10.0),
            Figure::said("site of 20,000 files: memory, of Python's", At::Before(" of the memory"), "")
                .at_most(0.25),
        ],
    },
    Measurement {
        name: "receiver",
        program: Program::Script(&["tests/receiver", "4", "64"]),
        seconds: 60,
        figures: &[Figure::said(
            "this tool's receiver, of a bare hyper server under wrk",
            At::After("ratio "),
            "",
        )
        .at_least(0.8)],
    },
    cluster::POSTS,
    cluster::FANOUT,
    cluster::HOP,
    cluster::SCALE,
    cluster::TAKEOVER,
    cluster::FAILOVER,
    cluster::WAL,
    cluster::MILLION,
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use walkdir::WalkDir;

    use super::*;

    /// Where it is written what a program of this repository says: a file, or the folder of a program of tests.
    fn source(program: &Program) -> Option<String> {
        Some(match program {
            Program::Test([tests], _) => format!("tests/tests/{tests}"),
            Program::Test([tests, module], _) => {
                format!("tests/tests/{tests}/{}.rs", module.trim_end_matches(':'))
            }
            Program::Bench(_, name, _) => format!("publisher/benches/{name}.rs"),
            Program::Script([script, ..]) => (*script).to_owned(),
            _ => return None,
        })
    }

    fn text_below(path: &Path) -> String {
        let files = WalkDir::new(path).into_iter().map(Result::unwrap);
        let files = files.filter(|entry| entry.file_type().is_file());
        files.map(|file| fs::read_to_string(file.path()).unwrap()).collect()
    }

    #[test]
    fn words_around_a_figure_are_those_that_the_program_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut said = 0;
        for measurement in MEASUREMENTS {
            let Some(source) = source(&measurement.program) else { continue };
            let text = text_below(&root.join(&source));
            for figure in measurement.figures {
                if let At::Before(words) | At::After(words) = figure.at {
                    assert!(text.contains(words), "{words:?} is not said in {source}");
                    said += 1;
                }
            }
        }
        assert!(said > 10, "{said}");
    }
}
