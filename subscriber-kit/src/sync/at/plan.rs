//! The plan of a moment: what the Source listed then (MEM-060).
//!
//! It is made from the newest Resource List that is not later than the moment, and the changes between the two. Where no list is that
//! old, it is made from today's list, by the changes since the moment. So the Change Lists have to reach from the one to the other
//! without a gap; else nothing is planned (MEM-061).

use resync_core::datetime::DateTime;
use url::Url;

use crate::blocking::blocking;
use crate::fetch::Fetched;
use crate::sync::SyncError;
use crate::sync::reading::change_reader::{Point, Reached};
use crate::sync::reading::changes::{Changes, Span};
use crate::sync::reading::collector::{Collected, Collector};
use crate::sync::reading::document::{Expected, Part};
use crate::sync::reading::gaps::{Gap, GapPolicy};
use crate::sync::reading::lists::Lists;
use crate::sync::reading::snapshot::{Consistency, Listing};

/// Everything that the Source listed at a moment.
pub(crate) struct PastSnapshot {
    pub(crate) collected: Collected,
    pub(crate) consistency: Consistency,
    /// Why more may have been there, if so.
    pub(crate) unproven: Option<String>,
    /// The lists have all changes from this time to the moment.
    pub(crate) known_since: DateTime,
    /// If they do not have all changes after the moment, the time up to which they do.
    pub(crate) known_until: Option<DateTime>,
}

/// A Resource List, and when it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DatedList {
    at: DateTime,
    /// `None` for today's.
    url: Option<Url>,
}

/// How the lists reach the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// From a list that is not later, by the changes up to the moment.
    Forwards(DatedList),
    /// From today's list, which is of `at`, by the changes since the moment. All since `from` are read: they tell older states.
    Backwards { from: DateTime, at: DateTime },
}

impl Lists<'_> {
    /// Reads what was listed at the moment.
    pub(crate) async fn past(&self, moment: DateTime) -> Result<PastSnapshot, SyncError> {
        if moment > DateTime::now() {
            return Err(SyncError::MomentInFuture { moment: moment.to_string() });
        }
        let (root, today) = self.inspect(self.fetch_anew(self.list).await?, Expected::Resources).await?;
        let mut lists: Vec<DatedList> = today.at.map(|at| DatedList { at, url: None }).into_iter().collect();
        if let Some(place) = today.archives {
            lists.extend(self.archived_lists(place).await?);
        }
        let spans = match self.changes {
            Some(root) => self.changes_of(root).spans().await?,
            None => Vec::new(),
        };
        let (spans, end) = joined(spans);
        let mut snapshot = loop {
            let way = Way::to(moment, &lists, &spans);
            let (at, url) = match way.map_err(|(before, after)| out_of_reach(moment, before, after))? {
                Way::Backwards { from, at } => {
                    break Box::pin(self.backwards(moment, from, at, root)).await?;
                }
                Way::Forwards(DatedList { at, url: None }) => {
                    let listing = Box::pin(self.listing(self.past_collector(moment)?, root)).await?;
                    break Box::pin(self.forwards(moment, at, listing)).await?;
                }
                Way::Forwards(DatedList { at, url: Some(url) }) => (at, url),
            };
            match Box::pin(self.archived_listing(moment, &url)).await {
                Ok(listing) => break Box::pin(self.forwards(moment, at, listing)).await?,
                Err(error) if error.is_about_a_document() => {
                    tracing::warn!(%error, %url, "cannot read an archived Resource List; trying another way");
                    lists.retain(|list| list.url.as_ref() != Some(&url));
                }
                Err(error) => return Err(error),
            }
        };
        let unproven = end.filter(|end| *end < moment).map(|end| format!("the lists end at {end}"));
        snapshot.unproven = snapshot.unproven.or(unproven);
        Ok(snapshot)
    }

    async fn archived_listing(&self, moment: DateTime, url: &Url) -> Result<Listing, SyncError> {
        let root = self.fetch_anew(url).await?;
        self.listing(self.past_collector(moment)?, root).await
    }

    async fn forwards(
        &self,
        moment: DateTime,
        at: DateTime,
        listing: Listing,
    ) -> Result<PastSnapshot, SyncError> {
        let Listing { collector, consistency, .. } = listing;
        let (collector, gaps) = self.changes_since(collector, at).await?;
        let known = Known { since: at, needed: moment };
        let mut known_until = known.until(&gaps).ok_or_else(|| out_of_reach(moment, Some(at), None))?;
        if self.changes.is_none() {
            known_until = Some(at);
        }
        self.snapshot(collector, consistency, known.since, known_until).await
    }

    /// Today's list was fetched first, so that the changes are not older.
    async fn backwards(
        &self,
        moment: DateTime,
        from: DateTime,
        at: DateTime,
        root: Fetched,
    ) -> Result<PastSnapshot, SyncError> {
        let (collector, gaps) = self.changes_since(self.past_collector(moment)?, from).await?;
        let known = Known { since: from, needed: at };
        let known_until = known.until(&gaps).ok_or_else(|| out_of_reach(moment, None, Some(at)))?;
        let Listing { collector, consistency, .. } = self.listing(collector, root).await?;
        self.snapshot(collector, consistency, known.since, known_until).await
    }

    async fn snapshot(
        &self,
        collector: Collector,
        consistency: Consistency,
        known_since: DateTime,
        known_until: Option<DateTime>,
    ) -> Result<PastSnapshot, SyncError> {
        let collected = blocking(move || collector.end()).await?;
        let has_undated = collected.later.as_ref().is_some_and(|later| later.has_undated);
        let unproven = consistency.clone().reason();
        let unproven =
            unproven.or_else(|| has_undated.then(|| "the lists have changes without a time".to_owned()));
        Ok(PastSnapshot { collected, consistency, unproven, known_since, known_until })
    }

    fn past_collector(&self, moment: DateTime) -> Result<Collector, SyncError> {
        Ok(Collector::of_the_past(self, self.staging.scratch()?, moment))
    }

    fn changes_of<'c>(&'c self, root: &'c Url) -> Changes<'c> {
        // Which gaps matter is judged by the moment.
        Changes { lists: self, root, policy: GapPolicy::Tolerated }
    }

    async fn changes_since(
        &self,
        collector: Collector,
        since: DateTime,
    ) -> Result<(Collector, Vec<Gap>), SyncError> {
        let Some(root) = self.changes else { return Ok((collector, Vec::new())) };
        let reached = Box::pin(self.changes_of(root).since(collector, &Point::at(since))).await?;
        let Reached { collector, continuity, .. } = reached;
        Ok((collector, continuity.gaps))
    }

    /// The lists in an archive; none if that cannot be read.
    async fn archived_lists(&self, place: Url) -> Result<Vec<DatedList>, SyncError> {
        match self.archived_parts(place, Expected::ResourceArchive).await {
            Err(error) if error.is_about_a_document() => {
                tracing::warn!(%error, "cannot read the archive of Resource Lists");
                Ok(Vec::new())
            }
            parts => Ok(parts?.into_iter().filter_map(DatedList::of).collect()),
        }
    }
}

