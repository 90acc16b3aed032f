//! The plan: what to do about each resource, as lines of a file, since lists may be longer than memory.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::path::PathBuf;

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::Url;

use super::packages::BitstreamPath;
use super::path::relative_path;
use super::provenance::Provenance;
use crate::memento::VersionLinks;
use crate::sync::files::local::Facts;
use crate::sync::files::patch::PatchLink;
use crate::text;

/// How many lines are handed over at once, since each time wakes a thread.
const AT_ONCE: usize = 32;

/// How many of these are read ahead.
const READ_AHEAD: usize = 2;

/// A resource to bring in step.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The number of the line.
    pub(crate) number: u32,
    pub(crate) url: Url,
    pub(crate) line: Line,
    /// Whether its file is known to be missing.
    pub(crate) is_missing: bool,
}

/// One line of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// As the list writes it.
    pub(crate) loc: String,
    pub(crate) url: String,
    pub(crate) facts: Facts,
    /// Its mirrors (RS-171), the preferred one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mirrors: Vec<String>,
    /// The URL of the preferred representation, if that is not `url` (RS-172).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alternate: Option<String>,
    /// Which representation `url` is asked for, as the `Accept` header says it (RS-172).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) accept: Option<String>,
    /// The original (RS-180).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<String>,
    /// Its bitstream in a package of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packed: Option<BitstreamPath>,
    /// Patches from older versions, oldest first (RS-174).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) patches: Vec<PatchLink>,
    /// What a Source that publishes the copy on says of it (RS-180, RS-183).
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub(crate) provenance: Provenance,
    /// Where its versions are, for a copy of the past.
    #[serde(default, skip_serializing_if = "VersionLinks::is_empty")]
    pub(crate) versions: VersionLinks,
    /// Since when it was in this state, for a copy of the past.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::option")]
    pub(crate) since: Option<DateTime>,
    /// Whether it was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_deleted: bool,
}

impl Planned {
    fn read(number: u32, text: &str) -> io::Result<Self> {
        let line: Line = serde_json::from_str(text)?;
        Ok(Self { number, url: Url::parse(&line.url).map_err(io::Error::other)?, line, is_missing: false })
    }
}

impl Line {
    /// Its file, relative to the directory that corresponds to `base`.
    pub(crate) fn place(&self, base: &Url) -> Option<PathBuf> {
        relative_path(&self.loc, &Url::parse(&self.url).ok()?, base).ok()
    }

    /// For a later run, which has neither the packages nor the patches of this one.
    pub(crate) fn for_later(self) -> Self {
        Self { packed: None, patches: Vec::new(), ..self }
    }
}

/// A plan that is being written.
#[derive(Debug)]
pub(crate) struct Draft {
    out: BufWriter<File>,
    bytes: u64,
}

impl Draft {
    pub(crate) fn new(scratch: File) -> Self {
        Self { out: BufWriter::new(scratch), bytes: 0 }
    }

    pub(crate) fn push(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.bytes += text.len() as u64;
        self.out.write_all(&text)
    }

    /// How many bytes were written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn end(self) -> io::Result<Plan> {
        Ok(Plan(self.out.into_inner().map_err(io::IntoInnerError::into_error)?))
    }
}

/// The resources of a snapshot in a file.
#[derive(Debug)]
pub(crate) struct Plan(File);

impl Plan {
    /// The resources that should be here, or those that were deleted; each as often as it is listed.
    pub(crate) fn begin(&self, deleted: bool) -> io::Result<Steps> {
        self.begin_with(deleted, |_| false)
    }

    /// As [`Plan::begin`]; `is_missing` determines whether the file is missing.
    pub(crate) fn begin_with(
        &self,
        deleted: bool,
        mut is_missing: impl FnMut(&Planned) -> bool + Send + 'static,
    ) -> io::Result<Steps> {
        let mut file = self.0.try_clone()?;
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        let reading = tokio::task::spawn_blocking(move || {
            file.rewind()?;
            let mut some = Vec::new();
            for (number, text) in (0..).zip(BufReader::new(file).lines()) {
                let mut planned = Planned::read(number, &text?)?;
                if planned.line.is_deleted != deleted {
                    continue;
                }
                planned.is_missing = is_missing(&planned);
                some.push(planned);
                if some.len() >= AT_ONCE && sender.blocking_send(std::mem::take(&mut some)).is_err() {
                    return Ok(());
                }
            }
            // Without a receiver, the rest is not needed.
            let _ = sender.blocking_send(some);
            Ok(())
        });
        Ok(Steps { some: Vec::new().into_iter(), receiver, reading })
    }
}

/// The resources of a plan, one after another.
pub(crate) struct Steps {
    some: std::vec::IntoIter<Planned>,
    receiver: mpsc::Receiver<Vec<Planned>>,
    reading: JoinHandle<io::Result<()>>,
}

impl Steps {
    /// The next resource; `None` only after all of them, since deletion may follow. Safe to cancel, but not to be called after
    /// `None` or an error.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Planned>> {
        loop {
            if let Some(planned) = self.some.next() {
                return Ok(Some(planned));
            }
            match self.receiver.recv().await {
                Some(some) => self.some = some.into_iter(),
                None => break,
            }
        }
        match (&mut self.reading).await {
            Ok(read) => read.map(|()| None),
            Err(broken) => Err(io::Error::other(broken)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rs201_a_reading_that_breaks_off_is_not_the_end_of_the_list() {
        let (sender, receiver) = mpsc::channel(1);
        let reading = tokio::spawn(async move {
            let _held = sender;
            std::future::pending().await
        });
        reading.abort();
        let mut steps = Steps { some: Vec::new().into_iter(), receiver, reading };
        assert!(steps.next().await.is_err());
    }
}
