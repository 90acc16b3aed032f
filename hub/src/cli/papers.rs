//! Completions for shells, and man pages: made from the command line itself.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failure, say};

const NAME: &str = "resync-hub";

#[derive(Args, Debug)]
pub(super) struct Completions {
    /// For which shell
    shell: Shell,
}

#[derive(Args, Debug)]
pub(super) struct Man {
    /// Where to write them
    dir: PathBuf,
}

pub(super) fn completions(wanted: &Completions) {
    let mut script = Vec::new();
    clap_complete::generate(wanted.shell, &mut Cli::command(), NAME, &mut script);
    say(String::from_utf8_lossy(&script).trim_end());
}

pub(super) fn man(wanted: &Man) -> Result<(), Failure> {
    let write = |dir: &Path| {
        fs::create_dir_all(dir)?;
        clap_mangen::generate_to(Cli::command(), dir)
    };
    write(&wanted.dir).map_err(|error| Failure::new(format_args!("{}: {error}", wanted.dir.display())))
}