impl DatedList {
    fn of(part: Part) -> Option<Self> {
        Some(Self { at: part.at?, url: Some(part.url) })
    }
}

impl Way {
    /// The way to a moment; if there is none, the next ones to which there is one. `spans` are those without gaps between them.
    fn to(moment: DateTime, lists: &[DatedList], spans: &[Span]) -> Result<Self, Around> {
        let span = spans.iter().find(|span| includes(**span, moment));
        let newest = lists.iter().filter(|list| list.at <= moment).max_by_key(|list| list.at);
        let is_near =
            |list: &&DatedList| list.at == moment || span.is_some_and(|span| reaches(*span, list.at));
        if let Some(list) = newest.filter(is_near) {
            return Ok(Self::Forwards(list.clone()));
        }
        let today = lists.iter().find(|list| list.url.is_none());
        match (today, span) {
            (Some(today), Some(span)) if includes(*span, today.at) => {
                Ok(Self::Backwards { from: span.from, at: today.at })
            }
            _ => Err(around(moment, lists, spans)),
        }
    }
}

/// The next moments before and after another.
type Around = (Option<DateTime>, Option<DateTime>);

/// The next moments that a way leads to.
fn around(moment: DateTime, lists: &[DatedList], spans: &[Span]) -> Around {
    let today = lists.iter().find(|list| list.url.is_none());
    let walked = today.and_then(|today| spans.iter().find(|span| includes(**span, today.at)));
    // From a list, the changes lead to the end of their span.
    let is_before_end = |span: Span, at: DateTime| span.until.is_none_or(|until| at <= until);
    let leads_on = |span: Span, list: &DatedList| reaches(span, list.at) && is_before_end(span, list.at);
    let followed = spans.iter().filter(|span| lists.iter().any(|list| leads_on(**span, list)));
    let moments = lists.iter().map(|list| list.at).chain(walked.map(|span| span.from));
    let moments: Vec<DateTime> = moments.chain(followed.filter_map(|span| span.until)).collect();
    let before = moments.iter().copied().filter(|at| *at < moment).max();
    (before, moments.iter().copied().filter(|at| *at > moment).min())
}

/// Between which times all changes have to be known.
#[derive(Clone, Copy, Debug)]
struct Known {
    since: DateTime,
    needed: DateTime,
}

impl Known {
    /// Up to when all changes are known, if not up to now; `None` if needed ones are not.
    #[expect(clippy::option_option, reason = "the outer one says whether the inner one is good enough")]
    fn until(self, gaps: &[Gap]) -> Option<Option<DateTime>> {
        let gaps = gaps.iter().filter(|gap| !is_rounded(**gap) && gap.from > self.since);
        let is_enough = gaps.clone().all(|gap| gap.known_until >= self.needed);
        is_enough.then(|| gaps.map(|gap| gap.known_until).min())
    }
}

