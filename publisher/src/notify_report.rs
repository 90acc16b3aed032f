//! Telling the hubs of all sets, for as long as that is to be tried, and what came of it in words.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use resync_publisher::{
    notify,
    notify::{HubReport, NotifyError, Outcome, Token, tokens_for},
    state::State,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    cli::{Failure, TokenArgs},
    sets, words,
};

/// The pauses between attempts to tell a hub double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(300);

/// What came of it.
pub(crate) struct NotifyReport {
    /// The name of each set that has hubs, where there are several, and what these said.
    reports: Vec<(Option<String>, Vec<HubReport>)>,
    /// The sets of whose hubs none could be told.
    failures: Vec<Value>,
    /// Whether the user knows what the hubs said.
    is_said: bool,
    /// What the command ends with.
    pub(crate) outcome: Result<(), Failure>,
}

impl NotifyReport {
    /// Nobody was told.
    fn none(failure: Failure) -> Self {
        Self { reports: Vec::new(), failures: Vec::new(), is_said: false, outcome: Err(failure) }
    }

    /// What the hubs of each set said, unless it has been said.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (Option<&str>, String)> {
        let unsaid = self.reports.iter().filter(|_| !self.is_said);
        unsaid.map(|(name, hubs)| (name.as_deref(), words::reports(hubs)))
    }

    /// Without the sets of which nobody had anything to hear.
    pub(crate) fn only_changes(mut self) -> Self {
        self.reports.retain(|(_, hubs)| {
            hubs.iter().any(|reports| !matches!(reports.outcome, Outcome::NothingChanged) || reports.sent > 0)
        });
        self
    }

    /// With what came of telling the same sets again, which tells what could not be told before.
    pub(crate) fn then(self, mut next: Self) -> Self {
        next.reports.splice(0..0, self.reports);
        next
    }

    /// The same for a script.
    pub(crate) fn json(&self) -> [(&'static str, Vec<Value>); 2] {
        let hubs = self.reports.iter().flat_map(|(name, hubs)| {
            hubs.iter().map(|reports| crate::json::reports(name.as_deref(), reports))
        });
        [("hubs", hubs.collect()), ("notify_failures", self.failures.clone())]
    }
}

/// Tells the hubs of the sets in `outs`. Those that could not be told have been named on stderr when this is ready.
pub(crate) async fn notify_all(outs: &[PathBuf], token: &TokenArgs) -> NotifyReport {
    let tokens = match tokens_for(outs, &token.tokens.token) {
        Ok(tokens) => tokens,
        Err(error) => return NotifyReport::none(error.into()),
    };
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let (reports, failures) = tell(outs, &tokens).await;
        let hubs = || reports.iter().flat_map(|(_, hubs)| hubs);
        let (all, failed) =
            (hubs().count(), hubs().filter(|reports| matches!(reports.outcome, Outcome::Failed(_))).count());
        let is_over = failed == 0 || begun.elapsed() + pause > token.retry;
        if failed > 0 {
            for (name, hubs) in &reports {
                eprintln!("{}", words::of_set(name.as_deref(), &words::reports(hubs)));
            }
        }
        if !is_over {
            eprintln!("trying again in {} s", pause.as_secs());
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            continue;
        }
        let of_hubs = if failed > 0 { Err(Failure::Hubs { failed, all }) } else { Ok(()) };
        return NotifyReport {
            is_said: failed > 0,
            failures: failures
                .iter()
                .map(|(name, failure)| json!({ "set": name, "error": failure.to_string() }))
                .collect(),
            outcome: sets::outcome(failures, outs.len(), "could not be announced to hubs").and(of_hubs),
            reports,
        };
    }
}

type Tried = (Vec<(Option<String>, Vec<HubReport>)>, Vec<(Option<String>, Failure)>);

/// Tells the hubs of each set that has any, all at once. A set whose hubs cannot be told keeps no other from it, nor does one whose hub is slow.
async fn tell(outs: &[PathBuf], tokens: &[Token]) -> Tried {
    let has_left = |out: &PathBuf| State::load(out).is_ok_and(|state| state.left.is_some());
    let (left, staying): (Vec<_>, Vec<_>) =
        outs.iter().cloned().enumerate().partition(|(_, out)| has_left(out));
    let mut all = BTreeMap::new();
    // The hubs of a set that has left hear so when the Source Description, which the others bring in step, leads there no more.
    for sets in [staying, left] {
        let mut notify_report = JoinSet::new();
        for (position, out) in sets {
            let tokens = tokens.to_vec();
            notify_report.spawn(async move { (position, notify(&out, &tokens).await) });
        }
        all.extend(notify_report.join_all().await);
    }
    let (mut reports, mut failures, mut without) = (Vec::new(), Vec::new(), None);
    for (out, notified) in outs.iter().zip(all.into_values()) {
        let name = sets::name_in(outs, out);
        match notified {
            Ok(hubs) => reports.push((name, hubs)),
            Err(error @ NotifyError::NoHub { .. }) => without = Some((name, error.into())),
            Err(error) => failures.push((name, error.into())),
        }
    }
    if reports.is_empty() && failures.is_empty() {
        failures.extend(without);
    }
    (reports, failures)
}
