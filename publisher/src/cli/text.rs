//! Results as text.

use std::{fmt::Write as _, path::Path};

use resync_common::{
    output,
    words::{Size, counted, quoted},
};
use resync_core::{digest::Algorithm, document::Capability};
use resync_publisher::{
    Changes,
    notify::{HubReport, Outcome},
    publish::{Built, Dump, Dumped, MaintenanceFailure, MaintenanceReport, Unkept, Written},
    status::{HubStatus, Status},
    watch::Report,
};

use super::{arguments::Hints, request::SetSettings};

/// "12 resources, 47.1 KiB → Resource List written", and the settings of the last build that still apply.
pub(super) fn built(built: &Built, set_settings: &SetSettings, is_dry: bool) -> String {
    format!("{}{}", summary(built, is_dry), inherited(set_settings))
}

fn summary(built: &Built, is_dry: bool) -> String {
    let what = match built.written.as_slice() {
        [] if built.dump_is_due && is_dry => "would make a due dump".to_owned(),
        [] => "nothing changed".to_owned(),
        written if built.dump_is_due && is_dry => {
            format!("would write {}, and make a due dump", kinds(written))
        }
        written if is_dry => format!("would write {}", kinds(written)),
        written => format!("{} written", kinds(written)),
    };
    let changes = changed(built.changes);
    let begin = built.versions_begin.as_ref().map_or_else(String::new, |prefix| {
        let copied = match built.versions_copied {
            0 => String::new(),
            bytes => format!(" ({} copied for that)", Size(bytes)),
        };
        format!(" · versions are kept from now on{copied}; behind another web server, pass {prefix} to `resync-source serve`: a host for static files answers 404 there, so do not set `keep` without it")
    });
    format!("{}, {}{changes} → {what}{begin}", count(built.resources, "resource"), Size(built.bytes))
}

/// "Resource List (2 documents), Capability List".
fn kinds(written: &[Written]) -> String {
    let lists = written.iter().filter(|document| !document.is_index);
    grouped(lists.map(|document| document.capability.name()))
}

/// That a set is removed.
pub(super) fn retired(is_dry: bool) -> String {
    let what = if is_dry { "would be removed" } else { "removed" };
    format!("no longer in the configuration → {what}")
}

/// "2 packages → Resource Dump, Capability List written", or that there was nothing to pack.
pub(super) fn dumped(what: Dump, dumped: &Dumped) -> String {
    let (one, more, why) = match what {
        Dump::Resources => {
            ("resource", "resources", "whose bytes are gone (build again to update the lists)")
        }
        Dump::Changes => ("change", "changes", "whose bytes later changes have replaced"),
    };
    let what = kinds(&dumped.written);
    let gone = match dumped.gone {
        0 => String::new(),
        gone => format!(", without {} {why}", counted(gone, one, more)),
    };
    let what = if what.is_empty() { String::new() } else { format!(" → {what} written") };
    match dumped.packages {
        0 if dumped.gone == 0 && what.is_empty() => {
            format!("no new {more} since the last dump; nothing packed")
        }
        0 if dumped.gone == 0 => format!("no {one} to pack{what}"),
        packages => format!("{}{gone}{what}", count(packages, "package")),
    }
}

/// "Resource Dump, Capability List written".
pub(super) fn maintenance(maintenance: &MaintenanceReport) -> String {
    format!("{} written", kinds(&maintenance.written))
}

/// "would notify `http://hub.example/` of 1 Change Notification and 2 documents"; none where nothing would be sent.
pub(super) fn would_notify(hub: &HubStatus) -> Option<String> {
    let changes = (hub.waiting > 0).then(|| count(hub.waiting, "Change Notification"));
    let documents = hub.pending.len() as u64;
    let documents = (documents > 0).then(|| count(documents, "document"));
    let what: Vec<_> = [changes, documents].into_iter().flatten().collect();
    (!what.is_empty()).then(|| format!("would notify {} of {}", hub.url, what.join(" and ")))
}

