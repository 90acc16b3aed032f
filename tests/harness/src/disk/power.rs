//! What is left of a folder when the power is cut: of what was not synced, any part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::ops::AddAssign;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fastrand::Rng;

use super::record::{Node, PAGE, Record, names, number, paths, read_page};

/// What is never torn.
const SECTOR: usize = 512;
/// How much of what was not synced a power cut may leave; drawn anew for each.
const LEFT: [f64; 5] = [0.0, 0.1, 0.5, 0.9, 1.0];

/// What a power cut took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Pages that were written and not synced.
    pub pages: usize,
    /// Pages of which a part was lost.
    pub torn: usize,
    /// Names that were made, replaced or removed, and whose folder was not synced.
    pub names: usize,
}

impl AddAssign for Loss {
    fn add_assign(&mut self, more: Self) {
        self.pages += more.pages;
        self.torn += more.torn;
        self.names += more.names;
    }
}

/// How much survives one power cut.
pub(super) struct Cut<'a> {
    rng: &'a mut Rng,
    pages: f64,
    names: f64,
    loss: Loss,
}

impl<'a> Cut<'a> {
    /// Any part survives.
    pub(super) fn any(rng: &'a mut Rng) -> Self {
        let (pages, names) = (rng.choice(LEFT).unwrap_or(0.0), rng.choice(LEFT).unwrap_or(0.0));
        Self { rng, pages, names, loss: Loss::default() }
    }

    /// Nothing survives.
    pub(super) fn whole(rng: &'a mut Rng) -> Self {
        Self { rng, pages: 0.0, names: 0.0, loss: Loss::default() }
    }

    /// Puts what is left in the place of a folder; `scratch` is one on the same file system.
    pub(super) fn apply(mut self, data: &Path, record: &Record, scratch: &Path) -> io::Result<Loss> {
        let (before, after) = (scratch.join("before"), scratch.join("after"));
        let live = paths(data)?;
        self.rebuild_folder(record, number(data)?, &live, &after)?;
        fs::rename(data, &before)?;
        fs::rename(&after, data)?;
        fs::remove_dir_all(&before)?;
        Ok(self.loss)
    }

    fn rebuild_folder(
        &mut self,
        record: &Record,
        number: u64,
        live: &BTreeMap<u64, PathBuf>,
        to: &Path,
    ) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(to)?;
        let durable = record.names(number)?;
        let newest = live.get(&number).map_or_else(|| Ok(BTreeMap::new()), |path| names(path))?;
        for (name, node) in self.names(&durable, &newest) {
            let to = to.join(name);
            if node.is_folder {
                self.rebuild_folder(record, node.number, live, &to)?;
            } else {
                self.rebuild_file(&record.bytes(node.number), live.get(&node.number), &to)?;
            }
        }
        Ok(())
    }

    fn rebuild_file(&mut self, durable: &Path, live: Option<&PathBuf>, to: &Path) -> io::Result<()> {
        let durable = durable.exists().then(|| File::open(durable)).transpose()?;
        // What is not in any folder any more keeps its durable bytes, in case that its name comes back.
        let live = live.map(File::open).transpose()?;
        let size = |file: &Option<File>| {
            file.as_ref().map_or(Ok(0), |file| file.metadata().map(|found| found.len()))
        };
        let old_size = size(&durable)?;
        let new_size = if live.is_some() { size(&live)? } else { old_size };
        let length = if old_size == new_size { new_size } else { self.length(old_size, new_size) };
        let out = File::create(to)?;
        out.set_permissions(Permissions::from_mode(0o600))?;
        out.set_len(length)?;
        for at in (0..length).step_by(PAGE) {
            let old = read_page(durable.as_ref(), at)?;
            let new = if live.is_some() { read_page(live.as_ref(), at)? } else { old.clone() };
            let page = self.page(&old, &new);
            let wanted = usize::try_from(length - at).unwrap_or(PAGE).min(PAGE);
            if page.iter().any(|byte| *byte != 0) {
                out.write_all_at(&page[..wanted], at)?;
            }
        }
        Ok(())
    }

    /// The names that are left. Of a file that got another name in its folder, both may be left, and never none: a rename takes no name
    /// before it has given the other. That is not kept where a name went from file to file in one stretch without a sync.
    fn names<'n>(
        &mut self,
        durable: &'n BTreeMap<String, Node>,
        newest: &'n BTreeMap<String, Node>,
    ) -> BTreeMap<&'n String, &'n Node> {
        let all: BTreeSet<_> = durable.keys().chain(newest.keys()).collect();
        let mut left: BTreeMap<_, _> = all
            .into_iter()
            .filter_map(|name| Some((name, self.name(durable.get(name), newest.get(name))?)))
            .collect();
        let kept: BTreeSet<_> = left.values().map(|node| node.number).collect();
        let is_renamed = |old: &Node| newest.values().any(|new| new.number == old.number);
        for (name, old) in durable.iter().filter(|(_, old)| is_renamed(old) && !kept.contains(&old.number)) {
            left.insert(name, old);
        }
        left
    }

    fn name<'n>(&mut self, old: Option<&'n Node>, new: Option<&'n Node>) -> Option<&'n Node> {
        if old == new || self.rng.f64() < self.names {
            return new;
        }
        self.loss.names += 1;
        old
    }

    fn length(&mut self, old: u64, new: u64) -> u64 {
        match self.rng.u8(0..4) {
            0 => old,
            1 => self.rng.u64(old.min(new)..=old.max(new)),
            _ => new,
        }
    }

    fn page(&mut self, old: &[u8], new: &[u8]) -> Vec<u8> {
        if old == new || self.rng.f64() < self.pages {
            return new.to_vec();
        }
        if self.rng.u8(0..4) > 0 {
            self.loss.pages += 1;
            return old.to_vec();
        }
        self.loss.torn += 1;
        let sectors = old.chunks(SECTOR).zip(new.chunks(SECTOR));
        sectors.flat_map(|(old, new)| if self.rng.bool() { old } else { new }).copied().collect()
    }
}
