//! The long help: examples of each command.

use resync_common::habits::Help;

pub(super) const HELP: Help = Help {
    headings: &[(
        "Attackers",
        &["slow", "flood", "links", "bodies", "late", "refusing", "waiting", "superseding"],
    )],
    examples: &[
        ("", &["resync-load scenarios", "resync-load run fanout"]),
        (
            "run",
            &[
                "resync-load run fanout --out fanout.json",
                "resync-load run scenario.toml --hub https://hub.example/websub/ --by ping",
            ],
        ),
        ("scenarios", &["resync-load scenarios"]),
        ("report", &["resync-load report before.json after.json --out page.html"]),
        ("receiver", &["resync-load receiver --payload 1000"]),
        ("limit", &["resync-load limit --requests 20000"]),
        ("fanout", &["resync-load fanout --rounds 25 --json"]),
        ("isolation", &["resync-load isolation --rounds 3"]),
        ("recovery", &["resync-load recovery --subscriptions 10000"]),
        ("scale", &["resync-load scale --subscribers 100000 --rounds 1"]),
        ("pages", &["resync-load pages --topics 1000"]),
        ("publish", &["resync-load publish --publishers 1,16"]),
        ("copy", &["resync-load copy --files 1000"]),
        ("attack", &["resync-load attack --rounds 1 --seconds 10"]),
        (
            "cluster",
            &[
                "resync-load cluster posts hop --seconds 20",
                "resync-load cluster failover --hub http://127.0.0.1:8080/websub/ --store-url postgres://hub@127.0.0.1/hub",
            ],
        ),
        (
            "completions",
            &["resync-load completions bash > ~/.local/share/bash-completion/completions/resync-load"],
        ),
        ("man", &["resync-load man ~/.local/share/man/man1"]),
        (
            "figures",
            &["resync-load figures --list", "resync-load figures --document docs/reference/figures.md"],
        ),
    ],
};
