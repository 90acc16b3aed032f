//! Completions for shells, and man pages: made from the command line itself.

use std::{fs, path::Path};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::{Cli, Failure};

pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "resync-source", &mut script);
    String::from_utf8_lossy(&script).trim_end().to_owned()
}

pub(crate) fn man(dir: &Path) -> Result<(), Failure> {
    let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    written.map_err(|error| Failure::Papers(dir.to_owned(), error))
}
