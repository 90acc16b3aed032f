//! Folders for measurements, of which nothing stays however their program ends.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Removes the folder when standard input ends, which is when whoever has started this has ended, however that came. What was started in
/// the folder may still be ending then, and write meanwhile. It fails if the folder cannot be removed.
const KEEPER: &str = r#"trap '' INT TERM HUP
read -r _
tries=100
until rm -rf -- "$0"; do
    [ "$tries" != 0 ] || exit 1
    tries=$((tries - 1))
    sleep 0.1
done"#;

/// A new folder. It is removed when this is dropped, and also when the program is killed.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keeper: Child,
}

impl Scratch {
    /// One in this folder.
    ///
    /// # Errors
    /// When it cannot be made, or there is no shell.
    pub fn new_in(place: &Path) -> io::Result<Self> {
        let folder = tempfile::tempdir_in(place)?;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(folder.path());
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own: what a terminal sends to the program does not reach it.
        let keeper = keeper.process_group(0).spawn()?;
        Ok(Self { path: folder.keep(), keeper })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // This closes its standard input first.
        if !self.keeper.wait().is_ok_and(|status| status.success()) {
            eprintln!("left {}: remove it", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_value_whatever_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::new_in(place.path()).unwrap();
        std::fs::create_dir(scratch.path().join("data")).unwrap();
        std::fs::write(scratch.path().join("data/log"), "news").unwrap();
        drop(scratch);
        assert_eq!(place.path().read_dir().unwrap().count(), 0);
    }
}
