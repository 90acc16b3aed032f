//! Backups that are whole, and backups of which something was changed or taken.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn header() -> Header {
    Header { version: VERSION, store: 1, begun: "2026-01-31T12:00:00Z".to_owned(), hub: "0.1.0".to_owned() }
}

fn written(header: &Header) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, header).unwrap();
    let mut changes = Changes::default();
    changes.push(3, b"key", Some(b"value"));
    changes.push(3, b"gone", None);
    writer.changes(&changes).unwrap();
    writer.changes(&Changes::default()).unwrap();
    writer.file("ticket-key", b"secret").unwrap();
    let copied = writer.finish().unwrap();
    assert_eq!(copied, Copied { records: 2, bytes: out.len() as u64 });
    out
}

fn read(bytes: &[u8]) -> Result<Vec<Content>, BackupError> {
    let mut reader = Reader::open(bytes)?;
    let mut contents = Vec::new();
    while let Some(content) = reader.next()? {
        contents.push(content);
    }
    Ok(contents)
}

#[test]
fn what_is_written_is_read_again() {
    let bytes = written(&header());
    assert_eq!(Reader::open(&bytes[..]).unwrap().header(), &header());
    let changes = vec![
        (3, Bytes::from_static(b"key"), Some(Bytes::from_static(b"value"))),
        (3, Bytes::from_static(b"gone"), None),
    ];
    let file = Content::File { name: "ticket-key".to_owned(), bytes: Bytes::from_static(b"secret") };
    assert_eq!(read(&bytes).unwrap(), [Content::Changes(changes), file]);
}

#[test]
fn a_backup_that_is_cut_off_anywhere_is_told_to_be() {
    let bytes = written(&header());
    for end in MAGIC.len()..bytes.len() {
        let error = read(&bytes[..end]).unwrap_err();
        assert!(matches!(error, BackupError::CutOff(_)), "{end}: {error}");
    }
    assert!(matches!(read(&bytes[..5]).unwrap_err(), BackupError::NoBackup));
}

#[test]
fn a_newer_backup_is_refused_whatever_else_it_says() {
    let error = read(&written(&Header { version: 9, ..header() })).unwrap_err();
    assert!(matches!(error, BackupError::Format { found: 9, supported: VERSION }), "{error}");
    assert!(
        error.to_string().contains("has format 9, and this hub reads format 1: restore it with"),
        "{error}"
    );
}

#[test]
fn frames_that_are_whole_but_not_those_that_were_written_are_found_by_the_end() {
    let (one, other) = (written(&header()), written(&Header { begun: "2027".to_owned(), ..header() }));
    let frames =
        |bytes: &[u8]| bytes.len() - (MAGIC.len() + 9 + serde_json::to_vec(&header()).unwrap().len());
    let mixed = [&other[..other.len() - frames(&one)], &one[one.len() - frames(&one)..]].concat();
    assert!(matches!(read(&mixed).unwrap_err(), BackupError::Damaged { .. }));
    let longer = [&one[..], b"x"].concat();
    assert!(matches!(read(&longer).unwrap_err(), BackupError::Damaged { .. }));
}

proptest! {
    #[test]
    fn a_changed_byte_anywhere_is_found(place in any::<prop::sample::Index>(), flip in 1..=u8::MAX) {
        let mut bytes = written(&header());
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn the_credentials_in_a_backup_are_files_that_it_takes() {
    assert!(CREDENTIALS.iter().all(|name| BESIDE.contains(name)));
}
