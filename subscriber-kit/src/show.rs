//! What the commands print, for people and as JSON.

use resync_core::websub::key::TopicUrl;
use resync_subscriber_kit::discover::{Channel, Set, Source};
use resync_subscriber_kit::state::{LastSync, Status};
use resync_subscriber_kit::subscription::{Phase, Subscription};
use resync_subscriber_kit::sync::{AuditReport, Report};
use serde_json::{Value, json};

use resync_core::datetime::DateTime;

pub(crate) fn source(source: &Source) -> String {
    let mut lines = vec![format!("Source {}", source.found_at)];
    if let Some(description) = &source.description {
        lines.push(format!("  Source Description {description}"));
    }
    for one in &source.sets {
        lines.push(format!("  set {}", one.name()));
        lines.extend(one.capabilities.iter().map(|(capability, url)| format!("    {capability} {url}")));
        if one.capability_list.is_none() {
            lines.extend(one.resource_list.iter().map(|url| format!("    resourcelist {url}")));
        }
        for channel in [&one.framework_channel, &one.change_channel].into_iter().flatten() {
            lines.extend(
                channel.hubs.iter().map(|hub| format!("      hub {hub} for {}", channel.topic.as_str())),
            );
        }
    }
    lines.extend(
        source.unreadable.iter().map(|set| format!("  cannot be read: {} ({})", set.url, set.reason)),
    );
    lines.join("\n")
}

pub(crate) fn source_json(source: &Source) -> Value {
    let unreadable = source.unreadable.iter();
    json!({
        "found_at": source.found_at.as_str(),
        "description": source.description.as_ref().map(url::Url::as_str),
        "sets": source.sets.iter().map(set_json).collect::<Vec<_>>(),
        "unreadable": unreadable.map(|one| json!({ "url": one.url.as_str(), "reason": one.reason })).collect::<Vec<_>>(),
    })
}

fn set_json(set: &Set) -> Value {
    let capabilities = set.capabilities.iter();
    json!({
        "name": set.name(),
        "capability_list": set.capability_list.as_ref().map(url::Url::as_str),
        "resource_list": set.resource_list.as_ref().map(url::Url::as_str),
        "described_by": set.described_by.as_ref().map(url::Url::as_str),
        "capabilities": capabilities.map(|(name, url)| json!({ "capability": name.token(), "url": url.as_str() })).collect::<Vec<_>>(),
        "framework_channel": set.framework_channel.as_ref().map(channel_json),
        "change_channel": set.change_channel.as_ref().map(channel_json),
    })
}

fn channel_json(channel: &Channel) -> Value {
    json!({
        "topic": channel.topic.as_str(),
        "hubs": channel.hubs.iter().map(url::Url::as_str).collect::<Vec<_>>(),
    })
}

/// A line that scripts may wait for.
pub(crate) fn subscribed(topic: &TopicUrl, until: DateTime) -> String {
    format!("subscribed to {} until {until}", topic.as_str())
}

/// A line that scripts may wait for; its beginning says whether all is well.
pub(crate) fn report(report: &Report) -> String {
    let Report { resources, created, updated, deleted, failed, .. } = report;
    if report.in_step() {
        return format!(
            "in step: {resources} resources ({created} created, {updated} updated, {deleted} deleted)"
        );
    }
    let mut lines = vec![format!(
        "not in step: {failed} of {resources} resources failed ({created} created, {updated} updated, {deleted} deleted)"
    )];
    lines.extend(report.failures.iter().map(|failure| format!("  {}: {}", failure.loc, failure.cause)));
    lines.extend(report.deletion_skipped.iter().map(|why| format!("  nothing was deleted: {why}")));
    lines.join("\n")
}

pub(crate) fn audit(report: &AuditReport) -> String {
    let AuditReport { resources, same, missing, different, unverifiable, extra, failed, .. } = report;
    let verdict = if report.in_step() { "in step" } else { "not in step" };
    let mut lines = vec![format!(
        "{verdict}: {resources} resources ({same} same, {missing} missing, {different} different, {failed} failed, \
         {unverifiable} unverifiable), {extra} extra files"
    )];
    lines.extend(report.findings.iter().map(|finding| format!("  {}: {}", finding.loc, finding.cause)));
    lines.extend(report.extra_files.iter().map(|file| format!("  extra file {file}")));
    lines.extend(report.uncertain.iter().map(|why| format!("  not certain: {why}")));
    lines.join("\n")
}

pub(crate) fn status(status: &Status) -> String {
    let mut lines: Vec<String> = status.subscriptions.iter().map(subscription).collect();
    lines.push(match &status.last_sync {
        Some(last) => format!("last synchronisation {}: {}", time(last), report(&last.report)),
        None => "not synchronised yet".to_owned(),
    });
    lines.join("\n")
}

fn subscription(subscription: &Subscription) -> String {
    let phase = match &subscription.phase {
        Phase::Pending => "pending".to_owned(),
        Phase::Active { expires } => format!("active until {expires}"),
        Phase::Renewing { expires } => format!("active until {expires}, renewal asked for"),
        Phase::Ended => "ended".to_owned(),
        Phase::Denied { reason } => format!("denied by the hub: {reason}"),
    };
    let last = subscription.last.map_or_else(|| "none yet".to_owned(), |id| id.to_string());
    format!("{} at {}\n  {phase}\n  last notification {last}", subscription.topic.as_str(), subscription.hub)
}

fn time(last: &LastSync) -> String {
    DateTime::from_unix_millis(last.at_unix_millis)
        .map_or_else(|_| "at an unknown time".to_owned(), |at| at.to_string())
}

pub(crate) fn status_json(status: &Status) -> Value {
    json!({
        "subscriptions": status.subscriptions.iter().map(subscription_json).collect::<Vec<_>>(),
        "last_sync": status.last_sync.as_ref().map(|last| json!({ "at": time(last), "in_step": last.report.in_step(), "report": last.report })),
    })
}

fn subscription_json(subscription: &Subscription) -> Value {
    let (phase, expires, reason) = match &subscription.phase {
        Phase::Pending => ("pending", None, None),
        Phase::Active { expires } => ("active", Some(expires.to_string()), None),
        Phase::Renewing { expires } => ("renewing", Some(expires.to_string()), None),
        Phase::Ended => ("ended", None, None),
        Phase::Denied { reason } => ("denied", None, Some(reason)),
    };
    json!({
        "topic": subscription.topic.as_str(),
        "hub": subscription.hub,
        "phase": phase,
        "expires": expires,
        "reason": reason,
        "lease_seconds": subscription.lease_seconds,
        "callback_origin": subscription.callback_origin,
        "last_notification": subscription.last.map(|id| id.to_string()),
    })
}
