//! What the commands print, for people and as JSON.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use resync_common::words::{Lasting, Size, counted};
use resync_core::datetime::DateTime;
use resync_core::document::Capability;
use resync_subscriber_kit::discover::{KnownVersion, Measure, Set, Source, TimeMap, measure};
use resync_subscriber_kit::fetch::Client;
use resync_subscriber_kit::forward::ForwardEvent;
use resync_subscriber_kit::listen::ListenEvent;
use resync_subscriber_kit::state::{LastSync, Phase, Status, Subscription};
use resync_subscriber_kit::sync::{
    AuditReport, Cause, FAILURES_KEPT, Failure, Gap, GapHistory, Method, Outcome, Report, ResourceEvent,
    SyncError, Verdict, VersionsReport,
};
use serde_json::{Value, json};
use url::Url;

/// How many failures of one cause have a line each.
const FEW: u64 = 3;

/// The sizes of a Source's documents, by their URLs.
#[derive(Default)]
pub(crate) struct Sizes(HashMap<Url, Result<Measure, String>>);

impl Sizes {
    /// Reads every document of every set. Channels are not documents (FN-063).
    pub(crate) async fn of(client: &Client, source: &Source) -> Self {
        let mut sizes = HashMap::new();
        for (_, url) in source.sets.iter().flat_map(documents) {
            if let Entry::Vacant(place) = sizes.entry(url.clone()) {
                place.insert(measure(client, &url).await);
            }
        }
        Self(sizes)
    }

    fn text(&self, capability: &Capability, url: &Url) -> String {
        let measure = match self.0.get(url) {
            None => return String::new(),
            Some(Err(reason)) => return format!(" (cannot be read: {reason})"),
            Some(Ok(measure)) => measure,
        };
        let (one, more) = match capability {
            _ if measure.is_index => ("document", "documents"),
            Capability::ResourceList => ("resource", "resources"),
            Capability::ChangeList => ("change", "changes"),
            Capability::ResourceDump | Capability::ChangeDump => ("package", "packages"),
            _ => ("entry", "entries"),
        };
        let mut parts = vec![counted(measure.entries, one, more)];
        if measure.listed_bytes > 0 {
            parts.push(format!("of {}", Size(measure.listed_bytes)));
        }
        parts.extend(measure.at.map(|at| format!("at {at}")));
        parts.extend(measure.from.map(|from| format!("from {from}")));
        parts.extend(measure.until.map(|until| format!("until {until}")));
        format!(" ({})", parts.join(" "))
    }

    fn json(&self, url: &Url) -> Value {
        match self.0.get(url) {
            None => Value::Null,
            Some(Err(reason)) => json!({ "error": reason }),
            Some(Ok(measure)) => json!(measure),
        }
    }
}

/// The documents of a set.
fn documents(set: &Set) -> Vec<(Capability, Url)> {
    let named = set.capabilities.iter().filter(|(capability, _)| !capability.is_notification());
    let mut found: Vec<_> = named.cloned().collect();
    if set.capability_list.is_none() {
        found.extend(set.resource_list.iter().map(|url| (Capability::ResourceList, url.clone())));
    }
    found
}

pub(crate) fn source(source: &Source, sizes: &Sizes) -> String {
    let mut lines = vec![format!("Source {}", source.found_at)];
    if let Some(description) = &source.description {
        lines.push(format!("  Source Description {description}"));
    }
    for one in &source.sets {
        lines.push(format!("  set {}", one.name()));
        lines.extend(documents(one).iter().map(|(capability, url)| {
            format!("    {} {url}{}", capability.name(), sizes.text(capability, url))
        }));
        for (capability, channel) in [
            (Capability::FrameworkNotification, &one.framework_channel),
            (Capability::ChangeNotification, &one.change_channel),
        ] {
            let Some(channel) = channel else { continue };
            lines.push(format!("    {}s {}", capability.name(), channel.topic.as_str()));
            lines.extend(channel.hubs.iter().map(|hub| format!("      hub {hub}")));
        }
    }
    lines.extend(
        source.unreadable.iter().map(|set| format!("  cannot be read: {} ({})", set.url, set.reason)),
    );
    lines.join("\n")
}

