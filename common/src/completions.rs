//! Completions for shells, and man pages: made from the command line itself.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

/// The arguments of the command that prints completions.
#[derive(Args, Clone, Copy, Debug)]
pub struct Completions {
    /// For which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    /// The script that completes the command lines of this program.
    pub fn script(self, mut program: Command) -> String {
        let (name, mut script) = (program.get_name().to_owned(), Vec::new());
        clap_complete::generate(self.shell, &mut program, &name, &mut script);
        let script = String::from_utf8_lossy(&script);
        // For bash, clap_complete 4.6 spells a dash in the name of the program in two ways, so that no command is recognised.
        let (wrong, right) = (name.replace('-', "__subcmd__"), name.replace('-', "__"));
        script.replace(&wrong, &right).trim_end().to_owned()
    }
}

/// The arguments of the command that writes man pages.
#[derive(Args, Clone, Debug)]
pub struct Man {
    /// Where to write them
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    /// Writes a page for this program and for each of its commands; an error names the folder.
    pub fn write(&self, program: Command) -> io::Result<()> {
        let written =
            fs::create_dir_all(&self.dir).and_then(|()| clap_mangen::generate_to(program, &self.dir));
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write to {}: {error}", self.dir.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_folder_that_cannot_be_written_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let man = Man { dir: file.path().join("below") };
        let error = man.write(Command::new("program")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write to {}: ", man.dir.display())), "{error}");
    }
}
