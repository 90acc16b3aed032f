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

use super::{Patience, Report};
use crate::{
    blocking::unblocked,
    notify::{NotifyError, Outcome, Token, notify_hub},
    settings::HubUrl,
    state::State,
};

/// Tells the hubs of one set whenever there is news: those that the last build named, and those that are leaving.
pub(super) async fn tell_hubs(
    out: PathBuf,
    news: Arc<Notify>,
    client: reqwest::Client,
    tokens: Vec<Token>,
    patience: Patience,
    report: mpsc::UnboundedSender<Report>,
) {
    let mut tellers = JoinSet::new();
    let mut has_news: BTreeMap<HubUrl, Arc<Notify>> = BTreeMap::new();
    let mut pauses = patience.pauses();
    news.notified().await;
    loop {
        match hubs(&out).await {
            Ok(hubs) => {
                for hub in hubs {
                    let has_news = has_news.entry(hub).or_insert_with_key(|hub| {
                        let has_news = Arc::new(Notify::new());
                        let teller = Teller {
                            client: client.clone(),
                            out: out.clone(),
                            hub: hub.clone(),
                            has_news: Arc::clone(&has_news),
                            tokens: tokens.clone(),
                            patience,
                            report: report.clone(),
                        };
                        tellers.spawn(teller.tell());
                        has_news
                    });
                    has_news.notify_one();
                }
                pauses.reset();
                news.notified().await;
            }
            Err(error) => {
                if report.send(Report::NotTold(out.clone(), error)).is_err() {
                    return;
                }
                sleep(pauses.after_failure()).await;
            }
        }
    }
}

async fn hubs(out: &Path) -> Result<Vec<HubUrl>, NotifyError> {
    let out = out.to_owned();
    unblocked(move || Ok(State::load(&out)?.hubs_to_tell().cloned().collect())).await
}

/// Who tells one hub, and tries again for as long as it cannot be told.
struct Teller {
    client: reqwest::Client,
    out: PathBuf,
    hub: HubUrl,
    has_news: Arc<Notify>,
    tokens: Vec<Token>,
    patience: Patience,
    report: mpsc::UnboundedSender<Report>,
}

impl Teller {
    async fn tell(self) {
        let mut pauses = self.patience.pauses();
        self.has_news.notified().await;
        loop {
            let (is_told, report) = match notify_hub(&self.client, &self.out, &self.hub, &self.tokens).await {
                // Nothing is told to it any more; a later build may name it again.
                Ok(None) => (true, None),
                Ok(Some(told)) => {
                    let is_told = !matches!(told.outcome, Outcome::Failed(_));
                    let is_news = !matches!(told.outcome, Outcome::NothingChanged);
                    (is_told, is_news.then(|| Report::Told(self.out.clone(), Box::new(told))))
                }
                Err(error) => (false, Some(Report::NotTold(self.out.clone(), error))),
            };
            if report.is_some_and(|report| self.report.send(report).is_err()) {
                return;
            }
            if is_told {
                pauses.reset();
                self.has_news.notified().await;
            } else {
                sleep(pauses.after_failure()).await;
            }
        }
    }
}
