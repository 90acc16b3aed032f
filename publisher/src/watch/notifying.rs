//! Telling the hubs of a set under watch. Each hub has a teller and a pause of its own, so that one that is away keeps no other waiting.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::sleep,
};

use super::{Report, Timing};
use crate::{
    blocking::unblocked,
    notify::{NotifyError, Outcome, Token, notify_hub},
    settings::HubUrl,
    state::State,
};

/// Tells the hubs of one set whenever there is news: those that the last build named, and those that are leaving.
pub(super) async fn notify_hubs(
    out: PathBuf,
    news: Arc<Notify>,
    client: reqwest::Client,
    tokens: Vec<Token>,
    timing: Timing,
    report: mpsc::UnboundedSender<Report>,
) {
    let mut notifiers = JoinSet::new();
    let mut has_news: BTreeMap<HubUrl, Arc<Notify>> = BTreeMap::new();
    let mut pauses = timing.pauses();
    news.notified().await;
    loop {
        match hubs(&out).await {
            Ok(hubs) => {
                for hub in hubs {
                    let has_news = has_news.entry(hub).or_insert_with_key(|hub| {
                        let has_news = Arc::new(Notify::new());
                        let notifier = Notifier {
                            client: client.clone(),
                            out: out.clone(),
                            hub: hub.clone(),
                            has_news: Arc::clone(&has_news),
                            tokens: tokens.clone(),
                            timing,
                            report: report.clone(),
                        };
                        notifiers.spawn(notifier.tell());
                        has_news
                    });
                    has_news.notify_one();
                }
                pauses.reset();
                news.notified().await;
            }
            Err(error) => {
                if report.send(Report::NotifyFailed(out.clone(), error)).is_err() {
                    return;
                }
                sleep(pauses.after_failure()).await;
            }
        }
    }
}

async fn hubs(out: &Path) -> Result<Vec<HubUrl>, NotifyError> {
    let out = out.to_owned();
    unblocked(move || Ok(State::load(&out)?.hubs_to_notify().cloned().collect())).await
}

/// Who tells one hub, and tries again for as long as it cannot be told.
struct Notifier {
    client: reqwest::Client,
    out: PathBuf,
    hub: HubUrl,
    has_news: Arc<Notify>,
    tokens: Vec<Token>,
    timing: Timing,
    report: mpsc::UnboundedSender<Report>,
}

impl Notifier {
    async fn tell(self) {
        let mut pauses = self.timing.pauses();
        self.has_news.notified().await;
        loop {
            let (is_done, report) = match notify_hub(&self.client, &self.out, &self.hub, &self.tokens).await {
                // Nothing is told to it any more; a later build may name it again.
                Ok(None) => (true, None),
                Ok(Some(report_of_hub)) => {
                    let is_done = !matches!(report_of_hub.outcome, Outcome::Failed(_));
                    let is_news = !matches!(report_of_hub.outcome, Outcome::NothingChanged);
                    (is_done, is_news.then(|| Report::Notified(self.out.clone(), Box::new(report_of_hub))))
                }
                Err(error) => (false, Some(Report::NotifyFailed(self.out.clone(), error))),
            };
            if report.is_some_and(|report| self.report.send(report).is_err()) {
                return;
            }
            if is_done {
                pauses.reset();
                self.has_news.notified().await;
            } else {
                sleep(pauses.after_failure()).await;
            }
        }
    }
}
