//! The long help: flags of special cases below headings, and examples of each command.

use resync_common::habits::Help;

pub(super) const HELP: Help = Help {
    headings: &[
        (
            "What is copied",
            &[
                "set",
                "base",
                "origin",
                "any_origin",
                "baseline",
                "changes",
                "mirrors",
                "prefer",
                "types",
                "include",
                "exclude",
                "modified_since",
                "at",
                "timegate",
                "versions",
                "collection",
                "only_metadata",
            ],
        ),
        (
            "Subscription",
            &["lease", "rotate_secret", "exec_timeout", "max_notification_size", "unsubscribe_on_exit"],
        ),
        (
            "Requests",
            &[
                "public_only",
                "any_address",
                "parallel",
                "per_host",
                "delay",
                "header",
                "retries",
                "retry_pause",
            ],
        ),
        (
            "Limits",
            &[
                "connect_timeout",
                "idle_timeout",
                "min_rate",
                "document_timeout",
                "resource_timeout",
                "max_redirects",
                "max_resource_size",
                "max_resources",
                "max_list_size",
                "max_parts",
                "max_run_size",
                "max_run_time",
                "max_versions",
            ],
        ),
    ],
    examples: &[
        (
            "",
            &[
                "resync-destination discover https://example.org/",
                "resync-destination sync https://example.org/ mirror",
                "resync-destination listen https://example.org/ --into mirror --callback-url https://mirror.example/",
            ],
        ),
        (
            "discover",
            &[
                "resync-destination discover https://example.org/",
                "resync-destination discover https://example.org/ --json",
                "resync-destination discover https://example.org/ --versions-of https://example.org/a.txt",
            ],
        ),
        (
            "sync",
            &[
                "resync-destination sync https://example.org/ mirror",
                "resync-destination sync https://example.org/ mirror --delete --dry-run",
                "resync-destination sync https://example.org/ mirror --incremental --quiet",
                "resync-destination sync https://example.org/ march --at 2026-03-01",
            ],
        ),
        ("audit", &["resync-destination audit https://example.org/ mirror"]),
        (
            "subscribe",
            &[
                "resync-destination subscribe https://example.org/ --state state --callback-url https://mirror.example/ --json",
            ],
        ),
        (
            "listen",
            &[
                "resync-destination listen https://example.org/ --into mirror --callback-url https://mirror.example/",
                "resync-destination listen --config /etc/resync-destination/mirror.toml",
            ],
        ),
        (
            "unsubscribe",
            &["resync-destination unsubscribe --into mirror --callback-url https://mirror.example/"],
        ),
        (
            "status",
            &["resync-destination status --into mirror", "resync-destination status --into mirror --json"],
        ),
        (
            "completions",
            &[
                "resync-destination completions bash > ~/.local/share/bash-completion/completions/resync-destination",
            ],
        ),
        ("man", &["resync-destination man ~/.local/share/man/man1"]),
        ("config check", &["resync-destination config check --config mirror.toml"]),
        ("config print", &["resync-destination config print > mirror.toml"]),
    ],
};
