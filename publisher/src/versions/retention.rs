//! Removes the bytes of versions that another one replaced long ago, or for which there is no room: oldest first, and never those of a
//! present version (MEM-013). The journal keeps its lines, so that what is gone can be told from what never was.
//!
//! A pass reads the whole journal, and seldom: when a sixteenth of the time, or of the room, has gone by since the one before. Its memory
//! is bounded by splitting the digests into sixteen parts. The same pass removes what is [forgotten](super::forgotten), present or not.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    io::{self, BufReader, BufWriter, Seek as _, Write as _},
    path::Path,
};

use resync_core::{datetime::DateTime, digest::Digest, document::Change};

use super::{
    forgotten::Forgotten,
    journal::{Journal, VersionLine},
    store::Store,
};
use crate::{
    error::{Action, Error},
    helpers::files,
    settings::{Keep, VersionRules},
    state::{KeptVersions, Lock, State},
};

/// A pass comes when this part of the time or of the room has gone by since what it could remove.
const PART: u64 = 16;

/// How long the versions of a digest are wanted: until one replaced them, or for ever.
const PRESENT: i64 = i64::MAX;

/// The moments of a histogram are told apart as far as so many fit.
const MOST_MOMENTS: usize = 65_536;

/// Removes what is due, and what a killed run was to remove for good; records it in the state.
pub(crate) fn apply(lock: &Lock, now: DateTime) -> Result<(), Error> {
    let mut state = State::load(lock.out())?;
    let rules = state.settings.versions.clone();
    if state.versions.as_ref().is_some_and(|kept| is_due(kept, &rules, now)) {
        return make_pass(lock, &mut state, Forgotten::load(lock.out())?, &rules, now);
    }
    remove_forgotten(lock, &mut state)
}

/// Removes only what is to go for good, and counts what is left; records it in the state.
pub(crate) fn remove_forgotten(lock: &Lock, state: &mut State) -> Result<(), Error> {
    let forgotten = Forgotten::load(lock.out())?;
    if !forgotten.is_pending() {
        return Ok(());
    }
    let all = VersionRules { keep: Keep::Always, bytes: u64::MAX, only: Vec::new() };
    make_pass(lock, state, forgotten, &all, DateTime::now())
}

fn make_pass(
    lock: &Lock,
    state: &mut State,
    forgotten: Forgotten,
    rules: &VersionRules,
    now: DateTime,
) -> Result<(), Error> {
    let out = lock.out();
    let store = Store::of(out);
    let cannot = Error::cannot(Action::Remove, store.folder());
    // Also where no versions are kept: the text that a JSON Patch would begin at may be one of them.
    forgotten.remove(&store).map_err(&cannot)?;
    if let Some(kept) = state.versions.as_mut() {
        let journal = Journal::with(out, Some(&*kept));
        Pass::of(&journal, &store, &forgotten.all())
            .and_then(|mut pass| pass.apply(&store, kept, rules, now))
            .map_err(&cannot)?;
        state.save(lock)?;
    }
    forgotten.complete(lock)
}

fn is_due(kept: &KeptVersions, rules: &VersionRules, now: DateTime) -> bool {
    let Some(replaced) = kept.replaced else { return false };
    let is_old = rules.keep.age().is_some_and(|age| {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let slack = age / i64::try_from(PART).unwrap_or(i64::MAX);
        now.unix_millis().saturating_sub(replaced.unix_millis()) >= age.saturating_add(slack)
    });
    let room = room(rules, kept.present);
    is_old || kept.bytes.saturating_sub(kept.present) > room
}

/// How much the versions may take that are not present.
fn room(rules: &VersionRules, present: u64) -> u64 {
    // Where the present ones take nearly all, the others have a little.
    rules.bytes.saturating_sub(present).max(rules.bytes / PART)
}

/// What a digest and a moment take.
const RECORD: usize = 32 + 8;

/// Of each version its digest and until when it is wanted, in sixteen files by the first digit.
struct Pass {
    parts: Vec<File>,
}

