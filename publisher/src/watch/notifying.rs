//! Notifies the hubs of a set under watch. Each hub has a task and pauses of its own, so that an unreachable hub does not delay others.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::sleep,
};

use super::{Report, Timing};
use crate::{
    error::Error,
    helpers::blocking::unblocked,
    notify::{Outcome, Token, notify_hub},
    settings::HubUrl,
    state::State,
};

/// What the notifiers of all hubs share.
#[derive(Clone)]
pub(super) struct Notifying {
    pub(super) client: reqwest::Client,
    pub(super) tokens: Vec<Token>,
    pub(super) timing: Timing,
    pub(super) report: mpsc::UnboundedSender<Report>,
}

/// Notifies the hubs of one set after each signal of `published`: those of the last build, and former ones.
pub(super) async fn notify_set(notifying: Notifying, out: PathBuf, published: Arc<Notify>) {
    let mut notifiers = JoinSet::new();
    let mut signals: BTreeMap<HubUrl, Arc<Notify>> = BTreeMap::new();
    let mut pauses = notifying.timing.pauses();
    published.notified().await;
    loop {
        match hubs(&out).await {
            Ok(hubs) => {
                for hub in hubs {
                    let signal = signals.entry(hub).or_insert_with_key(|hub| {
                        let signal = Arc::new(Notify::new());
                        let (notifying, out, hub) = (notifying.clone(), out.clone(), hub.clone());
                        notifiers.spawn(keep_notified(notifying, out, hub, Arc::clone(&signal)));
                        signal
                    });
                    signal.notify_one();
                }
                pauses.reset();
                published.notified().await;
            }
            Err(error) => {
                if notifying.report.send(Report::NotifyFailed(out.clone(), error)).is_err() {
                    return;
                }
                sleep(pauses.after_failure()).await;
            }
        }
    }
}

async fn hubs(out: &Path) -> Result<Vec<HubUrl>, Error> {
    let out = out.to_owned();
    unblocked(move || Ok(State::load(&out)?.hubs_to_notify().cloned().collect())).await
}

/// Notifies one hub after each signal, and tries again while that fails.
async fn keep_notified(notifying: Notifying, out: PathBuf, hub: HubUrl, signal: Arc<Notify>) {
    let Notifying { client, tokens, timing, report: reports } = notifying;
    let mut pauses = timing.pauses();
    signal.notified().await;
    loop {
        let mut asked = Duration::ZERO;
        let (is_done, report) = match notify_hub(&client, &out, &hub, &tokens).await {
            // The hub was removed; a later build may name it again.
            Ok(None) => (true, None),
            Ok(Some(report)) => {
                asked = report.retry_after().unwrap_or_default();
                let is_done = !matches!(report.outcome, Outcome::Failed(_));
                let is_sent = !matches!(report.outcome, Outcome::NothingChanged);
                (is_done, is_sent.then(|| Report::Notified(out.clone(), Box::new(report))))
            }
            Err(error) => (false, Some(Report::NotifyFailed(out.clone(), error))),
        };
        if report.is_some_and(|report| reports.send(report).is_err()) {
            return;
        }
        if is_done {
            pauses.reset();
            signal.notified().await;
        } else {
            sleep(pauses.after_failure().max(asked)).await;
        }
    }
}
