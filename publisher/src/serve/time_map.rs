//! The text of a TimeMap, written while it is sent: whoever reads it slowly holds the stamps of its versions, and not its text.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    task::{Context, Poll},
    vec,
};

use axum::body::Bytes;
use http_body::Frame;
use resync_core::{
    memento::{Described, Layout, Stamp, link_format},
    websub::LinkHeader,
};

/// Versions that are written at once.
const AT_ONCE: usize = 64;

/// What is left of the text. It is that of [`link_format::write`].
#[derive(Clone)]
pub(super) struct TimeMapText {
    layout: Layout,
    original: String,
    /// What is written already.
    written: String,
    stamps: vec::IntoIter<Stamp>,
    is_ended: bool,
}

impl TimeMapText {
    /// Begins with these links, and goes on with these versions.
    pub(super) fn new(described: Described<'_>, head: &LinkHeader, stamps: Vec<Stamp>) -> Self {
        let mut written = link_format::write(head);
        written.truncate(written.trim_end().len());
        let (layout, original) = (described.layout.clone(), described.original.to_owned());
        Self { layout, original, written, stamps: stamps.into_iter(), is_ended: false }
    }

    /// In bytes.
    pub(super) fn length(&self) -> usize {
        self.clone().map(|piece| piece.len()).sum()
    }
}

impl Iterator for TimeMapText {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut piece = mem::take(&mut self.written);
        let described = Described { layout: &self.layout, original: &self.original };
        for stamp in self.stamps.by_ref().take(AT_ONCE) {
            piece.push_str(",\n");
            piece.push_str(&described.listed(stamp).to_string());
        }
        if self.stamps.as_slice().is_empty() && !mem::replace(&mut self.is_ended, true) {
            piece.push('\n');
        }
        (!piece.is_empty()).then_some(piece)
    }
}

impl http_body::Body for TimeMapText {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|piece| Ok(Frame::data(piece.into()))))
    }
}

#[cfg(test)]
mod tests {
    use resync_core::{datetime::DateTime, memento::Versions};

    use super::*;

    #[test]
    fn mem033_mem034_its_pieces_are_the_text_of_the_whole_and_its_length_is_theirs() {
        let layout = Layout::new("https://s.example/v/");
        let described = Described { layout: &layout, original: "https://s.example/a" };
        for count in [1, 63, 64, 65, 300, 5_000, 5_001] {
            let at = |second: i64| Stamp::new(DateTime::from_unix_millis(second * 1000).unwrap(), 0);
            let kept: Vec<Stamp> = (0..count).map(at).collect();
            let versions = Versions::of(&kept);
            let whole = link_format::write(&described.time_map(versions, None).unwrap());
            let (head, page) = described.time_map_in_parts(versions, None).unwrap();
            let text = TimeMapText::new(described, &head, kept[page].to_vec());
            assert_eq!(text.length(), whole.len(), "{count}");
            assert!(text.clone().all(|piece| piece.len() < 64 * 1024));
            assert_eq!(text.collect::<String>(), whole, "{count}");
        }
    }
}
