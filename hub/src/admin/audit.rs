//! What operators did: one line of JSON for each command in a log that only grows while the hub runs, durable before it is carried out.

use std::io;
use std::sync::Arc;

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;

use super::{Failed, Page, PageRequest};
use crate::store::Registry;

/// When the log is larger than this at a start, its older half is dropped.
const LARGEST: u64 = 8 * 1024 * 1024;
/// The outcome of commands that were under way when the hub stopped, or when the backup was taken from which it was restored.
const INTERRUPTED: &str = "outcome unknown: the hub stopped, or was copied, before the end";

/// A command cannot be written down.
#[derive(Debug, thiserror::Error)]
#[error("command not carried out: it cannot be recorded in {place}: {reason}")]
pub struct AuditError {
    place: String,
    reason: String,
}

/// The interface that a command came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The admin API, which the command line uses too.
    Api,
    /// The pages.
    Pages,
    /// The command line on the hub's files.
    Files,
}

/// A command, or what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// When.
    pub at: String,
    /// How they came in.
    pub by: By,
    /// What was done: `retry`, `skip`, `replay`, `pause`, `resume`, `deny`, `token add`, `token revoke`, `rotate secrets`, `backup`, `restore`, `repair`,
    /// `drain`, `end drain`, `log level`, `export`, `replace address`, `log in`.
    pub act: String,
    /// To whom, and why.
    pub what: String,
    /// Its outcome; absent while it is under way.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<String>,
}

/// One line: a command, or the outcome of the command with this number.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Outcome {
        of: String,
        outcome: String,
    },
    Act {
        number: String,
        #[serde(flatten)]
        entry: Entry,
    },
}

/// The log of commands.
#[derive(Clone, Debug)]
pub struct Audit(Arc<dyn Registry>);

impl Audit {
    /// Drops the older half of a log that is too long.
    ///
    /// # Errors
    /// [`io::Error`] when it cannot be used.
    pub fn shorten(registry: &dyn Registry) -> io::Result<()> {
        registry.shorten_log(LARGEST)
    }

    /// Opens or makes the log. A line that a crash has left half-written is ended.
    ///
    /// # Errors
    /// [`io::Error`] when it cannot be used.
    pub fn open(registry: Arc<dyn Registry>) -> io::Result<Self> {
        registry.open_log()?;
        Ok(Self(registry))
    }

    /// Records that a command begins; returns its number once that is durable.
    ///
    /// # Errors
    /// [`AuditError`]
    pub fn begin(&self, by: By, act: &str, what: &str) -> Result<String, AuditError> {
        let number = uuid::Uuid::new_v4().simple().to_string();
        let entry = Entry {
            at: DateTime::now().to_string(),
            by,
            act: act.to_owned(),
            what: what.to_owned(),
            outcome: None,
        };
        self.write(&Line::Act { number: number.clone(), entry })?;
        Ok(number)
    }

    /// Records the outcome of a command. It is done already, so a failure is only logged.
    pub fn end(&self, of: String, outcome: &str) {
        if let Err(error) = self.write(&Line::Outcome { of, outcome: outcome.to_owned() }) {
            warn!(%error, "outcome of an operator's command not recorded");
        }
    }

    /// Writes down what became of commands of an earlier life that have no outcome. One of a command that goes on beside the hub gets its own
    /// in the end, which counts.
    ///
    /// # Errors
    /// [`io::Error`] when the log cannot be read. One that cannot be written keeps no hub from starting.
    pub fn settle(&self) -> io::Result<()> {
        for number in open_acts(&self.0.read_log()?) {
            self.end(number, INTERRUPTED);
        }
        Ok(())
    }

    fn write(&self, line: &Line) -> Result<(), AuditError> {
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.0.append_to_log(&text)
        });
        written.map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &io::Error) -> AuditError {
        AuditError { place: self.0.log_place(), reason: error.to_string() }
    }

    /// The newest commands first, a page of them.
    ///
    /// # Errors
    /// [`Failed`] when the log cannot be read, or `after` is no position in it.
    pub fn list(&self, request: &PageRequest) -> Result<Page<Entry>, Failed> {
        let text = self.0.read_log().map_err(|error| self.unusable(&error))?;
        let entries = entries(&text);
        let end = match &request.after {
            None => entries.len(),
            Some(after) => {
                after.parse().ok().filter(|end| *end <= entries.len()).ok_or_else(PageRequest::no_place)?
            }
        };
        let begin = end.saturating_sub(request.limit());
        let items = entries[begin..end].iter().rev().cloned().collect();
        Ok(Page { items, next: (begin > 0).then(|| begin.to_string()) })
    }
}

