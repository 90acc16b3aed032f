//! The long help: examples of each command.

use resync_common::habits::Help;

pub(super) const HELP: Help = Help {
    headings: &[],
    examples: &[
        ("", &["resync-hub --dev", "resync-hub --config /etc/resync-hub/hub.toml"]),
        (
            "serve",
            &[
                "resync-hub serve --dev",
                "resync-hub serve --listen 127.0.0.1:8080 --public-url https://hub.example --data-dir /var/lib/resync-hub",
            ],
        ),
        ("token add", &["resync-hub token add my-library --topic-prefix https://source.example/"]),
        ("token list", &["resync-hub token list"]),
        ("token revoke", &["resync-hub token revoke my-library"]),
        ("topics", &["resync-hub topics", "resync-hub topics --json"]),
        ("secrets new-key", &["resync-hub secrets new-key > /etc/resync-hub/keys"]),
        ("secrets rotate", &["resync-hub secrets rotate"]),
        ("deliveries laggards", &["resync-hub deliveries laggards --limit 20"]),
        ("deliveries skips", &["resync-hub deliveries skips"]),
        ("deliveries lost", &["resync-hub deliveries lost --json"]),
        ("deliveries hosts", &["resync-hub deliveries hosts"]),
        ("deliveries paused", &["resync-hub deliveries paused"]),
        ("deliveries retry", &["resync-hub deliveries retry --host https://destination.example"]),
        ("deliveries skip", &["resync-hub deliveries skip --subscription 7"]),
        (
            "deliveries replay",
            &["resync-hub deliveries replay --subscription 7 --since 2026-01-31T12:00:00Z"],
        ),
        ("deliveries pause", &["resync-hub deliveries pause https://source.example/resync/changes/"]),
        ("deliveries resume", &["resync-hub deliveries resume https://source.example/resync/changes/"]),
        ("config check", &["resync-hub config check --config hub.toml"]),
        ("config print", &["resync-hub config print", "resync-hub config print --default > hub.toml"]),
        ("subscriptions list", &["resync-hub subscriptions list"]),
        (
            "subscriptions export",
            &[
                "resync-hub subscriptions export 7",
                "resync-hub subscriptions export https://destination.example/callback",
            ],
        ),
        ("subscriptions new-address", &["resync-hub subscriptions new-address 7"]),
        (
            "subscriptions deny",
            &[
                "resync-hub subscriptions deny 7 8",
                "resync-hub subscriptions deny --topic https://source.example/old/ --reason moved",
            ],
        ),
        ("backup", &["resync-hub backup hub.backup", "resync-hub backup - | gzip > hub.backup.gz"]),
        ("restore", &["resync-hub restore hub.backup --data-dir restored"]),
        ("restored", &["resync-hub restored --config /etc/resync-hub/hub.toml"]),
        ("fsck", &["resync-hub fsck", "resync-hub fsck --repair", "resync-hub fsck --json"]),
        ("drain", &["resync-hub drain --wait --timeout 2h", "resync-hub drain --end"]),
        ("log-level", &["resync-hub log-level", "resync-hub log-level info,resync_hub::delivery=trace"]),
        ("healthcheck", &["resync-hub healthcheck --quiet"]),
        (
            "completions",
            &["resync-hub completions bash > ~/.local/share/bash-completion/completions/resync-hub"],
        ),
        ("man", &["resync-hub man ~/.local/share/man/man1"]),
    ],
};
