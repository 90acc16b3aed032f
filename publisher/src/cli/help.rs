//! The long help: flags of special cases below headings, and examples of each command.

use resync_common::habits::Help;

pub(super) const HELP: Help = Help {
    headings: &[
        ("Special cases", &["hash", "no_hub", "take_over", "allow_empty"]),
        ("Limits", &["deadline", "max_requests", "max_documents", "packages"]),
    ],
    examples: &[
        (
            "",
            &[
                "resync-source init papers --base-url https://example.org/papers/ --hub https://hub.example/websub/",
                "resync-source publish",
                "resync-source status",
            ],
        ),
        (
            "init",
            &[
                "resync-source init",
                "resync-source init papers --base-url https://example.org/papers/ --hub https://hub.example/websub/",
            ],
        ),
        (
            "build",
            &[
                "resync-source build",
                "resync-source build papers --base-url https://example.org/papers/ --out site",
            ],
        ),
        (
            "notify",
            &[
                "resync-source notify --retry 10m",
                "resync-source notify --config /etc/resync-source/source.toml --skip 17",
            ],
        ),
        ("publish", &["resync-source publish", "resync-source publish --quiet --retry 1h"]),
        ("watch", &["resync-source watch --rescan 1h"]),
        ("dump", &["resync-source dump", "resync-source dump --changes"]),
        ("serve", &["resync-source serve --listen 127.0.0.1:8091"]),
        (
            "check",
            &[
                "resync-source check",
                "resync-source check https://example.org/.well-known/resourcesync",
                "resync-source check notification.xml --json",
            ],
        ),
        ("status", &["resync-source status", "resync-source status --json"]),
        (
            "forget",
            &[
                "resync-source forget papers/a.pdf",
                "resync-source forget papers/a.pdf --at 2026-03-01T09:30:00Z --dry-run",
                "resync-source forget https://example.org/papers/a.pdf --all --with-others",
            ],
        ),
        ("config check", &["resync-source config check --config source.toml"]),
        ("config print", &["resync-source config print"]),
        (
            "completions",
            &["resync-source completions bash > ~/.local/share/bash-completion/completions/resync-source"],
        ),
        ("man", &["resync-source man ~/.local/share/man/man1"]),
    ],
};
