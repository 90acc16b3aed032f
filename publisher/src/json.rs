//! What a run did, for a script: one object on stdout, and while watching one a line. Later versions only add keys.

use resync_core::document::FrameworkChange;
use resync_publisher::{
    notify::{Outcome, Told},
    publish::{Besides, Built, Dumped, Undone, Written},
    watch::Report,
};
use serde_json::{Value, json};

/// What a build of a set did.
pub(crate) fn built(name: Option<&str>, built: &Built) -> Value {
    let skipped = built.skipped.iter().map(|one| json!({"path": one.path, "reason": one.reason.to_string()}));
    let unportable =
        built.unportable.iter().map(|one| json!({"path": one.path, "cause": one.cause.to_string()}));
    json!({
        "set": name,
        "resources": built.resources,
        "bytes": built.bytes,
        "reads": built.reads,
        "created": built.changes.created,
        "updated": built.changes.updated,
        "deleted": built.changes.deleted,
        "written": documents(&built.written),
        "kept": built.kept,
        "skipped": skipped.collect::<Vec<_>>(),
        "unportable": unportable.collect::<Vec<_>>(),
        "undone": undone(&built.undone),
        "source_description": built.source_description,
    })
}

/// Adds what was made of a set after its build.
pub(crate) fn add(set: &mut Value, besides: &Besides) {
    for (key, more) in [("written", documents(&besides.written)), ("undone", undone(&besides.undone))] {
        if let Some(values) = set[key].as_array_mut() {
            values.retain(|known| !more.contains(known));
            values.extend(more);
        }
    }
}

/// What a dump of a set holds.
pub(crate) fn dumped(name: Option<&str>, dumped: &Dumped) -> Value {
    json!({
        "set": name,
        "packages": dumped.packages,
        "gone": dumped.gone,
        "written": documents(&dumped.written),
    })
}

/// What came of telling a hub of a set.
pub(crate) fn told(name: Option<&str>, told: &Told) -> Value {
    let (outcome, status, reason) = match &told.outcome {
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
        "hub": told.hub.as_str(),
        "leaving": told.leaving,
        "outcome": outcome,
        "status": status,
        "reason": reason,
        "sent": told.sent,
        "waiting": told.waiting,
        "changes": told.changes.iter().map(change).collect::<Vec<_>>(),
    })
}

/// What happened while watching a set; nothing of a build that wrote nothing.
pub(crate) fn watched(name: Option<&str>, report: &Report) -> Option<Value> {
    Some(match report {
        Report::Blind(out, reason) => json!({"out": out, "blind": reason}),
        Report::Built(_, one) if one.written.is_empty() => return None,
        Report::Built(out, one) => json!({"out": out, "built": built(name, one)}),
        Report::Dumped(_, besides) if besides.written.is_empty() && besides.undone.is_empty() => return None,
        Report::Dumped(out, besides) => {
            let dumps = json!({"set": name, "written": documents(&besides.written), "undone": undone(&besides.undone)});
            json!({"out": out, "dumps": [dumps]})
        }
        Report::NotBuilt(out, error) => json!({"out": out, "error": error.to_string()}),
        Report::Told(out, hub) => json!({"out": out, "hubs": [told(name, hub)]}),
        Report::NotTold(out, error) => json!({"out": out, "error": error.to_string()}),
        _ => return None,
    })
}

fn undone(undone: &[Undone]) -> Vec<Value> {
    undone.iter().map(|undone| json!(undone.to_string())).collect()
}

fn documents(written: &[Written]) -> Vec<Value> {
    let document =
        |one: &Written| json!({"capability": one.capability.token(), "url": one.url, "index": one.is_index});
    written.iter().map(document).collect()
}