/// What was due and failed.
pub(super) fn failure(failure: &MaintenanceFailure) -> String {
    format!("{failure}; the next build retries")
}

/// Puts the name of the set before each line, if there is one.
pub(super) fn of_set(name: Option<&str>, text: &str) -> String {
    match name {
        Some(name) => format!("{name}: {}", text.replace('\n', &format!("\n{name}: "))),
        None => text.to_owned(),
    }
}

/// Prints a report of a watch, failures on standard error. The watch goes on when its output is closed.
pub(super) fn print_report(name: Option<&str>, report: &Report) {
    let say = |line: &str| output::say(of_set(name, line));
    let warn = |line: &str| output::warn(of_set(name, line));
    let complain = |line: &str| output::complain(of_set(name, line));
    match report {
        Report::EventsFailed(_, reason) => {
            warn(&format!("not all changes can be detected ({reason}); a rescan finds them, see --rescan"));
        }
        Report::Built(_, built) if built.written.is_empty() => {}
        Report::Built(_, built) => {
            for line in warnings(built) {
                warn(&line);
            }
            say(&summary(built, false));
        }
        Report::Dumped(_, maintenance) => {
            for failure in &maintenance.failures {
                warn(&format!("{failure}; retrying later"));
            }
            if !maintenance.written.is_empty() {
                say(&format!("→ {}", self::maintenance(maintenance)));
            }
        }
        Report::BuildFailed(_, error) => complain(&format!("{error}; retried at the next change or rescan")),
        Report::Notified(_, report) => {
            let text = reports(std::slice::from_ref(report));
            say(&if report.leaving { text } else { format!("{}: {text}", report.hub) });
        }
        Report::NotifyFailed(_, error) => complain(&format!("{error}; retrying soon")),
        _ => {}
    }
}

/// ": 3 created, 1 updated"; nothing where nothing changed.
fn changed(Changes { created, updated, deleted }: Changes) -> String {
    let kinds = [(created, "created"), (updated, "updated"), (deleted, "deleted")];
    let kinds: Vec<_> = kinds
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, kind)| format!("{number} {kind}"))
        .collect();
    if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) }
}

/// Settings of the last build that differ from those of a new site.
fn inherited(set_settings: &SetSettings) -> String {
    let SetSettings { settings, hubs_from_last_build, hash_from_last_build, .. } = set_settings;
    let mut flags = Vec::new();
    if *hash_from_last_build && settings.hash != [Algorithm::Sha256] {
        flags.extend(settings.hash.iter().map(|algorithm| format!("--hash {algorithm}")));
    }
    if *hubs_from_last_build {
        flags.extend(settings.hubs.iter().map(|hub| format!("--hub {hub}")));
    }
    if flags.is_empty() { String::new() } else { format!(" (as in the last build: {})", flags.join(" ")) }
}

/// What a build left out, may not work elsewhere, or failed, a line each; of many with the same cause only the first few.
pub(super) fn warnings(built: &Built) -> Vec<String> {
    let left_out = built.skipped.iter().map(|skipped| {
        (skipped.reason.to_string(), format!("left out {}: {}", name_of(&skipped.path), skipped.reason))
    });
    let mut lines = first_few(left_out, "left out");
    let unportable = built.unportable.iter().map(|one| {
        let cause = format!("its name contains {}, which other systems do not allow", one.cause);
        (cause.clone(), format!("published {}, but {cause}", name_of(&one.path)))
    });
    lines.extend(first_few(unportable, "published"));
    if built.resources == 0 {
        lines
            .push("the collection is empty; Destinations with --delete would delete their copies".to_owned());
    }
    lines.extend(built.failures.iter().map(failure));
    lines.extend(unkept(&built.unkept));
    lines
}

