//! A bar on the terminal that says how far a synchronisation has come; nothing where standard error is no terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use resync_subscriber_kit::sync::Progress;
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(100);

/// The bar; it is taken back at its end.
pub(crate) struct Bar(Option<(ProgressBar, JoinHandle<()>)>);

impl Bar {
    /// Follows what is counted from now on.
    pub(crate) fn of(progress: &Progress) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} resources, {msg}, {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let (shown, progress) = (bar.clone(), progress.clone());
        let follow = tokio::spawn(async move {
            loop {
                shown.set_length(progress.planned());
                shown.set_position(progress.done());
                shown.set_message(indicatif::HumanBytes(progress.bytes()).to_string());
                tokio::time::sleep(EVERY).await;
            }
        });
        Self(Some((bar, follow)))
    }

    /// For who writes lines meanwhile.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn end(self) {
        if let Some((bar, follow)) = self.0 {
            follow.abort();
            bar.finish_and_clear();
        }
    }
}