impl Pass {
    /// Reads the journal. What is forgotten, no version wants.
    fn of(journal: &Journal, store: &Store, forgotten: &HashSet<Digest>) -> io::Result<Self> {
        fs::create_dir_all(store.folder())?;
        let new = || Ok::<_, io::Error>(BufWriter::new(tempfile::tempfile_in(store.folder())?));
        let mut parts = (0..16).map(|_| new()).collect::<io::Result<Vec<_>>>()?;
        let (mut lines, mut buffer) = (journal.lines()?, Vec::new());
        let mut before: Option<VersionLine> = None;
        loop {
            let line = lines.next_line(&mut buffer)?;
            if let Some(before) = &before
                && before.change != Change::Deleted
                && let Some(digest) = before.digest.filter(|digest| !forgotten.contains(digest))
            {
                let next = line.as_ref().filter(|line| line.loc() == before.loc());
                let until = next.map_or(PRESENT, |next| next.moment.unix_millis());
                let part = usize::from(digest.as_bytes().first().copied().unwrap_or_default() >> 4);
                parts[part].write_all(digest.as_bytes())?;
                parts[part].write_all(&until.to_le_bytes())?;
            }
            before = line;
            if before.is_none() {
                break;
            }
        }
        let parts = parts.into_iter().map(|part| part.into_inner().map_err(io::IntoInnerError::into_error));
        Ok(Self { parts: parts.collect::<io::Result<_>>()? })
    }

    /// Removes what is not wanted any more.
    fn apply(
        &mut self,
        store: &Store,
        kept: &mut KeptVersions,
        rules: &VersionRules,
        now: DateTime,
    ) -> io::Result<()> {
        let (mut present, mut replaced) = (0, Histogram::default());
        self.each(store, |_, length, wanted| {
            match wanted {
                Some(wanted) if wanted.until == PRESENT => present += length,
                Some(wanted) => replaced.add(wanted.until, length),
                None => {}
            }
            Ok(())
        })?;
        let too_old = rules.keep.age().map_or(i64::MIN, |age| {
            now.unix_millis().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
        });
        let room = room(rules, present);
        let gone = too_old.max(replaced.last_beyond(room, room - room / PART));
        let (mut count, mut bytes, mut first) = (0, 0, PRESENT);
        self.each(store, |path, length, wanted| {
            // What a killed run took and no journal tells goes, too.
            let wanted = wanted.filter(|wanted| wanted.until > gone);
            let Some(wanted) = wanted else { return files::remove_unsynced(path) };
            (count, bytes, first) = (count + wanted.count, bytes + length, first.min(wanted.until));
            Ok(())
        })?;
        if kept.replaced.is_some_and(|replaced| replaced.unix_millis() <= gone) {
            let since = DateTime::from_unix_millis(gone).unwrap_or(kept.since);
            kept.since = kept.since.max(since).min(kept.until.max(kept.since));
        }
        (kept.count, kept.bytes, kept.present) = (count, bytes, present);
        let is_any = first != PRESENT;
        kept.replaced = is_any.then(|| DateTime::from_unix_millis(first).ok()).flatten();
        Ok(())
    }

    /// Each content that is stored, with its length and who wants it.
    fn each(
        &mut self,
        store: &Store,
        mut see: impl FnMut(&Path, u64, Option<Wanted>) -> io::Result<()>,
    ) -> io::Result<()> {
        for (part, first) in self.parts.iter_mut().zip(0..) {
            let wanted = wanted(part)?;
            for folder in store.folders(first) {
                for entry in files::if_there(fs::read_dir(&folder))?.into_iter().flatten() {
                    let entry = entry?;
                    let name = entry.file_name();
                    let digest =
                        name.to_str().and_then(|name| format!("sha-256:{name}").parse::<Digest>().ok());
                    let wanted = digest.and_then(|digest| wanted.get(digest.as_bytes()).copied());
                    see(&entry.path(), entry.metadata()?.len(), wanted)?;
                }
            }
        }
        Ok(())
    }
}

/// Who wants a content.
#[derive(Clone, Copy)]
struct Wanted {
    /// The last moment at which a version has it.
    until: i64,
    /// How many versions have it.
    count: u64,
}

/// The digests of one part.
fn wanted(part: &mut File) -> io::Result<HashMap<[u8; 32], Wanted>> {
    part.rewind()?;
    let mut records = BufReader::new(part);
    let (mut all, mut record) = (HashMap::new(), [0; RECORD]);
    while is_filled(&mut records, &mut record)? {
        let (mut digest, mut until) = ([0; 32], [0; 8]);
        digest.copy_from_slice(&record[..32]);
        until.copy_from_slice(&record[32..]);
        let wanted = all.entry(digest).or_insert(Wanted { until: i64::MIN, count: 0 });
        wanted.until = wanted.until.max(i64::from_le_bytes(until));
        wanted.count += 1;
    }
    Ok(all)
}