/// Versions that could not be kept.
fn unkept(Unkept { changed, failed, cause }: &Unkept) -> Option<String> {
    let (loc, reason) = cause.as_ref()?;
    let all = count(changed + failed, "version");
    Some(format!("left out {all}, the first of `{}`: {reason}", escaped(loc)))
}

/// From causes and lines in any order: lines grouped by cause, and of each group how many more there are.
fn first_few(causes: impl Iterator<Item = (String, String)>, verb: &str) -> Vec<String> {
    const SHOWN: usize = 5;
    let mut groups: Vec<(String, usize, Vec<String>)> = Vec::new();
    for (cause, line) in causes {
        let position = groups.iter().position(|(known, ..)| *known == cause).unwrap_or_else(|| {
            groups.push((cause, 0, Vec::new()));
            groups.len() - 1
        });
        let (_, number, lines) = &mut groups[position];
        *number += 1;
        if lines.len() < SHOWN {
            lines.push(line);
        }
    }
    let texts = groups.into_iter().map(|(cause, number, mut lines)| {
        if number > lines.len() {
            lines.push(format!("and {} more {verb}: {cause}", number - lines.len()));
        }
        lines
    });
    texts.flatten().collect()
}

/// A path in quotes, without characters that could steer a terminal.
fn name_of(path: &Path) -> String {
    format!("`{}`", escaped(&path.display().to_string()))
}

/// Text of others on one line, without characters that could steer a terminal or turn the direction of what stands around it.
pub(super) fn escaped(text: &str) -> String {
    let steers = |c: char| {
        let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() || turns
    };
    text.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.into() }).collect()
}

