//! A hub's backup as bytes, so that a test can make others of it: of damaged stores, and of older ones.

use std::fs;
use std::path::Path;

use sha2::{Digest as _, Sha256};

const MAGIC: &[u8] = b"resync-hub backup\n";
const HEADER: u8 = 1;
const CHANGES: u8 = 2;
const FILE: u8 = 3;
const END: u8 = 4;

/// A backup that was read, as it is written again: with checksums that are right for whatever is in it.
#[derive(Debug)]
pub struct Backup {
    /// The kind and the content of each part but the last.
    frames: Vec<(u8, Vec<u8>)>,
}

impl Backup {
    /// Reads one that is whole.
    ///
    /// # Panics
    /// When it is not.
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("the backup is there");
        let (mut rest, mut frames) = (&bytes[MAGIC.len()..], Vec::new());
        while !rest.is_empty() {
            let length = long(rest, 1);
            frames.push((rest[0], rest[5..5 + length].to_vec()));
            rest = &rest[9 + length..];
        }
        assert_eq!(frames.pop().map(|(kind, _)| kind), Some(END));
        Self { frames }
    }

    /// Writes it.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) {
        let mut bytes = MAGIC.to_vec();
        for (kind, content) in &self.frames {
            put(&mut bytes, *kind, content);
        }
        let digest = Sha256::digest(&bytes);
        put(&mut bytes, END, &digest);
        fs::write(path, bytes).expect("the backup can be written");
    }

    /// Adds a file beside the store.
    ///
    /// # Panics
    /// When the name is longer than a name.
    pub fn plant(&mut self, name: &str, bytes: &[u8]) {
        let length = u16::try_from(name.len()).expect("names are short").to_be_bytes();
        self.frames.push((FILE, [&length, name.as_bytes(), bytes].concat()));
    }

    /// Replaces a text in what it says of itself.
    pub fn say(&mut self, said: &str, instead: &str) {
        let header = self.frames.iter_mut().find(|(kind, _)| *kind == HEADER).expect("it says what it is");
        header.1 = String::from_utf8_lossy(&header.1).replace(said, instead).into_bytes();
    }

    /// Changes the value of each record, of which the space and the key are told.
    pub fn change(&mut self, mut change: impl FnMut(u8, &[u8], Vec<u8>) -> Vec<u8>) {
        for (_, content) in self.frames.iter_mut().filter(|(kind, _)| *kind == CHANGES) {
            let (mut changed, mut at) = (Vec::new(), 0);
            while at < content.len() {
                let key = at + 5..at + 5 + long(content, at + 1);
                changed.extend_from_slice(&content[at..=key.end]);
                let is_put = content[key.end] == 1;
                if !is_put {
                    at = key.end + 1;
                    continue;
                }
                let value = key.end + 5..key.end + 5 + long(content, key.end + 1);
                let new = change(content[at], &content[key], content[value.clone()].to_vec());
                changed.extend_from_slice(&length(&new));
                changed.extend_from_slice(&new);
                at = value.end;
            }
            *content = changed;
        }
    }
}

fn put(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let frame = [&[kind][..], &length(content), content].concat();
    bytes.extend_from_slice(&frame);
    bytes.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("parts are small").to_be_bytes()
}

fn long(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}