pub(crate) fn source_json(source: &Source, sizes: &Sizes) -> Value {
    let unreadable = source.unreadable.iter();
    json!({
        "found_at": source.found_at,
        "description": source.description,
        "sets": source.sets.iter().map(|set| set_json(set, sizes)).collect::<Vec<_>>(),
        "unreadable": unreadable.map(|one| json!({ "url": one.url, "reason": one.reason })).collect::<Vec<_>>(),
    })
}

fn set_json(set: &Set, sizes: &Sizes) -> Value {
    let capability = |(name, url): &(Capability, Url)| json!({ "capability": name.token(), "url": url, "size": sizes.json(url) });
    json!({
        "name": set.name(),
        "capability_list": set.capability_list,
        "resource_list": set.resource_list,
        "described_by": set.described_by,
        "capabilities": set.capabilities.iter().map(capability).collect::<Vec<_>>(),
        "framework_channel": set.framework_channel,
        "change_channel": set.change_channel,
    })
}

/// A version of a resource: its moment, and where it is.
pub(crate) fn version(version: &KnownVersion) -> String {
    // No URL can imitate another line.
    format!("{}\t{}", version.at, version.url.replace(char::is_control, " "))
}

/// A moment that cannot be copied, and the next ones that can.
pub(crate) fn out_of_reach_json(error: &SyncError) -> Option<Value> {
    let SyncError::OutOfReach { moment, before, after } = error else { return None };
    Some(json!({ "at": moment, "error": error.to_string(), "before": before, "after": after }))
}

/// What a TimeMap may list and cannot be shown.
pub(crate) fn missing_versions(found: &TimeMap) -> Vec<String> {
    let skipped = (found.skipped > 0).then(|| {
        format!("left out {} of the TimeMap that cannot be read", counted(found.skipped, "link", "links"))
    });
    let unreadable = found.unreadable.iter();
    let pages = unreadable.map(|page| format!("cannot read the TimeMap {}: {}", page.url, page.reason));
    skipped.into_iter().chain(pages).collect()
}

/// What happens while notifications are forwarded, as lines for people.
pub(crate) fn forward_event(event: ForwardEvent) -> String {
    match event {
        // In the same words as for a copy.
        ForwardEvent::Listening { address } => ListenEvent::Listening { address }.to_string(),
        ForwardEvent::Subscribed { topic, until } => ListenEvent::Subscribed { topic, until }.to_string(),
        ForwardEvent::HookFailed { cause, retry_in } => {
            ListenEvent::HookFailed { cause, retry_in }.to_string()
        }
        ForwardEvent::TopicFailed { topic, cause, retry_in } => {
            format!("not subscribed to {topic}: {cause}; next try in {}", Lasting(retry_in))
        }
        ForwardEvent::Notification { topic, body, skipped, .. } => {
            let missed =
                if skipped > 0 { format!(", {skipped} before it are missing") } else { String::new() };
            format!("notified of {}: {}{missed}", topic.as_str(), counted(body.len(), "byte", "bytes"))
        }
        other => format!("{other:?}"),
    }
}

/// The same as one JSON object. A body that is not text is in base64, in its own member.
pub(crate) fn forward_event_json(event: ForwardEvent) -> Value {
    match event {
        ForwardEvent::Listening { address } => {
            json!({ "event": "listening", "address": address.to_string() })
        }
        ForwardEvent::Subscribed { topic, until } => {
            json!({ "event": "subscribed", "topic": topic.as_str(), "until": until.to_string() })
        }
        ForwardEvent::HookFailed { cause, retry_in } => {
            json!({ "event": "command-failed", "cause": cause, "retry_in_seconds": retry_in.as_secs() })
        }
        ForwardEvent::TopicFailed { topic, cause, retry_in } => json!({
            "event": "topic-failed", "topic": topic, "cause": cause, "retry_in_seconds": retry_in.as_secs(),
        }),
        ForwardEvent::Notification { id, topic, content_type, body, skipped } => {
            let length = body.len();
            let body = String::from_utf8(body).map_err(|error| BASE64_STANDARD.encode(error.as_bytes()));
            json!({
                "event": "notification",
                "id": id.map(|id| id.to_string()),
                "topic": topic.as_str(),
                "content_type": content_type,
                "skipped": skipped,
                "length": length,
                "body": body.as_ref().ok(),
                "body_base64": body.as_ref().err(),
            })
        }
        other => json!({ "event": format!("{other:?}") }),
    }
}