/// "1 notification, hub accepted (202)"; for several hubs a line each.
pub(super) fn reports(hubs: &[HubReport]) -> String {
    let lines = hubs.iter().map(|report| {
        let whose = match report.leaving {
            true => format!("{}, no longer a hub of this site: ", report.hub),
            false if hubs.len() > 1 => format!("{}: ", report.hub),
            false => String::new(),
        };
        let what = match &report.outcome {
            Outcome::NothingChanged => "the hub is up to date, nothing to send".to_owned(),
            Outcome::Accepted { status } => {
                let all = report.sent + usize::from(!report.changes.is_empty());
                let resources = std::iter::repeat_n("changes of resources".to_owned(), report.sent);
                let documents = report
                    .changes
                    .iter()
                    .map(|change| format!("{} {}", change.capability.name(), change.change.token()));
                let kinds = grouped(resources.chain(documents));
                format!("{} ({kinds}), hub accepted ({status})", count(all as u64, "notification"))
            }
            Outcome::Failed(error) if report.sent > 0 => {
                format!("notified in part ({} accepted): {error}", count(report.sent as u64, "notification"))
            }
            Outcome::Failed(error) => format!("not notified: {error}"),
        };
        format!("{whose}{what}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The status of a site, and where to add a hub if it has none.
pub(super) fn status(status: &Status, hints: &Hints) -> String {
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{arguments}");
    };
    let set = status.set.as_ref().map_or(String::new(), |set| format!("{set}: "));
    line(format_args!("{set}{} at {}", status.directory, status.base_url));
    line(format_args!("{}, {}", count(status.totals.resources, "resource"), Size(status.totals.bytes)));
    if let Some(kept) = &status.versions {
        line(format_args!("{}, {}, since {}", count(kept.versions, "version"), Size(kept.bytes), kept.since));
    }
    for document in &status.documents {
        let of_others = if document.index { " (index)" } else { "" };
        let what = format!("{}{of_others}", name(&document.capability));
        line(format_args!("  {what:<21} {}  changed {}", document.url, document.changed));
    }
    if status.hubs.is_empty() {
        line(format_args!("no hub, so no channel; add one {}", hints.place_of_hubs));
    }
    for hub in &status.hubs {
        let left = if hub.leaving { ", no longer a hub of this site" } else { "" };
        line(format_args!("hub {}{left}: {}", hub.url, hub_status(hub, hints)));
        if let Some(trouble) = &hub.trouble {
            if !hub.on_hold {
                line(format_args!("  since {}: {}", trouble.since, trouble.reason));
            }
            if trouble.left_out > 0 {
                let left_out = of_resources(trouble.left_out);
                line(format_args!(
                    "  dropped as too old or too many: {left_out}; the Change List has these changes"
                ));
            }
        }
        for change in hub.pending.iter().filter(|_| !hub.on_hold) {
            line(format_args!("  waits: {} {}  {}", name(&change.capability), change.change, change.url));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// What a hub on hold is, what waits for it, and what to do.
pub(super) fn on_hold(hub: &HubStatus, hints: &Hints) -> String {
    let waiting = match hub.waiting {
        0 => "its subscribers were not told that".to_owned(),
        number => format!("{} kept for it", count(number, "Change Notification")),
    };
    format!(
        "on hold, since it is no longer named; {waiting}. Name it again {}, or leave it with {}",
        hints.place_of_hubs,
        hints.notify(&format!(" --drop-hub {}", quoted(&hub.url)))
    )
}

fn hub_status(hub: &HubStatus, hints: &Hints) -> String {
    if hub.on_hold {
        return on_hold(hub, hints);
    }
    let last = match (&hub.notified_at, hub.answer) {
        (Some(at), Some(answer)) => format!("last notified {at} ({answer})"),
        _ => "never notified".to_owned(),
    };
    let documents = hub.pending.len() as u64;
    let waiting = [
        (hub.waiting > 0).then(|| of_resources(hub.waiting)),
        (documents > 0).then(|| count(documents, "changed document")),
    ];
    let waiting: Vec<_> = waiting.into_iter().flatten().collect();
    // The trouble is shown with advice.
    let refused = hub.trouble.as_ref().map(|trouble| trouble.refused);
    let advice = match refused {
        None => format!("; run {}", hints.notify("")),
        Some(None) => String::new(),
        Some(Some(number)) => {
            let skip = hints.notify(&format!(" --skip {number}"));
            format!("; it refuses Change Notification {number}; skip it with {skip}")
        }
    };
    if waiting.is_empty() {
        return format!("{last}, up to date");
    }
    format!("{last}, waiting: {}{advice}", waiting.join(", "))
}

/// The name of a kind of document by its token.
fn name(token: &str) -> String {
    Capability::from(token).name().to_owned()
}

fn grouped<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    let mut groups: Vec<(String, usize)> = Vec::new();
    for name in names {
        match groups.iter_mut().find(|(known, _)| known == name.as_ref()) {
            Some((_, number)) => *number += 1,
            None => groups.push((name.as_ref().to_owned(), 1)),
        }
    }
    let texts = groups.into_iter().map(|(name, number)| match number {
        1 => name,
        _ if name.starts_with("changes") => format!("{name} ({number} notifications)"),
        _ => format!("{name} ({number} documents)"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

pub(super) fn count(number: u64, what: &str) -> String {
    counted(number, what, &format!("{what}s"))
}

/// "2 notifications of changed resources".
fn of_resources(number: u64) -> String {
    format!("{} of changed resources", count(number, "notification"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_in_words() {
        assert_eq!(count(1, "resource"), "1 resource");
        assert_eq!(
            grouped(["Resource List", "Resource List", "Capability List"].iter()),
            "Resource List (2 documents), Capability List"
        );
    }

    #[test]
    fn of_many_warnings_with_one_cause_the_first_few_are_shown_and_the_rest_counted() {
        let of = |cause: &str, number: usize| {
            (0..number).map(|n| (cause.to_owned(), format!("{cause} {n}"))).collect::<Vec<_>>()
        };
        let lines = first_few(of("loop", 12).into_iter().chain(of("pipe", 1)), "left out");
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[4..], ["loop 4", "and 7 more left out: loop", "pipe 0"]);
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(name_of(Path::new("a\x1b[2Jé")), "`a\\u{1b}[2Jé`");
    }
}
