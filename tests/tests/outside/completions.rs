//! Completions, asked for in the shells themselves: at the second level, and for the values of flags.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use resync_harness::binary;
use tempfile::tempdir;

/// What stands before the cursor, and what may follow.
const LINES: [(&str, &[&str]); 9] = [
    ("resync-hub completions ", &["bash", "elvish", "fish", "powershell", "zsh"]),
    ("resync-hub token ", &["add", "list", "revoke"]),
    ("resync-hub deliveries la", &["laggards"]),
    ("resync-hub log-level --j", &["--json"]),
    ("resync-source build --hash ", &["md5", "sha-1", "sha-256"]),
    ("resync-source publish --r", &["--retry"]),
    ("resync-destination config ", &["check", "print"]),
    ("resync-destination sync --baseline ", &["cheaper", "dump", "list"]),
    ("resync-load fanout --engine ", &["fjall", "sled"]),
];

/// bash SCRIPT WORD…: the last word is the one to complete.
const BASH: &str = r#"
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
function=$(complete -p "$1" | sed 's/.*-F \([^ ]*\).*/\1/')
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// zsh FOLDER LINE: a second zsh is typed to, as on a terminal, and writes between two NULs what it would complete.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty typed zsh -f -i
zpty -w typed "fpath=($1 \$fpath); source $1/setup.zsh; print ready"
while zpty -r typed line; do [[ $line == ready* ]] && break; done
zpty -w typed "$2"$'\t'
zpty -r typed seen $'*\0*\0'
zpty -d typed
print -r -- ${${${seen#*$'\0'}%$'\0'*}//$'\r'/}
"#;
const ZSH_SETUP: &str = r#"
PROMPT=
autoload compinit
compinit -u -D
bindkey '^I' complete-word
mark() { echo -E - $'\0' }
compprefuncs=( mark )
comppostfuncs=( mark exit )
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return $?
    fi
    typeset -a hits
    builtin compadd -A hits "$@"
    print -rl -- $hits
}
"#;

/// A folder with the completions of the programs that `LINES` has.
fn written(folder: &Path, shell: &str, name: impl Fn(&str) -> String) {
    let programs: BTreeSet<_> = LINES.iter().map(|(line, _)| program(line)).collect();
    for program in programs {
        let output = Command::new(binary(program)).args(["completions", shell]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::write(folder.join(name(program)), output.stdout).unwrap();
    }
}

fn program(line: &str) -> &str {
    line.split(' ').next().unwrap()
}

/// Each line is followed by what is expected, and by nothing else but help.
fn hold(shell: &str, complete: impl Fn(&str) -> Command) {
    for (line, expected) in LINES {
        let output = complete(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = said.lines().filter_map(|line| line.split('\t').next()).map(str::trim);
        // Flags may follow everywhere.
        let is_asked =
            |word: &&str| !["", "help"].contains(word) && (line.contains(" -") || !word.starts_with('-'));
        let words: BTreeSet<_> = words.filter(is_asked).collect();
        assert_eq!(words, expected.iter().copied().collect(), "{shell}: {line:?}: {output:?}");
    }
}

#[test]
fn bash_completes_commands_below_commands_and_values_of_flags() {
    let folder = tempdir().unwrap();
    written(folder.path(), "bash", str::to_owned);
    hold("bash", |line| {
        let mut command = Command::new("bash");
        let words: Vec<_> = line.split(' ').collect();
        command.args(["-c", BASH, "bash"]).arg(folder.path().join(program(line))).args(words);
        command
    });
}

#[test]
fn zsh_completes_commands_below_commands_and_values_of_flags() {
    let folder = tempdir().unwrap();
    written(folder.path(), "zsh", |program| format!("_{program}"));
    fs::write(folder.path().join("setup.zsh"), ZSH_SETUP).unwrap();
    hold("zsh", |line| {
        let mut command = Command::new("zsh");
        command.args(["-f", "-c", ZSH, "zsh"]).arg(folder.path()).arg(line);
        command
    });
}

#[test]
fn fish_completes_commands_below_commands_and_values_of_flags() {
    let folder = tempdir().unwrap();
    written(folder.path(), "fish", str::to_owned);
    hold("fish", |line| fish(folder.path(), line));
}

fn fish(folder: &Path, line: &str) -> Command {
    let script = format!("source $argv[1]; complete -C '{line}'");
    let mut command = Command::new("fish");
    command.args(["--no-config", "-c", &script]).arg(folder.join(program(line)));
    command.env("HOME", folder).current_dir(folder);
    command
}

#[test]
fn fish_completes_paths_where_a_path_is_meant_and_nowhere_else() {
    let folder = tempdir().unwrap();
    written(folder.path(), "fish", str::to_owned);
    fs::create_dir(folder.path().join("papers")).unwrap();
    let completed = |line: &str| {
        let output = fish(folder.path(), line).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for line in ["resync-hub token revoke ", "resync-hub topics ", "resync-source init --base-url "] {
        assert_eq!(completed(line), "", "{line}");
    }
    for line in ["resync-source build ", "resync-source init --out ", "resync-hub man "] {
        let said = completed(line);
        assert!(said.contains("papers/") && !said.contains("resync-hub"), "{line}: {said}");
    }
    for line in ["resync-source check ", "resync-hub restore ", "resync-hub topics --config "] {
        let said = completed(line);
        assert!(said.contains("papers/") && said.contains("resync-hub"), "{line}: {said}");
    }
}