/// What happens to a copy that is kept in step; `None` for minor events.
pub(crate) fn listen_event(event: &ListenEvent) -> Option<String> {
    Some(match event {
        ListenEvent::Synchronised(found) => report(found),
        ListenEvent::VersionsFetched(found) => versions(found).trim_start().to_owned(),
        ListenEvent::HookDone => return None,
        other => other.to_string(),
    })
}

/// Whether the copy, or a part of it, is not as it should be.
pub(crate) fn is_failure(event: &ListenEvent) -> bool {
    match event {
        ListenEvent::Synchronised(report) => !report.in_step(),
        ListenEvent::VersionsFetched(report) => !report.is_complete(),
        ListenEvent::HookFailed { .. } | ListenEvent::SyncFailed { .. } | ListenEvent::Stopped { .. } => true,
        _ => false,
    }
}

/// The same as one JSON object.
pub(crate) fn listen_event_json(directory: &Path, event: &ListenEvent) -> Value {
    let details = match event {
        ListenEvent::Listening { address } => json!({ "address": address.to_string() }),
        ListenEvent::Subscribed { topic, until } => {
            json!({ "topic": topic.as_str(), "until": until.to_string() })
        }
        ListenEvent::Gap { known_until, from } => {
            json!({ "known_until": known_until.to_string(), "from": from.to_string() })
        }
        ListenEvent::Synchronised(report) => json!({ "in_step": report.in_step(), "report": report }),
        ListenEvent::VersionsFetched(report) => json!({ "report": report }),
        ListenEvent::HookFailed { cause, retry_in } | ListenEvent::SyncFailed { cause, retry_in } => {
            json!({ "cause": cause, "retry_in_seconds": retry_in.as_secs() })
        }
        ListenEvent::Stopped { cause } => json!({ "cause": cause }),
        _ => Value::Null,
    };
    let mut object = json!({ "event": event.kind() });
    for (name, value) in details.as_object().into_iter().flatten() {
        object[name] = value.clone();
    }
    object["directory"] = json!(directory.to_string_lossy());
    object
}

/// The outcome of one resource, unless it did not change.
pub(crate) fn outcome(event: ResourceEvent<'_>) -> Option<String> {
    // No name can imitate another line.
    let uri = event.uri.replace(char::is_control, " ");
    match event.outcome {
        Ok(Outcome::Unchanged) => None,
        Ok(outcome) => Some(format!("{} {uri}", outcome.name())),
        Err(failure) => Some(format!("failed {uri}: {}", failure.cause)),
    }
}

/// The same as one JSON object.
pub(crate) fn outcome_json(event: ResourceEvent<'_>) -> Option<String> {
    let uri = event.uri;
    let object = match event.outcome {
        Ok(Outcome::Unchanged) => return None,
        Ok(outcome) => json!({ "outcome": outcome.name(), "uri": uri }),
        Err(Failure { kind, status, cause, .. }) => {
            json!({ "outcome": "failed", "uri": uri, "kind": kind, "status": status, "cause": cause })
        }
    };
    Some(object.to_string())
}

/// A line that scripts may wait for; its beginning says whether the copy is in step.
pub(crate) fn report(report: &Report) -> String {
    let Report { resources, created, updated, deleted, not_deleted, failed, .. } = report;
    let stuck = if *not_deleted > 0 {
        format!(", {} cannot be removed", counted(*not_deleted, "file", "files"))
    } else {
        String::new()
    };
    let all = match (report.in_copy, report.method) {
        (None, Method::Incremental) => counted(*resources, "changed resource", "changed resources"),
        (in_copy, _) => counted(in_copy.unwrap_or(*resources), "resource", "resources"),
    };
    let all = as_of(all, report.at);
    let done = format!("({created} created, {updated} updated, {deleted} deleted)");
    let mut lines = vec![if report.in_step() {
        format!("in step: {all} {done}")
    } else if failed + not_deleted == 0 && report.unproven.is_some() {
        format!("unproven: {all} {done}")
    } else if report.at.is_some() && report.unproven.is_some() {
        format!("unproven: {failed} of {all} failed{stuck} {done}")
    } else {
        format!("not in step: {failed} of {all} failed{stuck} {done}")
    }];
    lines.extend(failures(&report.failures, &report.causes, failed + not_deleted));
    let deleted = match report.method {
        Method::Baseline => "nothing was deleted",
        Method::Incremental => "nothing was deleted except listed deletions",
    };
    lines.extend(report.deletion_skipped.iter().map(|why| format!("  {deleted}: {why}")));
    lines.extend(report.unproven.iter().map(|why| format!("  unproven: {why}")));
    lines.extend(gaps(&report.gaps));
    lines.extend(report.versions.as_deref().map(versions));
    lines.join("\n")
}

