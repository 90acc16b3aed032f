//! What a check of a site found.

use std::collections::BTreeSet;
use std::fmt;

use super::FetchFailure;
use crate::document::{Capability, Header, Root};
use crate::rules::{Rule, Violations};

/// How much is kept of a token that no specification defines.
const MAX_TOKEN: usize = 120;

/// What only those can miss who have seen all that there is.
const NEED_ALL_DOCUMENTS: &[Rule] =
    &[Rule::IndexLinkTarget, Rule::DocumentUnlisted, Rule::CapabilityListUnlisted, Rule::SetsDiffer];
/// What only those can see who follow links.
const NEED_LINKS: &[Rule] = &[
    Rule::UpTarget,
    Rule::UpIsIndex,
    Rule::IndexLinkMissing,
    Rule::IndexAsUrlset,
    Rule::IndexNested,
    Rule::EntryTarget,
    Rule::EntryTimes,
    Rule::ArchivesTarget,
    Rule::Unreachable,
];
/// What only the topic of a channel shows.
const NEED_TOPICS: &[Rule] =
    &[Rule::TopicUnreachable, Rule::TopicContentType, Rule::TopicLinks, Rule::TopicHubs];
/// What only the servers of versions show.
const NEED_VERSIONS: &[Rule] = &[Rule::TimeGateAnswer, Rule::MementoAnswer, Rule::TimeMapAnswer];
/// What only a package shows.
const NEED_PACKAGES: &[Rule] = &[
    Rule::SetsDiffer,
    Rule::PackageUnreadable,
    Rule::PackageDiffers,
    Rule::ContentsDiffer,
    Rule::PackageManifest,
    Rule::BitstreamDiffers,
    Rule::BitstreamUnsafe,
    Rule::BitstreamMissing,
];

const NEED_A_RUN_THAT_IS_THROUGH: &[Rule] = &[Rule::UntilMissing];

/// Every document that was come to, in the order it was, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The documents; the first is the one the check started from.
    pub documents: Vec<Checked>,
    /// How many links were not followed because there were too many documents.
    pub omitted: usize,
    /// How many packages were not looked into, since [`Fetch::package`](super::Fetch::package) gave none.
    pub packages_skipped: usize,
    /// How many requests to topics were not made, since [`Fetch::topic`](super::Fetch::topic) gave nothing.
    pub topics_skipped: usize,
    /// How many requests for versions were not made, since [`Fetch::version`](super::Fetch::version) gave nothing.
    pub versions_skipped: usize,
    /// How many links there are in documents that were looked at by themselves.
    pub links_unfollowed: usize,
    /// How many entries do not say yet that their document is closed, since a run is under way ([`Check::under_way`](super::Check::under_way)).
    pub indexes_late: usize,
    /// Why the check ended before it had looked at everything.
    pub stopped: Option<Stopped>,
}

/// What ended a check early.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// As many requests as [`Check::requests`](super::Check::requests) allows were made.
    Requests(usize),
    /// [`Fetch`](super::Fetch) fetches nothing more.
    Fetch(FetchFailure),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(most) => write!(f, "more than {most} requests would be needed"),
            Self::Fetch(failure) => failure.fmt(f),
        }
    }
}

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Where it is; a manifest inside a package has the package's URL, then `!/manifest.xml`.
    pub url: String,
    /// Which document led to it first; `None` for the one the check started from.
    pub linked_from: Option<String>,
    /// What it is, where that could be read.
    pub kind: Option<Kind>,
    /// Nothing that the check started from leads to it; it was checked by itself.
    pub is_unreached: bool,
    /// What is wrong with it or with what it says of others.
    pub violations: Violations,
}

/// What kind of document something is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Its capability; `None` for a plain Sitemap.
    pub capability: Option<Capability>,
    /// Its root, which shows an index.
    pub root: Root,
}

impl Report {
    /// How many violations there are of severity [`Error`](crate::rules::Severity::Error).
    pub fn errors(&self) -> usize {
        self.documents.iter().map(|document| document.violations.error_count()).sum()
    }

    /// How many there are of severity [`Warning`](crate::rules::Severity::Warning).
    pub fn warnings(&self) -> usize {
        self.documents.iter().map(|document| document.violations.warning_count()).sum()
    }

    /// Whether every link was followed. Packages that were not looked into are the fetcher's choice, and not counted here.
    pub fn is_complete(&self) -> bool {
        self.omitted == 0 && self.stopped.is_none()
    }

    /// Whether everything was looked at and there is no error.
    pub fn is_conforming(&self) -> bool {
        self.is_complete() && self.errors() == 0
    }

    /// The rules that were not judged, or not everywhere, because of what was not looked at.
    pub fn unjudged(&self) -> Vec<Rule> {
        let by_itself = self.links_unfollowed > 0;
        let needed = [
            (!self.is_complete() || by_itself, NEED_ALL_DOCUMENTS),
            (by_itself, NEED_LINKS),
            (self.packages_skipped > 0 || by_itself, NEED_PACKAGES),
            (self.topics_skipped > 0 || by_itself, NEED_TOPICS),
            (self.versions_skipped > 0, NEED_VERSIONS),
            (self.indexes_late > 0, NEED_A_RUN_THAT_IS_THROUGH),
        ];
        let unjudged = needed.into_iter().filter(|(is_missing, _)| *is_missing).flat_map(|(_, rules)| rules);
        unjudged.copied().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl fmt::Display for Report {
    /// Each document with its violations below it, then the sums.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Checked { url, kind, is_unreached, violations, .. } in &self.documents {
            f.write_str(url)?;
            if let Some(kind) = kind {
                write!(f, " ({kind})")?;
            }
            writeln!(f, "{}", if *is_unreached { ", which nothing leads to" } else { "" })?;
            for violation in violations {
                writeln!(f, "  {violation}")?;
            }
            if violations.omitted() > 0 {
                writeln!(f, "  and {} more", violations.omitted())?;
            }
        }
        let documents = counted(self.documents.len(), "document");
        let (errors, warnings) = (counted(self.errors(), "error"), counted(self.warnings(), "warning"));
        write!(f, "{documents}, {errors}, {warnings}")?;
        if self.omitted > 0 {
            write!(f, ", {} not followed", counted(self.omitted, "link"))?;
        }
        if self.packages_skipped > 0 {
            write!(f, ", {} not looked into", counted(self.packages_skipped, "package"))?;
        }
        if let Some(stopped) = &self.stopped {
            write!(f, ", ended early: {stopped}")?;
        }
        for (number, rule) in self.unjudged().into_iter().enumerate() {
            write!(f, "{}{rule}", if number == 0 { ", not judged: " } else { ", " })?;
        }
        Ok(())
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Kind {
    pub(super) fn of(header: &Header) -> Self {
        let capability = header.capability().map(|capability| match capability {
            Capability::Other(token) if token.len() > MAX_TOKEN => {
                let end = token.char_indices().map(|(end, _)| end).take_while(|&end| end <= MAX_TOKEN).last();
                Capability::Other(token[..end.unwrap_or_default()].into())
            }
            known => known.clone(),
        });
        Self { capability, root: header.root }
    }

    pub(super) fn is(&self, capability: &Capability) -> bool {
        self.capability.as_ref() == Some(capability)
    }
}

impl fmt::Display for Kind {
    /// The specification's name, such as `Resource List Index`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.capability.as_ref().map_or("Sitemap", Capability::name))?;
        if self.root == Root::SitemapIndex { f.write_str(" Index") } else { Ok(()) }
    }
}
