//! Whether the files of documents still have the bytes that were written.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use resync_core::{build::Stamp, digest::Digest};

use crate::{
    helpers::files,
    state::{DocumentRecord, State},
};

/// Whether a document's file still has the bytes that were written.
pub(crate) fn is_in_place(out: &Path, record: &DocumentRecord) -> bool {
    has_stamp(out, record)
        || digest_of(&out.join(&record.path)).is_ok_and(|content| content == record.content)
}

/// Whether nobody has touched a document's file since it was recorded: then it need not be read.
pub(super) fn has_stamp(out: &Path, record: &DocumentRecord) -> bool {
    record.stamp.is_some_and(|stamp| stamp_of(&out.join(&record.path)) == Some(stamp))
}

/// Records new stamps of documents whose bytes are unchanged but whose owner or time is not, so that they need not be read each time; says whether there
/// are any.
pub(crate) fn restamp(state: &mut State, out: &Path) -> bool {
    let mut is_any = false;
    for record in &mut state.documents {
        let path = out.join(&record.path);
        // Before it is read, so that a change meanwhile is noticed next time.
        let stamp = stamp_of(&path);
        if stamp.is_some()
            && stamp != record.stamp
            && digest_of(&path).is_ok_and(|content| content == record.content)
        {
            record.stamp = stamp;
            is_any = true;
        }
    }
    is_any
}

pub(super) fn stamp_of(path: &Path) -> Option<Stamp> {
    Stamp::of(&fs::metadata(path).ok()?).ok()
}

pub(super) fn digest_of(path: &Path) -> io::Result<Digest> {
    files::digest_of(File::open(path)?)
}