/// The commands in their order, each with its outcome.
fn entries(text: &[u8]) -> Vec<Entry> {
    let (mut entries, mut places) = (Vec::<Entry>::new(), std::collections::HashMap::new());
    for line in lines(text) {
        match line {
            Line::Act { number, entry } => {
                places.insert(number, entries.len());
                entries.push(entry);
            }
            Line::Outcome { of, outcome } => {
                if let Some(place) = places.get(&of) {
                    entries[*place].outcome = Some(outcome);
                }
            }
        }
    }
    entries
}

/// The numbers of the commands without an outcome, in their order.
fn open_acts(text: &[u8]) -> Vec<String> {
    let mut open = Vec::new();
    for line in lines(text) {
        match line {
            Line::Act { number, .. } => open.push(number),
            Line::Outcome { of, .. } => open.retain(|number| *number != of),
        }
    }
    open
}

/// A line that cannot be read is left out.
fn lines(text: &[u8]) -> impl Iterator<Item = Line> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::path::Path;

    use super::*;
    use crate::store::Files;

    fn open(folder: &Path) -> Audit {
        Audit::open(Arc::new(Files::in_folder(folder))).unwrap()
    }

    fn request(after: Option<String>) -> PageRequest {
        PageRequest { after, limit: Some(2) }
    }

    #[test]
    fn acts_are_listed_newest_first_with_their_outcomes_also_after_a_line_that_a_crash_tore() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = open(folder.path());
        for number in 1..=3 {
            let begun = audit.begin(By::Api, "retry", &format!("subscription {number}")).unwrap();
            audit.end(begun, "1 subscription");
        }
        drop(audit);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"number\":\"x\",\"at").unwrap();
        let audit = open(folder.path());
        audit.begin(By::Pages, "pause", "a topic").unwrap();

        let page = audit.list(&request(None)).unwrap();
        let told: Vec<_> =
            page.items.iter().map(|entry| (entry.what.as_str(), entry.outcome.as_deref())).collect();
        assert_eq!(told, [("a topic", None), ("subscription 3", Some("1 subscription"))]);
        let page = audit.list(&request(page.next)).unwrap();
        let told: Vec<_> = page.items.iter().map(|entry| entry.what.as_str()).collect();
        assert_eq!(told, ["subscription 2", "subscription 1"]);
        assert_eq!(page.next, None);
        assert!(audit.list(&request(Some("elsewhere".to_owned()))).is_err());
    }

    #[test]
    fn acts_that_a_hub_did_not_end_get_their_outcome_at_the_next_start_unless_they_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let begin = |what| open(folder.path()).begin(By::Api, "deny", what).unwrap();
        let (_, ended, goes_on) = (begin("left"), begin("ended"), begin("goes on elsewhere"));
        open(folder.path()).end(ended, "1 denied");
        let next = open(folder.path());
        next.settle().unwrap();
        let told = || {
            entries(&fs::read(&path).unwrap()).into_iter().map(|act| act.outcome.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(told(), [INTERRUPTED, "1 denied", INTERRUPTED]);
        open(folder.path()).end(goes_on, "2 denied");
        let length = fs::metadata(&path).unwrap().len();
        next.settle().unwrap();
        assert_eq!(told(), [INTERRUPTED, "1 denied", "2 denied"]);
        assert_eq!(fs::metadata(&path).unwrap().len(), length, "each is settled once");
    }

    #[test]
    fn a_file_that_has_grown_too_long_loses_its_older_half_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = open(folder.path());
        audit.begin(By::Api, "deny", &"x".repeat(5 << 20)).unwrap();
        audit.begin(By::Api, "deny", &"y".repeat(5 << 20)).unwrap();
        audit.begin(By::Api, "retry", "the newest").unwrap();
        drop(audit);
        Audit::shorten(&Files::in_folder(folder.path())).unwrap();
        let audit = open(folder.path());
        let page = audit.list(&request(None)).unwrap();
        assert_eq!(page.items.iter().map(|entry| entry.what.as_str()).collect::<Vec<_>>(), ["the newest"]);
        assert!(fs::metadata(&path).unwrap().len() < LARGEST);
    }
}
