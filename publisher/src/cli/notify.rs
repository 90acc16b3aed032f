//! `notify`: notifies the hubs of all sets, tries again as long as requested, and reports.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use resync_common::{
    backoff::Backoff,
    output::{complain, note, say, warn},
    words::Lasting,
};
use resync_publisher::{
    Error, HubUrl,
    notify::{self, HubReport, Outcome, Token, notify, tokens_for},
    state::State,
    status,
    status::{HubStatus, Status},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    Failure,
    arguments::{Hints, NotifyArgs, TokenArgs},
    failed_set, json, print_json, sets, text, tokens,
};

/// The pauses between attempts double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(300);

pub(super) async fn run(arguments: &NotifyArgs) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    tokens::check_for_notify(&arguments.out, &arguments.token.tokens.token, &arguments.token.drop_hub)?;
    if let Some(number) = arguments.skip {
        skip_refused(&outs, number)?;
    }
    let drops = &arguments.token.drop_hub;
    let dropped = drop_hubs(&outs, drops, "dropped");
    // What other sets dropped is still to be notified.
    if dropped.as_ref().is_err_and(|failure| !matches!(failure, Failure::Sets { .. })) {
        return dropped;
    }
    warn_of_hubs_on_hold(&outs, drops, &arguments.out.hints());
    let (statuses, failed) = sets::each(&outs, status);
    if !drops.is_empty() && failed.is_empty() && !statuses.iter().any(has_hub_to_notify) {
        if arguments.out.json {
            print_json(&json!({ "hubs": [], "notify_failures": [] }))?;
        }
        return dropped;
    }
    let notify_report = notify_all(&outs, &arguments.token).await;
    if arguments.out.json {
        let object = notify_report.json().into_iter().map(|(key, values)| (key.to_owned(), json!(values)));
        print_json(&Value::Object(object.collect()))?;
    } else {
        for (name, line) in notify_report.lines() {
            say(text::of_set(name, &line));
        }
    }
    notify_report.outcome.and(dropped)
}

/// Omits a Change Notification for the hubs that have refused it.
fn skip_refused(outs: &[PathBuf], number: u64) -> Result<(), Failure> {
    let (skipped, failed) = sets::each(outs, |out| notify::skip(out, number));
    let hubs = skipped.concat();
    for hub in &hubs {
        note(format_args!("skipped Change Notification {number} for {hub}"));
    }
    if !hubs.is_empty() {
        return Ok(());
    }
    sets::outcome(failed, outs.len(), "cannot be read").and(Err(Failure::NotRefused(number)))
}

/// Drops hubs from the sets that no longer name them, and says so: `dropped`, or that it would. Nothing is left of a hub that was never notified, or was
/// dropped before. A hub that cannot be dropped does not keep others; the first failure is the outcome.
pub(super) fn drop_hubs(outs: &[PathBuf], hubs: &[HubUrl], verb: &str) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for hub in hubs {
        match (&outcome, drop_hub(outs, hub, verb)) {
            (Err(_), Err(next)) => complain(next),
            (Ok(()), next) => outcome = next,
            (Err(_), Ok(())) => {}
        }
    }
    outcome
}

/// Drops a hub from all sets. A set that fails does not keep the others from it.
fn drop_hub(outs: &[PathBuf], hub: &HubUrl, verb: &str) -> Result<(), Failure> {
    let (dropped, failed) = sets::each(outs, |out| notify::drop_hub(out, hub));
    let discarded: Vec<_> = dropped.into_iter().flatten().collect();
    if discarded.is_empty() && failed.is_empty() {
        warn(format_args!(
            "{hub} is not a hub of this site, so there is nothing to drop; see `resync-source status`"
        ));
    }
    if !discarded.is_empty() {
        let waiting = match discarded.iter().sum::<u64>() {
            0 => String::new(),
            number => format!(", and {}", text::count(number, "waiting Change Notification")),
        };
        note(format_args!("{verb} {hub}{waiting}"));
    }
    sets::outcome(failed, outs.len(), "could not drop a hub")
}

/// Whether a set has a hub that may be notified.
pub(super) fn has_hub_to_notify(status: &Status) -> bool {
    status.hubs.iter().any(|hub| !hub.on_hold)
}

/// Says which hubs are no longer named, and not dropped either.
pub(super) fn warn_of_hubs_on_hold(outs: &[PathBuf], drops: &[HubUrl], hints: &Hints) {
    let is_dropped = |hub: &HubStatus| drops.iter().any(|drop| drop.as_str() == hub.url);
    for out in outs {
        let hubs = status(out).map_or(Vec::new(), |status| status.hubs);
        for hub in hubs.iter().filter(|hub| hub.on_hold && !is_dropped(hub)) {
            let line = format!("{}: {}", hub.url, text::on_hold(hub, hints));
            warn(text::of_set(sets::name_in(outs, out).as_deref(), &line));
        }
    }
}

/// Says of which of these hubs, which flags have replaced, nothing is left, unless they are to be dropped.
pub(super) fn warn_of_replaced_hubs(out: &Path, replaced: &[HubUrl], drops: &[HubUrl]) {
    let known = status(out).map_or(Vec::new(), |status| status.hubs);
    let is_unknown = |hub: &HubUrl| known.iter().all(|known| known.url != hub.as_str());
    for hub in replaced.iter().filter(|hub| is_unknown(hub) && !drops.contains(hub)) {
        warn(format_args!(
            "{hub}: no longer a hub of this site, and never notified; name it again with --hub if it should be"
        ));
    }
}