/// What became of versions that are kept beside a copy.
pub(crate) fn versions(report: &VersionsReport) -> String {
    let VersionsReport { kept, waiting, failed, lost, .. } = report;
    let others = [(waiting, "waiting"), (failed, "failed"), (lost, "lost")].into_iter();
    let others = others.filter(|(count, _)| **count > 0).map(|(count, what)| format!(", {count} {what}"));
    let mut lines = vec![format!("  versions: {kept} kept{}", others.collect::<String>())];
    lines.extend(failures(&report.failures, &report.causes, failed + lost));
    lines.extend(report.unproven.iter().map(|why| format!("  versions may be missing: {why}")));
    lines.join("\n")
}

/// What there was at a moment, or is.
fn as_of(text: String, moment: Option<DateTime>) -> String {
    match moment {
        Some(moment) => format!("{text} as of {moment}"),
        None => text,
    }
}

/// Behind the report of a dry run with `--delete`.
pub(crate) fn needs_adoption(count: u64) -> String {
    let files = if count == 1 { "1 file was" } else { &format!("{count} files were") };
    format!(
        "\n  {files} here before the copy, so without --dry-run this needs --adopt; without it, nothing is done"
    )
}

/// A line for each failure, but one for many of the same cause.
fn failures(failures: &[Failure], causes: &[Cause], all: u64) -> Vec<String> {
    let common: Vec<&Cause> = causes.iter().filter(|cause| cause.count > FEW).collect();
    let is_alone = |failure: &&Failure| !common.iter().any(|cause| cause.explains(failure));
    let alone: Vec<&Failure> = failures.iter().filter(is_alone).collect();
    let mut named = alone.len() as u64;
    let mut lines = Vec::new();
    for Cause { cause, count, loc, .. } in common {
        named += count;
        lines.push(format!("  {}, such as {loc}: {cause}", counted(*count, "resource", "resources")));
    }
    lines.extend(alone.iter().map(|failure| format!("  {}: {}", failure.loc, failure.cause)));
    let rest = all.saturating_sub(named);
    lines.extend((failures.len() >= FAILURES_KEPT && rest > 0).then(|| format!("  and {rest} more")));
    lines
}

/// How many surplus files are not listed.
fn more(named: usize, all: u64) -> Option<String> {
    let rest = all.saturating_sub(named as u64);
    (named >= FAILURES_KEPT && rest > 0).then(|| format!("  and {rest} more"))
}

/// A hint about a Source with recurrent gaps.
fn gaps(gaps: &GapHistory) -> Option<String> {
    let Gap { known_until, from } = gaps.last.filter(|_| gaps.are_recurrent())?;
    let count = counted(gaps.count, "gap", "gaps");
    Some(format!(
        "  the Source's Change Lists had {count}, the last from {known_until} to {from}; its Resource List, which closes \
         them, is read once an hour"
    ))
}

pub(crate) fn audit(report: &AuditReport) -> String {
    let AuditReport { resources, same, missing, stale, corrupt, unverifiable, extra, failed, .. } = report;
    let verdict = match report.verdict {
        Verdict::InStep => "in step",
        Verdict::Unproven => "unproven",
        Verdict::NotInStep => "not in step",
    };
    let mut lines = vec![format!(
        "{verdict}: {} ({same} same, {missing} missing, {stale} stale, {corrupt} corrupt, {failed} failed, \
         {unverifiable} unverifiable), {}",
        as_of(counted(*resources, "resource", "resources"), report.at),
        counted(*extra, "extra file", "extra files"),
    )];
    lines.extend(failures(&report.findings, &report.causes, missing + report.different + failed));
    lines.extend(report.extra_files.iter().map(|file| format!("  extra file {file}")));
    lines.extend(more(report.extra_files.len(), *extra));
    let earlier = Some(report.earlier_files).filter(|count| *count > 0);
    lines.extend(
        earlier.map(|count| format!("  here before the copy, and kept until `sync --adopt`: {count}")),
    );
    let is_surplus = *extra > report.earlier_files;
    lines.extend(
        is_surplus.then(|| "  `sync --delete` removes extra files that are no longer listed".to_owned()),
    );
    lines.extend(report.unproven.iter().map(|why| format!("  unproven: {why}")));
    lines.join("\n")
}

