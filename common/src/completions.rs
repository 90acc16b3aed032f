//! Completions for shells, and man pages: made from the command line itself.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Arg, Args, Command};
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
        let mut script = String::from_utf8_lossy(&script).into_owned();
        if matches!(self.shell, Shell::Fish) {
            script += &positionals_for_fish(&program);
        }
        // For bash, clap_complete 4.6 spells a dash in the name of the program in two ways, so that no command is recognised.
        let (wrong, right) = (name.replace('-', "__subcmd__"), name.replace('-', "__"));
        script.replace(&wrong, &right).trim_end().to_owned()
    }
}

/// What fish completes where a value stands without a flag. `clap_complete` 4.6 says nothing of it, and fish offers files then.
fn positionals_for_fish(program: &Command) -> String {
    let name = program.get_name();
    let using = format!("__fish_{}_using_subcommand", name.replace('-', "_"));
    let mut lines = String::new();
    for command in program.get_subcommands() {
        let condition = format!("{using} {}", command.get_name());
        lines += &line_for_fish(name, &condition, command);
        for below in command.get_subcommands() {
            let condition = format!("{condition}; and __fish_seen_subcommand_from {}", below.get_name());
            lines += &line_for_fish(name, &condition, below);
        }
    }
    lines
}

fn line_for_fish(program: &str, condition: &str, command: &Command) -> String {
    let takes = |what: &str| {
        let mut names = command.get_positionals().filter_map(Arg::get_value_names).flatten();
        names.any(|name| name.to_string().contains(what))
    };
    if command.has_subcommands() || takes("FILE") {
        return String::new();
    }
    let values = command.get_positionals().flat_map(Arg::get_possible_values);
    let values: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
    let values = if takes("DIR") { "(__fish_complete_directories)".to_owned() } else { values.join(" ") };
    format!("complete -c {program} -n \"{condition}\" -f -a \"{values}\"\n")
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