/// Times may be rounded to seconds.
fn is_rounded(gap: Gap) -> bool {
    gap.from.unix_millis() <= gap.known_until.unix_millis() + 1000
}

fn includes(span: Span, moment: DateTime) -> bool {
    span.from <= moment && span.until.is_none_or(|until| moment <= until)
}

/// Whether the changes since a list of this time are in the span.
fn reaches(span: Span, at: DateTime) -> bool {
    let gap = Gap { known_until: at, from: span.from };
    span.from <= at || is_rounded(gap)
}

/// The spans without those that continue another one. The last has no end, since nothing says that anything happened later; but if its
/// list is closed, also up to when that is certain.
fn joined(spans: Vec<Span>) -> (Vec<Span>, Option<DateTime>) {
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.is_continued_by(span) => {
                last.until = last.until.zip(span.until).map(|(one, other)| one.max(other));
            }
            _ => joined.push(span),
        }
    }
    let end = joined.last_mut().and_then(|last| last.until.take());
    (joined, end)
}

fn out_of_reach(moment: DateTime, before: Option<DateTime>, after: Option<DateTime>) -> SyncError {
    let [before, after] = [before, after].map(|time| time.map(|time| time.to_string()));
    SyncError::OutOfReach { moment: moment.to_string(), before, after }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(hour: i64) -> DateTime {
        DateTime::from_unix_millis(1_795_000_000_000 + hour * 3_600_000).unwrap()
    }

    fn span(from: i64, until: Option<i64>) -> Span {
        Span { from: hour(from), until: until.map(hour) }
    }

    fn list(at: i64, is_today: bool) -> DatedList {
        let url = (!is_today).then(|| Url::parse(&format!("http://a.example/{at}.xml")).unwrap());
        DatedList { at: hour(at), url }
    }

    #[test]
    fn spans_that_touch_are_one_and_the_last_has_no_end() {
        let spans =
            vec![span(0, Some(2)), span(2, Some(4)), span(5, Some(7)), span(6, Some(8)), span(8, None)];
        assert_eq!(joined(spans), (vec![span(0, Some(4)), span(5, None)], None));
        let closed = (vec![span(0, None)], Some(hour(2)));
        assert_eq!(joined(vec![span(0, Some(2))]), closed, "nothing is known to have happened since");
        assert_eq!(joined(Vec::new()), (Vec::new(), None));
    }

    #[test]
    fn mem060_the_newest_list_before_the_moment_comes_first_and_today_s_where_none_is_that_old() {
        let (lists, spans) = ([list(10, true), list(2, false), list(6, false)], [span(1, None)]);
        let way = |moment| Way::to(hour(moment), &lists, &spans).unwrap();
        assert_eq!(way(11), Way::Forwards(list(10, true)));
        assert_eq!(way(7), Way::Forwards(list(6, false)));
        assert_eq!(way(2), Way::Forwards(list(2, false)));
        assert_eq!(way(1), Way::Backwards { from: hour(1), at: hour(10) });
    }

    #[test]
    fn mem061_the_next_moments_are_told_where_no_way_leads_to_the_one_that_is_wanted() {
        let (today, old) = (list(10, true), list(2, false));
        let way = |moment, lists: &[DatedList], spans: &[Span]| Way::to(hour(moment), lists, spans);
        let all = [today.clone(), old.clone()];
        assert_eq!(way(1, &all, &[span(2, None)]), Err((None, Some(hour(2)))));
        assert_eq!(way(4, &all, &[span(5, None)]), Err((Some(hour(2)), Some(hour(5)))), "there is a gap");
        let ends = [span(1, Some(3)), span(5, None)];
        assert_eq!(way(4, &all, &ends), Err((Some(hour(3)), Some(hour(5)))), "changes lead on from a list");
        assert_eq!(way(2, &all, &[]), Ok(Way::Forwards(old.clone())), "it is the very moment of a list");
        assert_eq!(way(6, &all, &[span(5, None)]), Ok(Way::Backwards { from: hour(5), at: hour(10) }));
        assert_eq!(way(3, &all, &[span(1, Some(4)), span(5, None)]), Ok(Way::Forwards(old)));
        assert_eq!(way(4, &[today], &[span(3, Some(5)), span(6, None)]), Err((None, Some(hour(6)))));
        assert_eq!(way(4, &[], &[span(3, None)]), Err((None, None)), "no list says when it is from");
    }

    #[test]
    fn mem060_a_gap_counts_where_changes_are_needed_and_else_only_limits_what_is_certain() {
        let known = Known { since: hour(2), needed: hour(6) };
        let gap = |known_until, from| Gap { known_until: hour(known_until), from: hour(from) };
        assert_eq!(known.until(&[]), Some(None));
        assert_eq!(known.until(&[gap(0, 1), gap(1, 2)]), Some(None), "before");
        for gap in [gap(2, 3), gap(4, 5), gap(5, 9)] {
            assert_eq!(known.until(&[gap]), None, "{gap:?}");
        }
        assert_eq!(known.until(&[gap(8, 9), gap(7, 8)]), Some(Some(hour(7))), "after");
    }
}