pub(crate) fn status(status: &Status) -> String {
    let mut lines = vec![running(status).to_owned()];
    lines.extend(status.subscriptions.iter().map(|one| subscription(one, status.is_running)));
    let next = if status.is_running { "; it is tried again" } else { "" };
    let not_subscribed = status.not_subscribed.iter();
    lines.extend(not_subscribed.map(|(topic, cause)| format!("not subscribed to {topic}: {cause}{next}")));
    lines.extend(status.at.map(|moment| format!("a copy of the Source as it was at {moment}")));
    lines.push(match &status.last_sync {
        Some(last @ LastSync { failed: Some(cause), .. }) => {
            format!("last synchronisation {}: failed: {cause}", time(last))
        }
        Some(last) => format!("last synchronisation {}: {}", time(last), report(&last.report)),
        None if status.has_copy => "not synchronised yet".to_owned(),
        None => "no copy is kept: notifications are only forwarded".to_owned(),
    });
    lines.join("\n")
}

/// Whether a process is at work, and what to do if it should be.
fn running(status: &Status) -> &'static str {
    let is_over = |one: &Subscription| matches!(one.phase, Phase::Ended | Phase::Denied { .. });
    let should_run = !status.subscriptions.iter().all(is_over) || !status.not_subscribed.is_empty();
    match (status.is_running, status.is_synchronising) {
        (true, _) => "running: a process uses this state",
        (false, true) => "running: a synchronisation is in progress",
        (false, false) if should_run => {
            "not running: no notification is received; start `listen` or `subscribe` again, which also renews the leases"
        }
        (false, false) => "not running",
    }
}

fn subscription(subscription: &Subscription, is_running: bool) -> String {
    let phase = match (&subscription.phase, is_running) {
        (Phase::Pending, true) => "pending: the hub has not confirmed it yet".to_owned(),
        (Phase::Pending, false) => "not subscribed: the hub never confirmed it".to_owned(),
        (Phase::Active { expires }, true) => format!("active until {expires}"),
        (Phase::Renewing { expires }, true) => format!("active until {expires}, renewal asked for"),
        (Phase::Active { expires } | Phase::Renewing { expires }, false) => {
            format!("not received: the lease ends at {expires}, and until then the hub tries to deliver")
        }
        (Phase::Expired { since }, true) => {
            format!("lease ended at {since}: the hub sends nothing; a new lease was asked for")
        }
        (Phase::Expired { since }, false) => format!("lease ended at {since}: the hub sends nothing"),
        (Phase::Ended, _) => "ended".to_owned(),
        (Phase::Denied { reason }, _) => format!("denied by the hub: {reason}"),
    };
    let last = subscription.last.map_or_else(|| "none yet".to_owned(), |id| id.to_string());
    format!("{} at {}\n  {phase}\n  last notification {last}", subscription.topic.as_str(), subscription.hub)
}

fn time(last: &LastSync) -> String {
    DateTime::from_unix_millis(last.at_unix_millis)
        .map_or_else(|_| "at an unknown time".to_owned(), |at| at.to_string())
}

pub(crate) fn status_json(status: &Status) -> Value {
    let subscriptions = status.subscriptions.iter();
    let not_subscribed = status.not_subscribed.iter();
    json!({
        "running": status.is_running,
        "synchronising": status.is_synchronising,
        "at": status.at.map(|moment| moment.to_string()),
        "subscriptions": subscriptions.map(|one| subscription_json(one, status.is_running)).collect::<Vec<_>>(),
        "not_subscribed": not_subscribed.map(|(topic, cause)| json!({ "topic": topic, "cause": cause })).collect::<Vec<_>>(),
        "last_sync": status.last_sync.as_ref().map(|last| json!({ "at": time(last), "in_step": last.in_step(), "failed": last.failed, "report": last.report })),
    })
}

