//! Which hub's files a command is about: those that are named, else those of the hub that runs in `./data`, else those of the service.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use resync_common::habits::USAGE;
use resync_hub::admin::Running;
use resync_hub::config::{Config, ConfigError};

use super::owner::AS_ROOT;
use super::{Failure, Settings};

/// The configuration of a hub that is installed as a service.
const INSTALLED: &str = "/etc/resync-hub/hub.toml";

/// Which hub's files are meant.
#[derive(Args, Clone, Debug)]
pub(super) struct WhichHub {
    /// Configuration file (TOML). If neither this nor the data folder is given, the hub that runs in ./data is meant, or else that of
    /// /etc/resync-hub/hub.toml if it exists
    #[arg(long, value_name = "FILE", env = "RESYNC_HUB_CONFIG", global = true)]
    config: Option<PathBuf>,
    /// The hub's data folder
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<String>,
}

impl WhichHub {
    /// Its configuration.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        self.named()?.read()
    }

    /// Names the hub that is meant now, so that it stays the same when hubs stop or start meanwhile.
    pub(super) fn named(&self) -> Result<Self, Failure> {
        if self.config.is_some() || self.data_dir.is_some() || is_said_by_variable() {
            return Ok(self.clone());
        }
        unnamed(self.clone(), Path::new(INSTALLED))
    }

    fn read(&self) -> Result<Config, Failure> {
        let Self { config, data_dir } = self.clone();
        Settings { config, data_dir, ..Settings::default() }.load().map_err(unread)
    }
}

/// The hub that is meant where none is named: the one that runs `here`, or else the service if that is installed.
fn unnamed(here: WhichHub, service: &Path) -> Result<WhichHub, Failure> {
    if !is_there(service) {
        return Ok(here);
    }
    let of_service = WhichHub { config: Some(service.to_owned()), data_dir: None };
    let folder = here.read()?.data_dir;
    if !runs_in(&folder) {
        return Ok(of_service);
    }
    // Without the right to read its files, nobody can mean the service.
    match of_service.read() {
        Ok(config) if is_same(&config.data_dir, &folder) => Ok(of_service),
        Ok(config) if runs_in(&config.data_dir) => Err(Failure {
            code: USAGE,
            message: format!(
                "two hubs run here, in {} and in {}: name the one that you mean with --data-dir",
                folder.display(),
                config.data_dir.display()
            ),
        }),
        _ => Ok(WhichHub { config: None, data_dir: Some(folder.display().to_string()) }),
    }
}

fn runs_in(folder: &Path) -> bool {
    Running::find(folder).is_ok_and(|running| running.is_some())
}

fn is_same(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).ok().zip(fs::canonicalize(other).ok()).is_some_and(|(one, other)| one == other)
}

/// The configuration file that is meant: the named one, or else that of the service, unless a variable names another hub.
pub(super) fn file_in_force(named: Option<PathBuf>) -> Option<PathBuf> {
    let installed = || Some(PathBuf::from(INSTALLED)).filter(|file| !is_said_by_variable() && is_there(file));
    named.or_else(installed)
}

fn is_said_by_variable() -> bool {
    env::var_os("RESYNC_HUB_DATA_DIR").is_some()
}

/// One that may not be looked for is there.
fn is_there(file: &Path) -> bool {
    file.try_exists().unwrap_or(true)
}

/// A configuration that cannot be used; that of the service may be readable to root only.
pub(super) fn unread(error: ConfigError) -> Failure {
    match error {
        ConfigError::Read { path, source } if path == Path::new(INSTALLED) => {
            ConfigError::Read { path, source: io::Error::other(format!("{source}; {AS_ROOT}")) }.into()
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use resync_hub::admin::RunningNote;
    use tempfile::TempDir;

    use super::*;

    /// A machine with room for a hub here, and for a service.
    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            for folder in ["here", "service"] {
                fs::create_dir(machine.folder(folder)).unwrap();
            }
            machine
        }

        fn folder(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn install(&self, data_dir: &Path) {
            fs::write(self.folder("hub.toml"), format!("data_dir = {data_dir:?}\n")).unwrap();
        }

        fn run_in(&self, folder: &str) -> RunningNote {
            let running = Running { admin: "127.0.0.1:1".parse().unwrap(), certificate: None };
            running.write_down(&self.folder(folder)).unwrap()
        }

        /// The data folder of the hub that is meant.
        fn meant(&self) -> Result<PathBuf, Failure> {
            let here = WhichHub { config: None, data_dir: Some(self.folder("here").display().to_string()) };
            unnamed(here, &self.folder("hub.toml"))?.read().map(|config| config.data_dir)
        }
    }

    #[test]
    fn the_hub_that_runs_here_is_meant_before_the_service_which_is_meant_before_one_that_is_stopped() {
        let machine = Machine::new();
        let (here, service) = (machine.folder("here"), machine.folder("service"));
        assert_eq!(machine.meant().unwrap(), here, "none is installed");
        machine.install(&service);
        assert_eq!(machine.meant().unwrap(), service);
        let running = machine.run_in("here");
        assert_eq!(machine.meant().unwrap(), here);
        drop(running);
        let _running = machine.run_in("service");
        assert_eq!(machine.meant().unwrap(), service);
    }

    #[test]
    fn of_two_hubs_that_run_neither_is_taken_and_both_are_named() {
        let machine = Machine::new();
        machine.install(&machine.folder("service"));
        let (_here, _service) = (machine.run_in("here"), machine.run_in("service"));
        let said = machine.meant().unwrap_err().message;
        for folder in ["here", "service"] {
            assert!(said.contains(&machine.folder(folder).display().to_string()), "{said}");
        }
        assert!(said.contains("--data-dir"), "{said}");
        machine.install(&machine.folder("here"));
        assert_eq!(machine.meant().unwrap(), machine.folder("here"), "one hub is not two");
    }

    #[test]
    fn a_service_whose_files_cannot_be_read_does_not_hide_the_hub_that_runs_here() {
        let machine = Machine::new();
        fs::create_dir(machine.folder("hub.toml")).unwrap();
        machine.meant().unwrap_err();
        let _running = machine.run_in("here");
        assert_eq!(machine.meant().unwrap(), machine.folder("here"));
    }
}
