//! Imports inside a crate point one way: its modules stand in an order, and each uses only those below it.
//!
//! A module is here a folder or file directly below `src/`, or one within such a folder that is listed with both names. What production code names by
//! `crate::` or `super::` outside its module counts.
//!
//! Inside each folder the files and folders need no order, but none uses another that leads back to it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod siblings;
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use siblings::Uses;
use source::Use;

/// A crate with its modules, and the imports that still point up.
struct Layers {
    folder: &'static str,
    /// From the top; a module uses only those behind it.
    modules: &'static [&'static str],
    /// Modules that use one above them, with that one. Remove pairs, add none.
    upward: &'static [(&'static str, &'static str)],
}

/// As ARCHITECTURE.md shows it.
const HUB: Layers = Layers {
    folder: "hub",
    modules: &[
        "cli",
        "hub",
        "http",
        "metrics",
        "liveness",
        "admin",
        "delivery",
        "delivery/sender",
        "delivery/scheduler",
        "subscriptions",
        "topics",
        "telemetry",
        "concurrency",
        "egress",
        "waiting_work",
        "store",
        "trace_context",
        "rate_limiter",
        "live_hubs",
        "config",
        "meters",
        "pem",
        "completion",
        "clock_jump",
        "sockets",
        "weighted_cache",
        "content_coding",
    ],
    upward: &[],
};

const CORE: Layers = Layers {
    folder: "core",
    modules: &[
        "lint",
        "build",
        "package",
        "xml",
        "document",
        "rules",
        "model",
        "durable",
        "origins",
        "lock",
        "memento",
        "websub",
        "digest",
        "datetime",
        "address",
        "misplaced",
        "media_type",
    ],
    upward: &[],
};

const COMMON: Layers = Layers {
    folder: "common",
    modules: &[
        "server",
        "pace",
        "config",
        "client",
        "completions",
        "habits",
        "logging",
        "progress",
        "output",
        "signals",
        "values",
        "words",
        "backoff",
        "file_limit",
        "space",
        "locks",
    ],
    upward: &[],
};

const PUBLISHER: Layers = Layers {
    folder: "publisher",
    modules: &[
        "cli",
        "watch",
        "source",
        "check",
        "serve",
        "status",
        "forget",
        "notify",
        "publish",
        "outbox",
        "inventory",
        "versions",
        "config",
        "state",
        "site",
        "settings",
        "error",
        "helpers",
    ],
    upward: &[],
};

const SUBSCRIBER_KIT: Layers = Layers {
    folder: "subscriber-kit",
    modules: &[
        "cli",
        "prelude",
        "listen",
        "forward",
        "receive",
        "subscribe",
        "state",
        "sync",
        "notification",
        "discover",
        "memento",
        "fetch",
        "timing",
        "space",
        "state_folder",
        "disk_error",
        "text",
        "blocking",
    ],
    upward: &[],
};

/// The crates, and the uses that still close a circle inside one of their folders. Remove pairs, add none.
const CIRCLES: [(&str, &[(&str, &str)]); 6] = [
    // The document describes the route that serves it, and each query is checked by the document.
    ("hub", &[("http/admin/openapi", "http/admin/api")]),
    ("core", &[]),
    ("common", &[]),
    ("publisher", &[]),
    ("subscriber-kit", KIT_CIRCLES),
    ("tests/load", &[]),
];

/// Mostly what a run finds out: its errors and reports know its parts, which make them.
const KIT_CIRCLES: &[(&str, &str)] = &[
    ("sync/files", "sync/error"),
    ("sync/files", "sync/progress"),
    ("sync/files", "sync/reading"),
    ("sync/files", "sync/report"),
    ("sync/files", "sync/run"),
    ("sync/files", "sync/saved"),
    ("sync/reading", "sync/report"),
    ("sync/report", "sync/saved"),
];

#[test]
fn nothing_in_a_folder_uses_what_leads_back_to_it() {
    let problems =
        CIRCLES.iter().flat_map(|(folder, known)| Uses::read(&src(folder)).problems(folder, known));
    let problems: Vec<_> = problems.collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_modules_of_the_hub_use_only_those_below_them() {
    HUB.hold();
}

/// So that a simulation can run it through thousands of lives.
#[test]
fn the_scheduler_of_deliveries_does_no_input_or_output_and_reads_no_clock() {
    let banned = ["tokio", "async", "Store", "fs", "Instant::now", "SystemTime::now", "DateTime::now"];
    let named = source::named(&src("hub").join("delivery/scheduler"), &banned);
    assert!(named.is_empty(), "{}", named.join("\n"));
}

#[test]
fn the_modules_of_core_use_only_those_below_them() {
    CORE.hold();
}

#[test]
fn the_modules_of_common_use_only_those_below_them() {
    COMMON.hold();
}

#[test]
fn the_modules_of_the_publisher_use_only_those_below_them() {
    PUBLISHER.hold();
}

#[test]
fn the_modules_of_the_subscriber_kit_use_only_those_below_them() {
    SUBSCRIBER_KIT.hold();
}

impl Layers {
    fn hold(&self) {
        let read = source::read(&src(self.folder), self.modules);
        let listed: BTreeSet<_> = self.modules.iter().map(|module| (*module).to_owned()).collect();
        assert_eq!(
            read.modules,
            listed,
            "modules of {}: on disk, and in the order of {}",
            self.folder,
            file!()
        );
        let problems = self.problems(&read.uses);
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// Each use that points up, and each exception that nothing needs.
    fn problems(&self, uses: &[Use]) -> Vec<String> {
        let height = |module: &str| self.modules.iter().position(|known| *known == module);
        let upward = uses.iter().filter(|used| height(&used.names) < height(&used.module));
        let (known, new): (Vec<_>, Vec<_>) =
            upward.partition(|used| self.upward.contains(&(used.module.as_str(), used.names.as_str())));
        let new = new.iter().map(|Use { file, line, module, names }| {
            format!("{}/{file}:{line}: `{module}` uses `{names}`, which stands above it", self.folder)
        });
        let needed: BTreeSet<_> =
            known.iter().map(|used| (used.module.as_str(), used.names.as_str())).collect();
        let unneeded = self.upward.iter().filter(|pair| !needed.contains(*pair));
        let unneeded = unneeded.map(|(module, names)| {
            format!("{}: `{module}` no longer uses `{names}`: remove the exception", self.folder)
        });
        new.chain(unneeded).collect()
    }
}

fn src(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("src")
}

#[test]
fn an_upward_use_is_named_and_so_is_an_exception_that_nothing_needs() {
    let layers = Layers {
        folder: "house",
        modules: &["roof", "floor", "cellar"],
        upward: &[("cellar", "floor"), ("floor", "roof")],
    };
    let used = |line, module: &str, names: &str| Use {
        file: format!("src/{module}.rs"),
        line,
        module: module.to_owned(),
        names: names.to_owned(),
    };
    let uses = [used(1, "roof", "cellar"), used(2, "floor", "roof"), used(3, "cellar", "roof")];
    assert_eq!(
        layers.problems(&uses),
        [
            "house/src/cellar.rs:3: `cellar` uses `roof`, which stands above it",
            "house: `cellar` no longer uses `floor`: remove the exception",
        ]
    );
}
