//! What a program wrote and did not bring to the disk, by its steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::disk::{Kind, Taken};

/// What a power cut may take, or leave half of: files that were written and folders in which files got other names, and that were neither
/// synced since nor removed; also files that were written where they were made, in a folder that was not synced since. Files have the names
/// that they were written under; those without one are left out.
pub fn unsynced(steps: &[Taken]) -> BTreeSet<&Path> {
    let mut unsynced = BTreeSet::new();
    // Names that may be new, since their folders were synced, and whether something was written under them: who makes a file without a name
    // names its folder.
    let mut made = BTreeMap::new();
    for Taken { kind, path, .. } in steps {
        let path = path.as_path();
        match kind {
            Kind::Create => {
                made.entry(path).or_insert(false);
            }
            Kind::Write if !path.to_string_lossy().ends_with(" (deleted)") => {
                unsynced.insert(path);
                if let Some(is_written) = made.get_mut(path) {
                    *is_written = true;
                }
            }
            Kind::Rename => unsynced.extend(path.parent()),
            Kind::Sync => {
                unsynced.remove(path);
                made.retain(|name, _| name.parent() != Some(path));
            }
            Kind::Unlink => {
                unsynced.remove(path);
                made.retain(|name, _| !name.starts_with(path));
            }
            _ => {}
        }
    }
    unsynced.extend(made.into_iter().filter_map(|(name, is_written)| is_written.then_some(name)));
    unsynced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: Kind, path: &str) -> Taken {
        Taken { kind, path: path.into(), is_met: false }
    }

    #[test]
    fn what_was_written_or_renamed_is_unsynced_until_it_is_synced_or_removed() {
        let mut steps = vec![
            step(Kind::Write, "s/new"),
            step(Kind::Write, "s/gone"),
            step(Kind::Write, "s/#7 (deleted)"),
            step(Kind::Unlink, "s/gone"),
            step(Kind::Rename, "s/page"),
        ];
        assert_eq!(unsynced(&steps), [Path::new("s"), Path::new("s/new")].into());
        steps.extend([step(Kind::Sync, "s/new"), step(Kind::Write, "s/new"), step(Kind::Sync, "s")]);
        assert_eq!(unsynced(&steps), [Path::new("s/new")].into(), "what is written again is synced again");
    }

    #[test]
    fn a_file_that_is_written_where_it_is_made_is_unsynced_until_its_folder_is_synced_or_it_is_removed() {
        let mut steps = vec![
            step(Kind::Create, "s/log"),
            step(Kind::Write, "s/log"),
            step(Kind::Sync, "s/log"),
            step(Kind::Create, "s/lock"),
            // A file without a name.
            step(Kind::Create, "s"),
            step(Kind::Write, "s/#7 (deleted)"),
        ];
        assert_eq!(unsynced(&steps), [Path::new("s/log")].into(), "no folder has its name for good");
        let made = steps.clone();
        steps.push(step(Kind::Sync, "s"));
        assert_eq!(unsynced(&steps), BTreeSet::new());
        for removed in ["s/log", "s"] {
            let steps = [&made[..], &[step(Kind::Unlink, removed)]].concat();
            assert_eq!(unsynced(&steps), BTreeSet::new(), "{removed}");
        }
    }
}