/// What came of notifying the hubs of all sets.
pub(super) struct NotifyReport {
    /// The hubs of each set, with its name if there are several.
    reports: Vec<(Option<String>, Vec<HubReport>)>,
    /// The sets whose hubs could not be notified for another reason.
    failures: Vec<Value>,
    /// Whether the reports have been printed.
    is_printed: bool,
    /// The outcome of the command.
    pub(super) outcome: Result<(), Failure>,
}

impl NotifyReport {
    /// No hub was notified.
    fn none(failure: Failure) -> Self {
        Self { reports: Vec::new(), failures: Vec::new(), is_printed: false, outcome: Err(failure) }
    }

    /// The reports of each set, unless they have been printed.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (Option<&str>, String)> {
        let reports = self.reports.iter().filter(|_| !self.is_printed);
        reports.map(|(name, hubs)| (name.as_deref(), text::reports(hubs)))
    }

    /// Without the sets that had nothing new for any hub.
    pub(crate) fn only_changes(mut self) -> Self {
        self.reports.retain(|(_, hubs)| {
            hubs.iter().any(|hub| !matches!(hub.outcome, Outcome::NothingChanged) || hub.sent > 0)
        });
        self
    }

    /// With what came of notifying the same sets again.
    pub(crate) fn then(self, mut next: Self) -> Self {
        next.reports.splice(0..0, self.reports);
        next
    }

    /// In JSON.
    pub(crate) fn json(&self) -> [(&'static str, Vec<Value>); 2] {
        let hubs = self
            .reports
            .iter()
            .flat_map(|(name, hubs)| hubs.iter().map(|report| json::hub(name.as_deref(), report)));
        [("hubs", hubs.collect()), ("notify_failures", self.failures.clone())]
    }
}

/// Notifies the hubs of the sets in `outs`. Prints failures.
pub(super) async fn notify_all(outs: &[PathBuf], token: &TokenArgs) -> NotifyReport {
    let tokens = match tokens_for(outs, &token.tokens.token) {
        Ok(tokens) => tokens,
        Err(error) => return NotifyReport::none(error.into()),
    };
    let begun = Instant::now();
    let mut pauses = Backoff::new(FIRST_PAUSE, LAST_PAUSE).exact();
    loop {
        let Attempt { reports, failures } = attempt(outs, &tokens).await;
        let hubs = || reports.iter().flat_map(|(_, hubs)| hubs);
        let of_failed = || hubs().filter(|report| matches!(report.outcome, Outcome::Failed(_)));
        let (all, failed) = (hubs().count(), of_failed().count());
        // All are tried at once: as soon as the first of them may be.
        let asked = of_failed().map(|report| report.retry_after().unwrap_or_default()).min();
        let pause = pauses.after_failure().max(asked.unwrap_or_default());
        let is_over = failed == 0 || begun.elapsed() + pause > token.retry;
        if failed > 0 {
            for (name, hubs) in &reports {
                complain(text::of_set(name.as_deref(), &text::reports(hubs)));
            }
        }
        if !is_over {
            note(format_args!("trying again in {}", Lasting(pause)));
            tokio::time::sleep(pause).await;
            continue;
        }
        let of_hubs = if failed > 0 { Err(Failure::Hubs { failed, all }) } else { Ok(()) };
        return NotifyReport {
            is_printed: failed > 0,
            failures: failures.iter().map(|(name, failure)| failed_set(name.as_deref(), failure)).collect(),
            outcome: sets::outcome(failures, outs.len(), "could not be announced to hubs").and(of_hubs),
            reports,
        };
    }
}

/// What came of one attempt, with the names of the sets if there are several.
struct Attempt {
    reports: Vec<(Option<String>, Vec<HubReport>)>,
    failures: Vec<(Option<String>, Failure)>,
}

/// Notifies the hubs of all sets at once. A set that fails, or whose hub is slow, does not affect others.
async fn attempt(outs: &[PathBuf], tokens: &[Token]) -> Attempt {
    let is_retired = |out: &PathBuf| State::load(out).is_ok_and(|state| state.retired.is_some());
    let (retired, staying): (Vec<_>, Vec<_>) =
        outs.iter().cloned().enumerate().partition(|(_, out)| is_retired(out));
    let mut all = BTreeMap::new();
    // The hubs of retired sets come last: the others update the Source Description, which no longer lists these.
    for sets in [staying, retired] {
        let mut notifying = JoinSet::new();
        for (position, out) in sets {
            let tokens = tokens.to_vec();
            notifying.spawn(async move { (position, notify(&out, &tokens).await) });
        }
        all.extend(notifying.join_all().await);
    }
    let (mut reports, mut failures, mut without) = (Vec::new(), Vec::new(), None);
    for (out, notified) in outs.iter().zip(all.into_values()) {
        let name = sets::name_in(outs, out);
        match notified {
            Ok(hubs) => reports.push((name, hubs)),
            Err(error @ Error::NoHub { .. }) => without = Some((name, error.into())),
            Err(error) => failures.push((name, error.into())),
        }
    }
    if reports.is_empty() && failures.is_empty() {
        failures.extend(without);
    }
    Attempt { reports, failures }
}
