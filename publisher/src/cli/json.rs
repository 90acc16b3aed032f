//! Results in JSON: one object on stdout, or one per line from a watch. Later versions only add keys.

use resync_core::document::FrameworkChange;
use resync_publisher::{
    notify::{HubReport, Outcome},
    publish::{Built, Dumped, MaintenanceFailure, MaintenanceReport, Written},
    watch::Report,
};
use serde_json::{Value, json};

/// What a build of a set did.
pub(super) fn built(name: Option<&str>, built: &Built) -> Value {
    // A name that is no UTF-8 has no other form in JSON.
    let skipped = built
        .skipped
        .iter()
        .map(|one| json!({"path": one.path.to_string_lossy(), "reason": one.reason.to_string()}));
    let unportable = built
        .unportable
        .iter()
        .map(|one| json!({"path": one.path.to_string_lossy(), "cause": one.cause.to_string()}));
    json!({
        "set": name,
        "resources": built.resources,
        "bytes": built.bytes,
        "reads": built.reads,
        "created": built.changes.created,
        "updated": built.changes.updated,
        "deleted": built.changes.deleted,
        "written": documents(&built.written),
        "unchanged": built.unchanged,
        "skipped": skipped.collect::<Vec<_>>(),
        "unportable": unportable.collect::<Vec<_>>(),
        "maintenance_failures": failures(&built.failures),
        "versions_left_out": built.unkept.changed + built.unkept.failed,
        "dump_is_due": built.dump_is_due,
        "source_description": built.source_description,
    })
}

/// Adds the dumps of a set that were made after its build.
pub(super) fn add(set: &mut Value, maintenance: &MaintenanceReport) {
    for (key, more) in [
        ("written", documents(&maintenance.written)),
        ("maintenance_failures", failures(&maintenance.failures)),
    ] {
        if let Some(values) = set[key].as_array_mut() {
            values.retain(|known| !more.contains(known));
            values.extend(more);
        }
    }
    if maintenance.failures.is_empty() {
        set["dump_is_due"] = json!(false);
    }
}

/// What a dump of a set holds.
pub(super) fn dumped(name: Option<&str>, dumped: &Dumped) -> Value {
    json!({
        "set": name,
        "packages": dumped.packages,
        "gone": dumped.gone,
        "written": documents(&dumped.written),
    })
}

/// What came of notifying a hub of a set.
pub(super) fn hub(name: Option<&str>, report: &HubReport) -> Value {
    let (outcome, status, reason) = match &report.outcome {
        Outcome::NothingChanged => ("nothing changed", None, None),
        Outcome::Accepted { status } => ("accepted", Some(*status), None),
        Outcome::Failed(error) => ("failed", None, Some(error.to_string())),
    };
    let change = |change: &FrameworkChange| {
        json!({
            "change": change.change.to_string(),
            "capability": change.capability.token(),
            "url": change.loc,
        })
    };
    json!({
        "set": name,
        "hub": report.hub.as_str(),
        "leaving": report.leaving,
        "outcome": outcome,
        "status": status,
        "reason": reason,
        "sent": report.sent,
        "waiting": report.waiting,
        "changes": report.changes.iter().map(change).collect::<Vec<_>>(),
    })
}

/// A report of a watch; `None` for a build that wrote nothing.
pub(super) fn watched(name: Option<&str>, report: &Report) -> Option<Value> {
    Some(match report {
        Report::EventsFailed(out, reason) => json!({"out": out, "events_failed": reason}),
        Report::Built(_, one) if one.written.is_empty() => return None,
        Report::Built(out, one) => json!({"out": out, "built": built(name, one)}),
        Report::Dumped(_, maintenance)
            if maintenance.written.is_empty() && maintenance.failures.is_empty() =>
        {
            return None;
        }
        Report::Dumped(out, maintenance) => {
            let dumps = json!({"set": name, "written": documents(&maintenance.written), "maintenance_failures": failures(&maintenance.failures)});
            json!({"out": out, "dumps": [dumps]})
        }
        Report::Notified(out, report) => json!({"out": out, "hubs": [hub(name, report)]}),
        Report::BuildFailed(out, error) | Report::NotifyFailed(out, error) => {
            json!({"out": out, "error": error.to_string()})
        }
        _ => return None,
    })
}

fn failures(failures: &[MaintenanceFailure]) -> Vec<Value> {
    failures.iter().map(|failure| json!(failure.to_string())).collect()
}

fn documents(written: &[Written]) -> Vec<Value> {
    let document =
        |one: &Written| json!({"capability": one.capability.token(), "url": one.url, "index": one.is_index});
    written.iter().map(document).collect()
}
