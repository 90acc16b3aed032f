//! The journal of the inbox: notifications that were acknowledged to a hub and are not handled yet.
//!
//! A file that is only appended to. One thread writes all records that wait as one batch with one sync, and only then calls
//! what each was waiting for. So the order of the file is the order of handing over, and many deliveries share a sync. Nothing
//! is ever looked up in it: it is read once at the start. When most of its records are done, it is rewritten with the open ones.
//!
//! A record is `length, checksum, payload` (both 32 bits, little-endian); the payload is a line of JSON and then the
//! body. A torn record at the end was never acknowledged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use resync_core::durable::{folder_of, sync_folder};
use resync_core::websub::identity::NotificationId;
use resync_core::websub::secret::Secret;
use resync_core::websub::signature::{SignatureMethod, SignedBody, SigningKey};
use serde::{Deserialize, Serialize};

use crate::text;

pub(super) const FILE_NAME: &str = "inbox.journal";
/// The beginning of the name of a file that is being rewritten.
pub(super) const UNFINISHED: &str = ".inbox-";
const MAGIC: &str = "resync-destination inbox 1 ";
const FRAME: usize = 8;

/// No record is longer.
const MAX_RECORD: u32 = 1 << 30;

/// How much the file may grow before it is rewritten.
const COMPACT_AT: u64 = 4 * 1024 * 1024;

/// How much memory a notification takes besides its texts and its body, about, in bytes.
const OVERHEAD: usize = 512;

/// A notification that was acknowledged, without its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// Its number in the journal.
    pub(crate) number: u64,
    /// Of the subscription.
    pub(crate) token: String,
    #[serde(with = "text::option")]
    pub(crate) id: Option<NotificationId>,
    pub(crate) content_type: Option<String>,
    pub(crate) links: Option<String>,
    pub(crate) skipped: u64,
}

impl Arrival {
    /// How much memory, and room in the journal, it takes with its body while it waits, about.
    pub(crate) fn bytes(&self, body: &SignedBody) -> u64 {
        let texts = [&self.content_type, &self.links].map(|text| text.as_ref().map_or(0, String::len));
        (OVERHEAD + texts.iter().sum::<usize>() + body.body().len()) as u64
    }
}

#[derive(Serialize, Deserialize)]
enum Head {
    Arrived {
        #[serde(flatten)]
        arrival: Arrival,
        /// The body's signature by the journal's own key: its original signature was checked before.
        seal: String,
    },
    Done(Vec<u64>),
}

/// A record as it was read.
pub(crate) enum Event {
    Arrived(Arrival, SignedBody),
    Done(Vec<u64>),
}

/// Called once a record is durable, or could not be written.
pub(crate) type Then = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Saves what the done records say, before they are dropped; whether that succeeded.
pub(crate) type BeforeCompaction = Box<dyn Fn() -> bool + Send>;

struct Job {
    bytes: Vec<u8>,
    /// The number of the notification that arrived, or those that are done.
    opens: Option<u64>,
    closes: Vec<u64>,
    then: Then,
}

/// The writing end. Dropping it waits for the thread.
#[derive(Debug)]
pub(crate) struct Journal {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    key: SigningKey,
    next: u64,
}

impl Journal {
    /// Reads the journal in `folder`, or begins one.
    pub(crate) fn open(folder: &Path) -> io::Result<(OpenedJournal, Vec<Event>)> {
        let path = folder.join(FILE_NAME);
        let Scanned { key, events, extents, torn } = scan(&path)?;
        if torn > 0 {
            tracing::warn!(
                bytes = torn,
                "the end of the inbox journal was cut off; it was never acknowledged"
            );
        }
        let next = extents.keys().last().map_or(0, |last| last + 1);
        Ok((OpenedJournal { path, key, next, extents }, events))
    }

    /// The number of the next notification.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Appends a notification; `then` is called in the order of these calls.
    pub(crate) fn append(&self, arrival: Arrival, body: &SignedBody, then: Then) {
        let number = arrival.number;
        let seal = self.key.sign(body.body()).to_string();
        let bytes = frame(&Head::Arrived { arrival, seal }, body.body());
        self.send(Job { bytes, opens: Some(number), closes: Vec::new(), then });
    }

    /// Records that these are handled.
    pub(crate) fn done(&self, numbers: Vec<u64>, then: Then) {
        let bytes = frame(&Head::Done(numbers.clone()), &[]);
        self.send(Job { bytes, opens: None, closes: numbers, then });
    }