/// Reads one record, if there is one.
fn is_filled(records: &mut impl io::Read, record: &mut [u8; RECORD]) -> io::Result<bool> {
    match records.read_exact(record) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// How many bytes were replaced when, as exactly as there is room for.
struct Histogram {
    /// Milliseconds that count as one.
    step: i64,
    bytes: BTreeMap<i64, u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { step: 1, bytes: BTreeMap::new() }
    }
}

impl Histogram {
    fn add(&mut self, moment: i64, length: u64) {
        *self.bytes.entry(moment.div_euclid(self.step)).or_default() += length;
        while self.bytes.len() > MOST_MOMENTS {
            self.step *= 2;
            let mut coarser: BTreeMap<i64, u64> = BTreeMap::new();
            for (moment, length) in std::mem::take(&mut self.bytes) {
                *coarser.entry(moment.div_euclid(2)).or_default() += length;
            }
            self.bytes = coarser;
        }
    }

    /// If there are more bytes than `most`, the last moment up to which they have to go so that `rest` stay; otherwise one before all.
    fn last_beyond(&self, most: u64, rest: u64) -> i64 {
        let mut left: u64 = self.bytes.values().sum();
        if left <= most {
            return i64::MIN;
        }
        for (moment, length) in &self.bytes {
            left -= length;
            if left <= rest {
                return (moment + 1).saturating_mul(self.step) - 1;
            }
        }
        i64::MIN
    }
}

#[cfg(test)]
mod tests {
    use resync_core::{build::Item, digest::Algorithm};

    use super::*;
    use crate::{
        settings::{BaseUrl, Settings},
        state::{FOLDER, Segment, Totals},
    };

    /// A resource whose bytes were another text at each of these seconds, and nothing at the one without.
    fn site(out: &Path, rules: VersionRules, histories: &[&[(i64, Option<&str>)]]) -> (Lock, State) {
        let lock = Lock::acquire(out).unwrap();
        let (mut text, mut bytes) = (String::new(), 0);
        let at = |second: i64| DateTime::from_unix_millis(second * 1000).unwrap();
        for (history, number) in histories.iter().zip(1..) {
            for (second, content) in *history {
                let item = Item::new(format!("http://e.x/{number}"));
                let (change, item, digest) = match content {
                    None => (Change::Deleted, item, None),
                    Some(content) => {
                        let digest = Digest::of(Algorithm::Sha256, content.as_bytes());
                        let path = Store::of(out).path(&digest);
                        fs::create_dir_all(path.parent().unwrap()).unwrap();
                        bytes += if path.exists() { 0 } else { content.len() as u64 };
                        fs::write(path, content).unwrap();
                        (Change::Updated, item.content(content.as_bytes()), Some(digest))
                    }
                };
                let event = resync_core::build::Event::new(change, at(*second), item);
                text += &(serde_json::to_string(&VersionLine::of(&event, digest)).unwrap() + "\n");
            }
        }
        fs::write(out.join(FOLDER).join("versions-1.jsonl"), &text).unwrap();
        let settings = Settings::new("", BaseUrl::parse("http://e.x/").unwrap());
        let settings = Settings { versions: rules, ..settings };
        let mut state = State::new(settings, Totals::default(), Vec::new(), BTreeMap::new());
        state.versions = Some(KeptVersions {
            segments: vec![Segment { name: "versions-1.jsonl".to_owned(), bytes: text.len() as u64 }],
            count: 0,
            bytes,
            present: 0,
            since: at(0),
            until: at(100),
            replaced: Some(at(1)),
            is_whole: true,
        });
        state.save(&lock).unwrap();
        (lock, state)
    }

    fn left(out: &Path) -> Vec<String> {
        let store = Store::of(out);
        let folders = (0..16).flat_map(|first| store.folders(first)).collect::<Vec<_>>();
        let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let mut left: Vec<_> = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        left.sort();
        left
    }

