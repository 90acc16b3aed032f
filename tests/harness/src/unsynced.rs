//! What a program wrote and did not bring to the disk, by its steps.

use std::collections::BTreeSet;
use std::path::Path;

use super::disk::{Kind, Taken};

/// What a power cut may take, or leave half of: files that were written and folders in which files got other names, and that were neither
/// synced since nor removed. Files have the names that they were written under; those without one are left out.
pub fn unsynced(steps: &[Taken]) -> BTreeSet<&Path> {
    let mut unsynced = BTreeSet::new();
    for Taken { kind, path, .. } in steps {
        match kind {
            Kind::Write if !path.to_string_lossy().ends_with(" (deleted)") => {
                unsynced.extend([path.as_path()]);
            }
            Kind::Rename => unsynced.extend(path.parent()),
            Kind::Sync | Kind::Unlink => drop(unsynced.remove(path.as_path())),
            _ => {}
        }
    }
    unsynced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_or_renamed_is_unsynced_until_it_is_synced_or_removed() {
        let step = |kind, path: &str| Taken { kind, path: path.into(), is_met: false };
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
}