    fn send(&self, job: Job) {
        let refused = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|refused| refused.0),
            None => Some(job),
        };
        if let Some(Job { then, .. }) = refused {
            // As always, on another thread: the caller may hold locks that `then` takes.
            std::thread::spawn(move || then(Err(io::Error::other("the journal's thread has ended"))));
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.jobs = None;
        let own =
            self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id());
        if let Some(thread) = self.thread.take().filter(|_| !own) {
            // The thread has reported its panic itself.
            let _ = thread.join();
        }
    }
}

/// A journal that was read and is not written yet.
pub(crate) struct OpenedJournal {
    path: PathBuf,
    key: Secret,
    next: u64,
    extents: BTreeMap<u64, Extent>,
}

impl OpenedJournal {
    /// Drops all records but those with these numbers, and starts the thread.
    pub(crate) fn start(mut self, open: &[u64], before: BeforeCompaction) -> io::Result<Journal> {
        self.extents.retain(|number, _| open.contains(number));
        let key = SigningKey::new(SignatureMethod::Sha256, &self.key);
        let writer = Writer::compacted(self.path, self.key, &self.extents, before)?;
        let (jobs, waiting) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name("inbox".to_owned()).spawn(move || writer.run(&waiting))?;
        Ok(Journal { jobs: Some(jobs), thread: Some(thread), key, next: self.next })
    }
}

/// Reads the journal in `folder` without changing it.
pub(crate) fn read_events(folder: &Path) -> io::Result<Vec<Event>> {
    Ok(scan(&folder.join(FILE_NAME))?.events)
}

/// Where a record lies in the file, frame included.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    length: u64,
}

struct Scanned {
    key: Secret,
    events: Vec<Event>,
    extents: BTreeMap<u64, Extent>,
    /// How many bytes at the end are not a record.
    torn: u64,
}

impl Scanned {
    fn empty() -> Self {
        Self { key: Secret::random(), events: Vec::new(), extents: BTreeMap::new(), torn: 0 }
    }
}

fn scan(path: &Path) -> io::Result<Scanned> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Scanned::empty()),
        file => file?,
    };
    let end = file.metadata()?.len();
    let mut input = BufReader::new(file);
    let Some(key) = read_header(&mut input)? else {
        return Err(io::Error::other(
            "it is not a journal of this program; move it away to start without it",
        ));
    };
    let mut scanned = Scanned { key, ..Scanned::empty() };
    let mut start = header(&scanned.key).len() as u64;
    while start < end {
        let Some(Record { length, head, body }) = read_record(&mut input)? else {
            scanned.torn = end - start;
            break;
        };
        let extent = Extent { start, length: FRAME as u64 + u64::from(length) };
        start += extent.length;
        match head {
            Head::Done(numbers) => scanned.events.push(Event::Done(numbers)),
            Head::Arrived { arrival, seal } => {
                let proven = SignedBody::check(Some(&seal), std::slice::from_ref(&scanned.key), body);
                scanned.extents.insert(arrival.number, extent);
                scanned.events.push(Event::Arrived(arrival, proven.map_err(io::Error::other)?));
            }
        }
    }
    Ok(scanned)
}

fn header(key: &Secret) -> Vec<u8> {
    [MAGIC.as_bytes(), key.as_bytes(), b"\n"].concat()
}

fn read_header(input: &mut impl io::BufRead) -> io::Result<Option<Secret>> {
    let mut line = Vec::new();
    input.take(1024).read_until(b'\n', &mut line)?;
    let key = line.strip_prefix(MAGIC.as_bytes()).and_then(|rest| rest.strip_suffix(b"\n"));
    Ok(key.and_then(|key| Secret::new(key).ok()))
}

struct Record {
    /// Of the payload.
    length: u32,
    head: Head,
    body: Vec<u8>,
}

/// The next record; `None` where it is torn.
fn read_record(input: &mut impl io::Read) -> io::Result<Option<Record>> {
    let (mut length, mut checksum) = ([0; FRAME / 2], [0; FRAME / 2]);
    if !fill(input, &mut length)? || !fill(input, &mut checksum)? {
        return Ok(None);
    }
    let (length, checksum) = (u32::from_le_bytes(length), u32::from_le_bytes(checksum));
    // A power cut may leave zeros, whose checksum is zero.
    if length == 0 || length > MAX_RECORD {
        return Ok(None);
    }
    let mut payload = Vec::new();
    input.take(length.into()).read_to_end(&mut payload)?;
    if payload.len() != length as usize || crc32fast::hash(&payload) != checksum {
        return Ok(None);
    }
    let end = payload.iter().position(|byte| *byte == b'\n').unwrap_or(payload.len());
    let body = payload.split_off((end + 1).min(payload.len()));
    let head = serde_json::from_slice(payload.trim_ascii_end())?;
    Ok(Some(Record { length, head, body }))
}

