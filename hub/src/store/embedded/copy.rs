//! Taking a backup: of a store that is closed, and of one that changes meanwhile.
//!
//! A running store is read a few records at a time, and whatever is committed between two reads is written behind them. Each
//! change that is written is thus newer than what was written of its record before, and after the last one the backup is the
//! store as of one commit.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::capture::Capture;
use super::engine::{Engine, Keys, Space};
use super::shared::Shared;
use crate::store::backup::{Changes, Writer};
use crate::store::{self, BackupError, Copied, Header, Result};

/// About how many bytes are read at once. Commits wait that long.
const READ_AT_ONCE: usize = 512 * 1024;

/// Writes a backup of the store in `directory`, which no hub may be using, and of the files `beside` it that exist. It needs no
/// keys: secrets stay as they are stored.
///
/// # Errors
/// [`BackupError`]; [`StoreError::Locked`](crate::store::StoreError::Locked) where a hub is using it, which can be asked itself
/// ([`Admin::back_up`](crate::store::Admin::back_up)).
pub fn back_up(
    engine: store::Engine,
    directory: &Path,
    beside: &[PathBuf],
    out: &mut dyn Write,
) -> std::result::Result<Copied, BackupError> {
    let (_lock, opened) = super::open_stopped(engine, directory)?;
    write(opened.as_ref(), None, beside, out)
}

/// Backs up a store while it is used.
pub(super) fn running(
    shared: &Shared,
    beside: &[PathBuf],
    out: &mut dyn Write,
) -> std::result::Result<Copied, BackupError> {
    // From before the first record is read, so that no commit is in neither.
    let capture = shared.start_capture();
    write(shared.engine.as_ref(), Some((shared, &capture)), beside, out)
}

fn write(
    engine: &dyn Engine,
    live: Option<(&Shared, &Capture)>,
    beside: &[PathBuf],
    out: &mut dyn Write,
) -> std::result::Result<Copied, BackupError> {
    let mut writer = Writer::begin(out, &Header::now())?;
    for space in Space::ALL {
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            let still = live.map(|(shared, _)| shared.still());
            let (records, last) = read(engine, space, from)?;
            drop(still);
            writer.changes(&records)?;
            if let Some((_, capture)) = live {
                catch_up(&mut writer, capture)?;
            }
            // No other key lies between a key and itself with a byte more.
            next = last.map(|last| [last.as_slice(), &[0]].concat());
        }
    }
    for path in beside {
        writer.file_beside(path)?;
    }
    if let Some((_, capture)) = live {
        catch_up(&mut writer, capture)?;
    }
    writer.finish()
}

/// The records of a space from a key on, and the last of these keys; `None` after the last of all.
fn read(engine: &dyn Engine, space: Space, from: Vec<u8>) -> Result<(Changes, Option<Vec<u8>>)> {
    let mut records = Changes::default();
    for record in engine.scan(space, &Keys { from, to: None }) {
        let (key, value) = record?;
        records.push(space.tag(), &key, Some(&value));
        if records.len() >= READ_AT_ONCE {
            return Ok((records, Some(key.to_vec())));
        }
    }
    Ok((records, None))
}

fn catch_up(writer: &mut Writer<&mut dyn Write>, capture: &Capture) -> std::result::Result<(), BackupError> {
    capture.drain()?.iter().try_for_each(|changes| writer.changes(changes))
}
