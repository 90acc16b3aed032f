//! The command line: flags, what each command does, and how it reports.

mod arguments;
mod build;
mod failure;
mod findings;
mod forget;
mod help;
mod init;
mod json;
mod notify;
mod progress;
mod request;
mod sets;
mod show;
mod text;
mod tokens;
mod watch;

use std::io;

use resync_common::output::{answer, say};
use resync_publisher::{config, config::Config, publish::BuildMode};
use serde_json::Value;

use self::arguments::{Command, ConfigCommand, command as command_line};
pub(crate) use self::{
    arguments::{Cli, LOG},
    failure::Failure,
};

pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Init(arguments) => init::run(arguments),
        Command::Build { build, dry_run } if dry_run.dry_run => build::try_out(&build, None).await,
        Command::Build { build, .. } => {
            let mut report = build::all(&build, build.build_request()?, BuildMode::Full).await?;
            let outcome = report.outcome();
            report.print(build.out.json, []).and(outcome)
        }
        Command::Notify(arguments) => notify::run(&arguments).await,
        Command::Publish { build, token, dry_run } if dry_run.dry_run => {
            build::try_out(&build, Some(&token)).await
        }
        Command::Publish { build, token, .. } => build::publish(&build, &token).await,
        Command::Dump { build, changes } => build::dump(&build, changes).await,
        Command::Watch { build, tokens, rescan } => watch::run(&build, tokens.token, rescan).await,
        Command::Serve(arguments) => show::serve(arguments).await,
        Command::Check(arguments) => show::check(&arguments).await,
        Command::Status(arguments) => show::status(&arguments),
        Command::Forget(arguments) => forget::run(&arguments),
        Command::Config(ConfigCommand::Check(arguments)) => {
            let file = arguments.file().ok_or(Failure::NoConfiguration)?;
            Config::load(&file)?;
            say(format_args!("{} can be used", file.display()));
            Ok(())
        }
        Command::Config(ConfigCommand::Print(arguments)) => {
            answer(config::print(arguments.file().as_deref())?.trim_end());
            Ok(())
        }
        Command::Completions(wanted) => {
            answer(wanted.script(command_line()));
            Ok(())
        }
        Command::Man(wanted) => wanted.write(command_line()).map_err(Failure::Man),
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    answer(serde_json::to_string_pretty(value).map_err(io::Error::from)?);
    Ok(())
}

/// A set that failed, in the JSON of a command.
fn failed_set(name: Option<&str>, error: &dyn std::fmt::Display) -> Value {
    serde_json::json!({ "set": name, "error": error.to_string() })
}