fn fill(input: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn frame(head: &Head, body: &[u8]) -> Vec<u8> {
    let mut payload = serde_json::to_vec(head).expect("a head is made of texts and numbers, which JSON has");
    payload.push(b'\n');
    payload.extend_from_slice(body);
    let length = u32::try_from(payload.len()).expect("the callback takes no body of gigabytes");
    [&length.to_le_bytes()[..], &crc32fast::hash(&payload).to_le_bytes(), &payload].concat()
}

/// The thread that owns the file.
struct Writer {
    path: PathBuf,
    key: Secret,
    file: File,
    /// How long the file is, as far as it is durable.
    length: u64,
    open: BTreeMap<u64, Extent>,
    before: BeforeCompaction,
    /// A write failed; the content beyond `length` is unknown.
    broken: bool,
    compact_at: u64,
}

impl Writer {
    fn compacted(
        path: PathBuf,
        key: Secret,
        open: &BTreeMap<u64, Extent>,
        before: BeforeCompaction,
    ) -> io::Result<Self> {
        let (file, length, open) = rewrite(&path, &key, open)?;
        let compact_at = length * 2 + COMPACT_AT;
        Ok(Self { path, key, file, length, open, before, broken: false, compact_at })
    }

    fn run(mut self, waiting: &mpsc::Receiver<Job>) {
        while let Ok(first) = waiting.recv() {
            let batch: Vec<Job> = std::iter::once(first).chain(waiting.try_iter()).collect();
            let written = self.commit(&batch);
            if let Err(error) = &written {
                tracing::error!(%error, "cannot write the inbox journal");
            }
            for job in batch {
                let result =
                    written.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
                (job.then)(result.copied());
            }
            if self.length > self.compact_at {
                self.compact_if_possible();
            }
        }
    }

    fn commit(&mut self, batch: &[Job]) -> io::Result<()> {
        if self.broken {
            self.compact()?;
        }
        self.broken = true;
        let bytes: Vec<u8> = batch.iter().flat_map(|job| job.bytes.iter().copied()).collect();
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.broken = false;
        for job in batch {
            let length = job.bytes.len() as u64;
            if let Some(number) = job.opens {
                self.open.insert(number, Extent { start: self.length, length });
            }
            for number in &job.closes {
                self.open.remove(number);
            }
            self.length += length;
        }
        Ok(())
    }

    /// A failure to shorten the file is no reason to refuse notifications.
    fn compact_if_possible(&mut self) {
        let result = if (self.before)() { self.compact() } else { Ok(()) };
        if let Err(error) = result {
            tracing::warn!(%error, "cannot compact the inbox journal");
        }
        self.compact_at = self.length * 2 + COMPACT_AT;
    }

    /// Copies only durable records.
    fn compact(&mut self) -> io::Result<()> {
        if self.broken && !(self.before)() {
            return Err(io::Error::other("the state cannot be written"));
        }
        (self.file, self.length, self.open) = rewrite(&self.path, &self.key, &self.open)?;
        self.broken = false;
        Ok(())
    }
}

/// Replaces the file by one with the open records alone.
fn rewrite(
    path: &Path,
    key: &Secret,
    open: &BTreeMap<u64, Extent>,
) -> io::Result<(File, u64, BTreeMap<u64, Extent>)> {
    let folder = folder_of(path);
    let mut new = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    let head = header(key);
    new.write_all(&head)?;
    let mut length = head.len() as u64;
    let mut extents = BTreeMap::new();
    if !open.is_empty() {
        let mut old = File::open(path)?;
        for (number, extent) in open {
            old.seek(SeekFrom::Start(extent.start))?;
            let copied = io::copy(&mut (&mut old).take(extent.length), &mut new)?;
            if copied != extent.length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            extents.insert(*number, Extent { start: length, length: extent.length });
            length += extent.length;
        }
    }
    new.as_file().sync_all()?;
    let file = new.persist(path).map_err(|error| error.error)?;
    sync_folder(folder)?;
    Ok((file, length, extents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    fn proven(body: &[u8]) -> SignedBody {
        let secret = Secret::random();
        let seal = SigningKey::new(SignatureMethod::Sha256, &secret).sign(body).to_string();
        SignedBody::check(Some(&seal), &[secret], body).unwrap()
    }

    fn arrival(number: u64) -> Arrival {
        Arrival { number, token: "x".into(), id: None, content_type: None, links: None, skipped: 0 }
    }

    fn start(folder: &Path) -> (Journal, Vec<String>) {
        let (opened, events) = Journal::open(folder).unwrap();
        let (mut open, mut bodies) = (Vec::new(), BTreeMap::new());
        for event in events {
            match event {
                Event::Arrived(arrival, body) => {
                    open.push(arrival.number);
                    bodies.insert(arrival.number, String::from_utf8(body.into_body()).unwrap());
                }
                Event::Done(numbers) => open.retain(|number| !numbers.contains(number)),
            }
        }
        bodies.retain(|number, _| open.contains(number));
        (opened.start(&open, Box::new(|| true)).unwrap(), bodies.into_values().collect())
    }

    /// Waits for the record to be durable.
    fn take(journal: &mut Journal, body: &[u8]) -> u64 {
        let (sender, receiver) = mpsc::channel();
        let number = journal.number();
        journal.append(arrival(number), &proven(body), Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
        number
    }

    fn done(journal: &Journal, numbers: Vec<u64>) {
        let (sender, receiver) = mpsc::channel();
        journal.done(numbers, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
    }

    #[test]
    fn what_is_not_done_is_there_again_in_order_and_what_is_done_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = start(folder.path());
        let numbers = ["one", "two\n\0", "three"].map(|body| take(&mut journal, body.as_bytes()));
        done(&journal, vec![numbers[1]]);
        drop(journal);
        let (mut journal, open) = start(folder.path());
        assert_eq!(open, ["one", "three"]);
        let four = take(&mut journal, b"four");
        assert!(four > numbers[2], "numbers are never used again: {four}");
        done(&journal, vec![numbers[0]]);
        drop(journal);
        assert_eq!(start(folder.path()).1, ["three", "four"]);
    }

    #[test]
    fn whatever_is_cut_off_at_the_end_all_that_was_acknowledged_before_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = start(folder.path());
        take(&mut journal, b"kept");
        let path = folder.path().join(FILE_NAME);
        let safe = std::fs::metadata(&path).unwrap().len();
        take(&mut journal, b"torn");
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for end in usize::try_from(safe).unwrap()..whole.len() {
            let other = tempfile::tempdir().unwrap();
            std::fs::write(other.path().join(FILE_NAME), &whole[..end]).unwrap();
            let (mut journal, open) = start(other.path());
            assert_eq!(open, ["kept"], "cut at {end}");
            take(&mut journal, b"new");
            drop(journal);
            assert_eq!(start(other.path()).1, ["kept", "new"]);
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        std::fs::write(&path, flipped).unwrap();
        assert_eq!(start(folder.path()).1, ["kept"], "a damaged record is not believed");
        let zeros = vec![0; whole.len() - usize::try_from(safe).unwrap()];
        std::fs::write(&path, [&whole[..usize::try_from(safe).unwrap()], &zeros].concat()).unwrap();
        assert_eq!(start(folder.path()).1, ["kept"], "a length that was durable before its bytes");
    }

    #[test]
    fn the_file_does_not_grow_with_what_was_handled() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = start(folder.path());
        let kept = take(&mut journal, b"kept");
        let body = vec![b'x'; 1024 * 1024];
        for _ in 0..12 {
            let number = take(&mut journal, &body);
            done(&journal, vec![number]);
        }
        let length = std::fs::metadata(folder.path().join(FILE_NAME)).unwrap().len();
        assert!(length < COMPACT_AT + 3 * 1024 * 1024, "{length}");
        drop(journal);
        let (journal, open) = start(folder.path());
        assert_eq!(open, ["kept"]);
        done(&journal, vec![kept]);
    }

    #[test]
    fn many_at_once_are_answered_in_the_order_in_which_they_came() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = start(folder.path());
        let answered = Arc::new(AtomicUsize::new(0));
        for place in 0..200 {
            let answered = Arc::clone(&answered);
            let then = move |result: io::Result<()>| {
                result.unwrap();
                assert_eq!(answered.fetch_add(1, Ordering::SeqCst), place);
            };
            let number = journal.number();
            journal.append(arrival(number), &proven(b"body"), Box::new(then));
        }
        drop(journal);
        assert_eq!(answered.load(Ordering::SeqCst), 200);
    }

    #[test]
    fn who_appends_to_a_journal_that_has_ended_hears_it_from_another_thread() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = start(folder.path());
        journal.jobs = None;
        let (sender, receiver) = mpsc::channel();
        let then = move |result: io::Result<()>| {
            sender.send((result.is_err(), std::thread::current().id())).unwrap();
        };
        let number = journal.number();
        journal.append(arrival(number), &proven(b"body"), Box::new(then));
        let (has_failed, answering) = receiver.recv().unwrap();
        assert!(has_failed && answering != std::thread::current().id());
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE_NAME), "something else").unwrap();
        assert!(Journal::open(folder.path()).is_err());
    }
}
