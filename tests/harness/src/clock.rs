//! A clock that jumps: a library under the hub adds to the time of day whatever it is told (`clock.c`).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::preload;

/// Where the library counts.
const TOLD_AT: u64 = 8;

/// The clock of a process.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    path: PathBuf,
    control: File,
}

impl Clock {
    /// One that goes right so far, with its files in this folder.
    ///
    /// # Panics
    /// When the library cannot be built: the system has no C compiler.
    pub fn new(folder: &Path) -> Self {
        let library = preload::build("clock", &[("clock.c", include_str!("clock.c"))], folder);
        let path = folder.join("clock");
        let control = File::options().read(true).write(true).create_new(true).open(&path);
        let control = control.expect("a file can be made");
        control.write_all_at(&[0; 16], 0).expect("a file can be written");
        Self { library, path, control }
    }

    /// The environment of a process that lives by this clock.
    pub fn environment(&self) -> [(String, String); 2] {
        [
            ("LD_PRELOAD".to_owned(), self.library.display().to_string()),
            ("RESYNC_CLOCK_CONTROL".to_owned(), self.path.display().to_string()),
        ]
    }

    /// From now on it is so many seconds fast, or slow.
    ///
    /// # Panics
    /// When the file for it cannot be written.
    pub fn jump(&self, seconds: i64) {
        self.control.write_all_at(&seconds.to_ne_bytes(), 0).expect("a file can be written");
    }

    /// How often the process was told a wrong time so far.
    ///
    /// # Panics
    /// When the file for it cannot be read.
    pub fn told(&self) -> i64 {
        let mut word = [0; 8];
        self.control.read_exact_at(&mut word, TOLD_AT).expect("a file can be read");
        i64::from_ne_bytes(word)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_process_lives_by_the_clock_that_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::new(folder.path());
        let ask = || Command::new("date").arg("+%s").envs(clock.environment()).output().unwrap();
        ask();
        assert_eq!(clock.told(), 0, "the right time is not counted");
        clock.jump(-86_400);
        assert_eq!(clock.told(), 0, "nobody has asked");
        let told = ask();
        assert!(clock.told() > 0);
        let told: u64 = String::from_utf8(told.stdout).unwrap().trim().parse().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((86_390..=86_410).contains(&(now - told)), "{now} {told}");
    }
}
