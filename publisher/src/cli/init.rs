//! `init`: writes a configuration file, and asks for missing values.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use resync_common::{
    output::{say, warn},
    words::quoted,
};
use resync_publisher::{BaseUrl, HubUrl, config};

use super::{Failure, arguments::InitArgs};

pub(super) fn run(arguments: InitArgs) -> Result<(), Failure> {
    let InitArgs { config: path, directory, base_url, out, mut hub } = arguments;
    if path.exists() {
        return Err(config::ConfigError::Exists { path }.into());
    }
    let asks = directory.is_none() || base_url.is_none();
    let directory = match directory {
        Some(directory) => directory,
        None => ask("The folder whose files are the resources", "the folder", "DIR")?.into(),
    };
    let base_url = match base_url {
        Some(base_url) => base_url,
        None => ask(
            "The URL under which that folder is published, as https://example.org/data/",
            "the base URL",
            "--base-url URL",
        )?,
    };
    let base_url = BaseUrl::parse(&base_url)?;
    if asks && hub.is_empty() {
        hub.extend(answer("The URL of a hub to notify of changes; empty for none")?);
    }
    let hubs = hub.iter().map(|hub| HubUrl::parse(hub)).collect::<Result<Vec<_>, _>>()?;
    // Paths in the file start from its folder, those of flags from where the program runs.
    let is_elsewhere = path.parent().is_some_and(|folder| !folder.as_os_str().is_empty());
    let written = |given: PathBuf| if is_elsewhere { std::path::absolute(given) } else { Ok(given) };
    let out = out.map_or_else(|| Ok(config::OUT.into()), written)?;
    let directory = written(directory)?;
    if !directory.is_dir() {
        warn(format_args!("the folder `{}` does not exist yet", directory.display()));
    }
    config::write_new(&path, &out, &directory, &base_url, &hubs)?;
    let flag = if path == Path::new(config::FILE) {
        String::new()
    } else {
        format!(" --config {}", quoted(&path.to_string_lossy()))
    };
    say(format_args!("{} written; check it, then run `resync-source publish{flag}`", path.display()));
    Ok(())
}

/// Asks on the terminal; `None` without a terminal or an answer.
fn answer(question: &str) -> Result<Option<String>, Failure> {
    let mut answer = String::new();
    if io::stdin().is_terminal() {
        write!(io::stderr(), "{question}: ")?;
        io::stdin().read_line(&mut answer)?;
    }
    Ok(Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty()))
}

fn ask(question: &str, what: &'static str, flag: &'static str) -> Result<String, Failure> {
    answer(question)?.ok_or(Failure::NotAsked(what, flag))
}