fn subscription_json(subscription: &Subscription, is_running: bool) -> Value {
    let (phase, expires, reason) = match &subscription.phase {
        Phase::Pending => ("pending", None, None),
        Phase::Active { expires } => ("active", Some(expires.to_string()), None),
        Phase::Renewing { expires } => ("renewing", Some(expires.to_string()), None),
        Phase::Expired { since } => ("expired", Some(since.to_string()), None),
        Phase::Ended => ("ended", None, None),
        Phase::Denied { reason } => ("denied", None, Some(reason)),
    };
    json!({
        "topic": subscription.topic.as_str(),
        "hub": subscription.hub,
        "phase": phase,
        "receiving": is_running && subscription.phase.is_active(),
        "expires": expires,
        "reason": reason,
        "lease_seconds": subscription.lease_seconds,
        "callback_origin": subscription.callback_origin,
        "last_notification": subscription.last.map(|id| id.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use resync_core::websub::key::TopicUrl;
    use resync_subscriber_kit::sync::FailureKind;

    use super::*;

    #[test]
    fn what_a_report_has_no_room_for_is_told_by_its_number() {
        let (kind, status) = (FailureKind::Missing, None);
        let (loc, cause) = ("http://source.example/a".to_owned(), "missing".to_owned());
        let finding = || Failure { loc: loc.clone(), kind, status, cause: cause.clone() };
        let object = |missing: u64, named: usize| {
            let findings = (0..named).map(|_| finding()).collect();
            let extra_files = (0..named).map(|number| number.to_string()).collect();
            audit(&AuditReport { missing, extra: missing, findings, extra_files, ..AuditReport::default() })
        };
        assert_eq!(object(130, FAILURES_KEPT).matches("  and 30 more").count(), 2);
        assert!(!object(100, FAILURES_KEPT).contains("more"));
        assert!(object(1, 1).contains("\n  `sync --delete` removes extra files"));
        let mut full = Report::default();
        full.failed = 103;
        full.failures = (0..FAILURES_KEPT).map(|_| finding()).collect();
        assert!(report(&full).contains("\n  and 3 more"));
    }

    #[test]
    fn a_report_of_changes_says_what_changed_and_how_many_resources_there_are() {
        let mut changes = Report::default();
        (changes.method, changes.in_copy) = (Method::Incremental, Some(30));
        (changes.resources, changes.updated) = (1, 1);
        assert_eq!(report(&changes), "in step: 30 resources (0 created, 1 updated, 0 deleted)");
        changes.failed = 1;
        assert!(report(&changes).starts_with("not in step: 1 of 30 resources failed "));
        (changes.failed, changes.in_copy) = (0, None);
        assert_eq!(report(&changes), "in step: 1 changed resource (0 created, 1 updated, 0 deleted)");
    }

    #[test]
    fn mem062_what_cannot_be_had_as_it_was_leaves_a_copy_of_the_past_unproven() {
        let mut past = Report::default();
        (past.at, past.resources) = ("2026-03-01".parse().ok(), 3);
        assert_eq!(
            report(&past),
            "in step: 3 resources as of 2026-03-01T00:00:00Z (0 created, 0 updated, 0 deleted)"
        );
        (past.failed, past.unproven) = (1, Some("1 resource cannot be had".to_owned()));
        let said = report(&past);
        assert!(said.starts_with("unproven: 1 of 3 resources as of 2026-03-01T00:00:00Z failed "), "{said}");
    }

    #[test]
    fn no_name_makes_a_line_that_looks_like_another_one() {
        let event =
            ResourceEvent { uri: "http://source.example/a\ndeleted b", outcome: Ok(Outcome::Created) };
        assert_eq!(outcome(event).unwrap(), "created http://source.example/a deleted b");
        assert_eq!(outcome(ResourceEvent { outcome: Ok(Outcome::Unchanged), ..event }), None);
    }

    #[test]
    fn a_body_that_is_no_text_is_told_whole() {
        let object = |body: &[u8]| {
            let topic = TopicUrl::parse("http://source.example/topic").unwrap();
            let body = body.to_vec();
            forward_event_json(ForwardEvent::Notification {
                id: None,
                topic,
                content_type: None,
                body,
                skipped: 0,
            })
        };
        let (text, other) = (object(b"news"), object(b"\xff\x00"));
        assert_eq!((&text["body"], &text["body_base64"]), (&json!("news"), &Value::Null));
        assert_eq!((&other["body"], &other["body_base64"]), (&Value::Null, &json!("/wA=")));
    }
}
