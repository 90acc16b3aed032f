//! What of a folder is durable, as the library writes it down (`record.c`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// What the disk forgets or keeps as one, unless it tears it.
pub(super) const PAGE: usize = 4_096;

/// A name in a folder stands for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) is_folder: bool,
}

/// The folder of the record.
#[derive(Debug)]
pub(super) struct Record(pub(super) PathBuf);

impl Record {
    /// Begins it anew: whatever is in this folder is durable.
    pub(super) fn begin(&self, data: &Path) -> io::Result<()> {
        if self.0.exists() {
            fs::remove_dir_all(&self.0)?;
        }
        let pins = self.0.join("pins");
        fs::create_dir_all(&pins)?;
        for (number, path) in paths(data)? {
            if path.is_dir() {
                let line = |(name, node): (String, Node)| {
                    format!("{} {} {name}\n", node.number, if node.is_folder { 'd' } else { 'f' })
                };
                let text: String = names(&path)?.into_iter().map(line).collect();
                fs::write(self.0.join(format!("{number}.names")), text)?;
            } else {
                fs::hard_link(&path, pins.join(number.to_string()))?;
                copy(&path, &self.bytes(number))?;
            }
        }
        Ok(())
    }

    /// Where the durable bytes of a file are, if it has any.
    pub(super) fn bytes(&self, number: u64) -> PathBuf {
        self.0.join(number.to_string())
    }

    /// The durable names in a folder.
    pub(super) fn names(&self, number: u64) -> io::Result<BTreeMap<String, Node>> {
        let path = self.0.join(format!("{number}.names"));
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let parsed = text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (number, kind, name) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
            Some((name.to_owned(), Node { number, is_folder: kind == "d" }))
        });
        Ok(parsed.collect())
    }
}

/// A page of a file; what is beyond its end reads as zeros.
pub(super) fn read_page(file: Option<&File>, at: u64) -> io::Result<Vec<u8>> {
    let mut page = vec![0; PAGE];
    let mut filled = 0;
    while let Some(file) = file.filter(|_| filled < PAGE) {
        match file.read_at(&mut page[filled..], at + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(page)
}

/// Copies a file without giving its holes a place.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let length = from.metadata()?.len();
    to.set_len(length)?;
    for at in (0..length).step_by(PAGE) {
        let page = read_page(Some(&from), at)?;
        let wanted = usize::try_from(length - at).unwrap_or(PAGE).min(PAGE);
        if page.iter().any(|byte| *byte != 0) {
            to.write_all_at(&page[..wanted], at)?;
        }
    }
    Ok(())
}

pub(super) fn number(path: &Path) -> io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.ino())
}

/// Everything below a folder, and the folder itself.
pub(super) fn paths(folder: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    WalkDir::new(folder)
        .into_iter()
        .map(|entry| {
            let path = entry?.into_path();
            Ok((number(&path)?, path))
        })
        .collect()
}

pub(super) fn names(folder: &Path) -> io::Result<BTreeMap<String, Node>> {
    fs::read_dir(folder)?
        .map(|entry| {
            let entry = entry?;
            let node = Node { number: number(&entry.path())?, is_folder: entry.file_type()?.is_dir() };
            Ok((entry.file_name().to_string_lossy().into_owned(), node))
        })
        .collect()
}
