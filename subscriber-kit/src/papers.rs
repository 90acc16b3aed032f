//! Completions for shells, and man pages: made from the command line itself.

use std::fs;
use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::cli;

pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "resync-destination", &mut script);
    String::from_utf8_lossy(&script).trim_end().to_owned()
}

pub(crate) fn man(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(cli::command(), dir)
}