    #[test]
    fn mem013_the_oldest_go_when_there_is_no_room_and_never_what_is_present() {
        let out = tempfile::tempdir().unwrap();
        let rules = VersionRules { keep: Keep::Always, bytes: 10, only: Vec::new() };
        let one = [(0, Some("old1")), (10, Some("old2")), (20, Some("now1"))];
        let two = [(0, Some("old2")), (30, Some("old3")), (40, None)];
        let three = [(0, Some("always"))];
        let (lock, _) = site(out.path(), rules, &[&one, &two, &three]);
        fs::create_dir_all(Store::of(out.path()).folder().join("00")).unwrap();
        fs::write(Store::of(out.path()).folder().join("00").join("0".repeat(64)), "of a killed run").unwrap();
        apply(&lock, DateTime::now()).unwrap();
        // Ten bytes are present, so the others have a sixteenth of the room, which is nothing here.
        assert_eq!(left(out.path()), ["always", "now1"]);
        let kept = State::load(out.path()).unwrap().versions.unwrap();
        assert_eq!((kept.count, kept.bytes, kept.present, kept.replaced), (2, 10, 10, None));
    }

    #[test]
    fn mem013_what_was_replaced_last_goes_last() {
        let out = tempfile::tempdir().unwrap();
        let rules = VersionRules { keep: Keep::Always, bytes: 16, only: Vec::new() };
        let one = [
            (0, Some("one")),
            (10, Some("two")),
            (20, Some("three")),
            (30, Some("four!")),
            (40, Some("five!")),
        ];
        let (lock, _) = site(out.path(), rules, &[&one]);
        apply(&lock, DateTime::now()).unwrap();
        assert_eq!(left(out.path()), ["five!", "four!", "three"]);
        let kept = State::load(out.path()).unwrap().versions.unwrap();
        assert_eq!(
            (kept.since.unix_millis(), kept.replaced.map(DateTime::unix_millis)),
            (20_000, Some(30_000))
        );
    }

    #[test]
    fn mem013_what_was_replaced_longer_ago_than_wanted_goes_and_what_was_valid_since_then_stays() {
        let out = tempfile::tempdir().unwrap();
        let rules = VersionRules { keep: Keep::Seconds(160), bytes: 1 << 30, only: Vec::new() };
        let one = [(0, Some("one")), (10, Some("two")), (50, Some("three"))];
        let (lock, state) = site(out.path(), rules.clone(), &[&one]);
        let at = |second: i64| DateTime::from_unix_millis(second * 1000).unwrap();
        let kept = state.versions.unwrap();
        assert!(!is_due(&kept, &rules, at(170)) && is_due(&kept, &rules, at(171)), "with some slack");
        apply(&lock, at(200)).unwrap();
        assert_eq!(left(out.path()), ["three", "two"]);
        let kept = State::load(out.path()).unwrap().versions.unwrap();
        assert_eq!(kept.replaced, Some(at(50)));
        assert!(!is_due(&kept, &rules, at(211)));
    }

    #[test]
    fn a_pass_that_is_due_removes_what_is_to_be_forgotten_too_and_keeps_to_the_rules() {
        let out = tempfile::tempdir().unwrap();
        let rules = VersionRules { keep: Keep::Seconds(160), bytes: 1 << 30, only: Vec::new() };
        let one = [(0, Some("one")), (10, Some("two")), (50, Some("three"))];
        let (lock, _) = site(out.path(), rules, &[&one]);
        Forgotten::add(&lock, [Digest::of(Algorithm::Sha256, b"three")]).unwrap();
        apply(&lock, DateTime::from_unix_millis(200 * 1000).unwrap()).unwrap();
        assert_eq!(left(out.path()), ["two"]);
        assert!(!Forgotten::load(out.path()).unwrap().is_pending());
        let kept = State::load(out.path()).unwrap().versions.unwrap();
        assert_eq!((kept.count, kept.bytes, kept.present), (1, 3, 0));
    }

    #[test]
    fn moments_are_told_apart_as_far_as_there_is_room() {
        let mut histogram = Histogram::default();
        for moment in 0..200_000 {
            histogram.add(moment, 1);
        }
        assert!(histogram.bytes.len() <= MOST_MOMENTS && histogram.step == 4);
        let gone = histogram.last_beyond(100_000, 100_000);
        assert!((99_999..100_010).contains(&gone), "{gone}");
        assert_eq!(histogram.last_beyond(200_000, 0), i64::MIN);
    }
}
