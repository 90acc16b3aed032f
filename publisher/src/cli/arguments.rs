//! Flags, and their environment variables.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bytesize::ByteSize;
use clap::{
    Args, CommandFactory, Parser, Subcommand, builder::PossibleValuesParser, builder::TypedValueParser,
};
use resync_common::{
    completions::{Completions, Man},
    habits::{GLOBAL, habitual, parse, with_variables},
    values::{address, duration, duration_or_zero, number, size},
    words::quoted,
};
use resync_core::{
    datetime::DateTime,
    digest::Algorithm,
    lint::{MAX_DOCUMENTS, MAX_REQUESTS},
};
use resync_publisher::{
    BaseUrl, Error, HubUrl, Settings, UrlError,
    check::PACKAGE_BYTES,
    config::{self, Config},
    forget::Which,
    notify::Token,
    state::{State, set_folders},
};

use super::{
    Failure,
    help::HELP,
    request::{BuildRequest, SetSettings, place_of_hubs},
};

/// What is logged usually.
pub(crate) const LOG: &str = "warn";

/// Turn a folder of files into a ResourceSync Source, and notify its hubs of changes.
#[derive(Debug, Parser)]
#[command(name = "resync-source", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What to log on standard error: off, error, warn, info, debug, trace, or a filter such as `resync_publisher=debug`
    #[arg(long, global = true, default_value = LOG, value_name = "FILTER", help_heading = GLOBAL)]
    pub(crate) log: String,
    /// Print failures only, and what --json asks for
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a commented source.toml; asks for missing values
    Init(InitArgs),
    /// Write or update the documents for the files of a folder
    Build {
        #[command(flatten)]
        build: BuildArgs,
        #[command(flatten)]
        dry_run: DryRunArgs,
    },
    /// Notify the hubs of resources and documents that changed
    Notify(NotifyArgs),
    /// Build, then notify
    Publish {
        #[command(flatten)]
        build: BuildArgs,
        #[command(flatten)]
        token: TokenArgs,
        #[command(flatten)]
        dry_run: DryRunArgs,
    },
    /// Build and notify now and whenever a file changes, until it is stopped
    Watch {
        #[command(flatten)]
        build: BuildArgs,
        #[command(flatten)]
        tokens: Tokens,
        /// How often to look at all files, in case an event was missed; 0 for never
        #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_or_zero)]
        rescan: Duration,
    },
    /// Build, then pack every resource into a Resource Dump, or every change since the last one into a Change Dump
    Dump {
        #[command(flatten)]
        build: BuildArgs,
        /// Pack the changes, not the resources
        #[arg(long)]
        changes: bool,
    },
    /// Serve the files, the documents and the topic URIs over HTTP
    Serve(ServeArgs),
    /// Check a document, a folder or a whole site against the rules; exit code 1 if one is broken
    Check(CheckArgs),
    /// Show what was built, and what waits for each hub
    Status(StatusArgs),
    /// Take versions of a file out for good; without --at or --all, list those that are kept
    Forget(ForgetArgs),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell
    Completions(Completions),
    /// Write man pages into a folder
    Man(Man),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the file
    Check(ConfigArgs),
    /// Print every key with its meaning, and its value in the file or else its default
    Print(ConfigArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file [default: source.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    pub(crate) fn file(self) -> Option<PathBuf> {
        self.config.or_else(usual_file)
    }
}

/// The configuration of a site that is here.
fn usual_file() -> Option<PathBuf> {
    Some(PathBuf::from(config::FILE)).filter(|path| path.exists())
}

#[derive(Debug, Args)]
pub(crate) struct OutArgs {
    /// The folder of the site: documents, and the state in `.resync-source`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The configuration file; --out overrides its `out` [default: source.toml, if it exists and --out is not given]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl OutArgs {
    /// The configuration, if that names the site.
    fn config(&self) -> Result<Option<Config>, Failure> {
        match (&self.config, &self.out) {
            (Some(path), None) => Ok(Some(Config::load(path)?)),
            (Some(path), Some(out)) => Ok(Some(Config::load(path)?.at(out))),
            (None, Some(_)) => Ok(None),
            (None, None) => Ok(Some(Config::load(&usual_file().ok_or(Failure::NoSite)?)?)),
        }
    }

    /// The configuration file, which need not exist.
    pub(crate) fn file(&self) -> PathBuf {
        self.config.clone().unwrap_or_else(|| config::FILE.into())
    }

    /// What to type and where to edit, for this site.
    pub(crate) fn hints(&self) -> Hints {
        let is_configured = self.config.is_some() || self.out.is_none();
        self.hints_with(place_of_hubs(is_configured.then(|| self.file()).as_deref()))
    }

    /// The same where hubs are named elsewhere.
    pub(crate) fn hints_with(&self, place_of_hubs: String) -> Hints {
        let named = [("--config", &self.config), ("--out", &self.out)].into_iter();
        let typed = |path: &PathBuf| quoted(&path.to_string_lossy());
        let named = named.filter_map(|(flag, path)| Some(format!(" {flag} {}", path.as_ref().map(typed)?)));
        Hints { place_of_hubs, site: named.collect() }
    }

    /// The folder of the site.
    pub(crate) fn out(&self) -> Result<PathBuf, Failure> {
        match (&self.out, self.config()?) {
            (Some(out), _) => Ok(out.clone()),
            (None, Some(config)) => Ok(config.out),
            (None, None) => Err(Failure::NoSite),
        }
    }

    /// The folders of the sets that have been built, at least one.
    pub(crate) fn outs(&self) -> Result<Vec<PathBuf>, Failure> {
        outs_of(&self.out()?)
    }
}

/// What a message says that tells somebody what to do.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    /// Where to add a hub: in the configuration, or by a flag if there is none.
    pub(crate) place_of_hubs: String,
    /// The flags that name the site, each behind a space.
    site: String,
}

impl Hints {
    /// What to type: `notify` with these flags.
    pub(crate) fn notify(&self, flags: &str) -> String {
        format!("`resync-source notify{}{flags}`", self.site)
    }
}

/// The folders of the sets of a site that have been built, at least one.
pub(crate) fn outs_of(out: &Path) -> Result<Vec<PathBuf>, Failure> {
    let outs = set_folders(out)?;
    if outs.is_empty() { Err(Error::NotBuilt { out: out.to_owned() }.into()) } else { Ok(outs) }
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = config::FILE)]
    pub(crate) config: PathBuf,
    /// The folder whose files are the resources
    #[arg(env = "RESYNC_SOURCE_DIR", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// The URL under which that folder is published
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The folder of the site [default: site, beside the file]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// A hub (repeatable)
    #[arg(long, value_name = "URL", value_delimiter = ' ')]
    pub(crate) hub: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DryRunArgs {
    /// Only print what would be written, changed, removed and notified; writes new lists and the inventory into a temporary folder below TMPDIR
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The folder whose files are the resources; without it and --base-url, the settings of the last build apply
    #[arg(env = "RESYNC_SOURCE_DIR", value_name = "DIR", requires = "base_url")]
    directory: Option<PathBuf>,
    /// The URL under which that folder is published
    #[arg(long, value_name = "URL", requires = "directory")]
    base_url: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// Hashes in the Resource List: md5, sha-1, sha-256 (repeatable) [default: those of the last build, at first sha-256]
    #[arg(long, value_name = "ALGORITHM", value_delimiter = ',', value_parser = algorithm(), ignore_case = true)]
    hash: Vec<Algorithm>,
    /// A hub for both notification channels (repeatable) [default: those of the last build, at first none]
    #[arg(long, value_name = "URL", value_delimiter = ' ')]
    pub(crate) hub: Vec<String>,
    /// Remove all hubs, and with them the channels
    #[arg(long, conflicts_with = "hub")]
    no_hub: bool,
    /// Build the site from this configuration although it belongs to another one; sets that this one does not list are removed
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Publish even that all files are gone, which is refused otherwise: a disk that is not mounted looks the same
    #[arg(long)]
    pub(crate) allow_empty: bool,
}

impl BuildArgs {
    /// What is to be built: a configuration, overridden by flags, or flags alone.
    pub(crate) fn build_request(&self) -> Result<BuildRequest, Failure> {
        let Some(config) = (if self.directory.is_some() { None } else { self.out.config()? }) else {
            let out = self.out.out.clone().ok_or(Failure::NoSite)?;
            let sets = vec![(out.clone(), self.settings(&out)?)];
            let (configuration, names_all, contradiction) = (None, false, None);
            let (drops, dry_run) = (Vec::new(), None);
            return Ok(BuildRequest { out, sets, configuration, names_all, contradiction, drops, dry_run });
        };
        let contradiction = self.contradiction(&config)?;
        let sets = config.sets.into_iter().map(|(out, settings)| {
            let settings = self.override_in(settings)?;
            let set_settings = SetSettings {
                settings,
                hubs_from_last_build: false,
                hash_from_last_build: false,
                replaced_hubs: Vec::new(),
            };
            Ok((out, set_settings))
        });
        Ok(BuildRequest {
            out: config.out,
            sets: sets.collect::<Result<_, Failure>>()?,
            configuration: Some(self.out.file()),
            names_all: self.out.out.is_none(),
            contradiction,
            drops: Vec::new(),
            dry_run: None,
        })
    }

    /// The hubs of the flags and those of the configuration, where these differ.
    fn contradiction(&self, config: &Config) -> Result<Option<String>, UrlError> {
        let given = self.hub.iter().map(|hub| HubUrl::parse(hub)).collect::<Result<BTreeSet<_>, _>>()?;
        let configured: BTreeSet<_> =
            config.sets.iter().flat_map(|(_, set)| set.hubs.iter().cloned()).collect();
        if self.keeps_hubs() || given == configured {
            return Ok(None);
        }
        let names = |hubs: &BTreeSet<HubUrl>| {
            if hubs.is_empty() {
                "none".to_owned()
            } else {
                hubs.iter().map(HubUrl::as_str).collect::<Vec<_>>().join(", ")
            }
        };
        Ok(Some(format!(
            "the hubs of this run ({}) contradict `hubs` of {} ({}); to keep them, write them there",
            names(&given),
            self.out.file().display(),
            names(&configured)
        )))
    }

    /// The settings of the flags, over those of the last build.
    fn settings(&self, out: &Path) -> Result<SetSettings, Failure> {
        self.directory.as_deref().map_or(Ok(()), check_collection)?;
        let stored = State::load_if_built(out)?.map(|state| state.settings);
        let known = stored.is_some();
        let known_hubs = stored.as_ref().map_or(Vec::new(), |settings| settings.hubs.clone());
        let settings = match (stored, &self.directory, &self.base_url) {
            (Some(stored), Some(directory), Some(base)) => {
                Settings { directory: directory.clone(), base_url: BaseUrl::parse(base)?, ..stored }
            }
            (None, Some(directory), Some(base)) => Settings::new(directory, BaseUrl::parse(base)?),
            (Some(stored), ..) => stored,
            (None, ..) => return Err(Error::NotBuilt { out: out.to_owned() }.into()),
        };
        let settings = self.override_in(settings)?;
        let replaced_hubs =
            if self.hub.is_empty() { Vec::new() } else { without(known_hubs, &settings.hubs) };
        Ok(SetSettings {
            settings,
            replaced_hubs,
            hubs_from_last_build: known && self.keeps_hubs(),
            hash_from_last_build: known && self.hash.is_empty(),
        })
    }

    fn keeps_hubs(&self) -> bool {
        self.hub.is_empty() && !self.no_hub
    }

    fn override_in(&self, mut settings: Settings) -> Result<Settings, UrlError> {
        if !self.keeps_hubs() {
            settings.hubs.clear();
        }
        let settings = settings.hashes(self.hash.iter().copied());
        let mut hubs = self.hub.iter();
        hubs.try_fold(settings, |settings, hub| HubUrl::parse(hub).map(|hub| settings.hub(hub)))
    }
}

/// Without the hubs that are named, be it with or without the final slash.
fn without(mut hubs: Vec<HubUrl>, named: &[HubUrl]) -> Vec<HubUrl> {
    hubs.retain(|hub| !named.iter().any(|named| named.is_same(hub)));
    hubs
}

/// Refuses a folder that the command line names and that is not there. One that a configuration names may be mounted later.
fn check_collection(collection: &Path) -> Result<(), Failure> {
    let reason = match fs::metadata(collection) {
        Ok(found) if !found.is_dir() => io::ErrorKind::NotADirectory.into(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => error,
        // What else may be wrong with it, the build says.
        _ => return Ok(()),
    };
    Err(Failure::NoCollection { path: collection.to_owned(), reason })
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// How long to retry if a hub fails, after 1 s, 2 s, 4 s and so on up to 5 min, or later if the hub asks for it
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration_or_zero)]
    pub(crate) retry: Duration,
    /// Leave a hub that is no longer named: what waits for it is discarded, and it is notified once more so that its subscribers find the new hubs (repeatable)
    #[arg(long, value_name = "URL")]
    pub(crate) drop_hub: Vec<HubUrl>,
    #[command(flatten)]
    pub(crate) tokens: Tokens,
}

#[derive(Debug, Args)]
pub(crate) struct Tokens {
    /// Bearer token for the hub, which must cover both topics, resync/changes/ and resync/framework/ below the base URL; with several hubs `HUB_URL=TOKEN`
    /// (repeatable)
    #[arg(long, hide_env_values = true, value_name = "TOKEN", value_delimiter = ' ')]
    pub(crate) token: Vec<Token>,
}

#[derive(Debug, Args)]
pub(crate) struct NotifyArgs {
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// Skip the Change Notification of this number, which a hub has refused, and send later ones; `status` shows the number
    #[arg(long, value_name = "N", value_parser = number::<u64>)]
    pub(crate) skip: Option<u64>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDR", value_parser = address)]
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// A file of the collection, which may be gone, or its URI in the lists
    #[arg(value_name = "FILE|URI")]
    pub(crate) resource: OsString,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// Remove the version that began at this moment, as the list shows it
    #[arg(long, value_name = "TIME", group = "which")]
    at: Option<DateTime>,
    /// Remove all versions of the file
    #[arg(long, group = "which")]
    all: bool,
    /// Remove them even if other versions have the same bytes, which are then removed, too
    #[arg(long, requires = "which")]
    pub(crate) with_others: bool,
    /// Only print what would be removed
    #[arg(short = 'n', long, requires = "which")]
    pub(crate) dry_run: bool,
}

impl ForgetArgs {
    /// What is to be removed; `None` to list what is kept.
    pub(crate) fn which(&self) -> Option<Which> {
        self.at.map(Which::At).or_else(|| self.all.then_some(Which::All))
    }
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files, the folder of a site, or the URL of a document, best of a Source Description; Change Notifications in the order they were sent
    /// [default: the site that --out or the configuration names]
    #[arg(env = "RESYNC_SOURCE_CHECK", value_name = "FILE|DIR|URL")]
    targets: Vec<OsString>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    /// The URL under which the folder is published [default: that of the last build, or of its Source Description]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Time limit for the check of a URL, such as 90s or 1h
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub(crate) deadline: Duration,
    /// Maximum number of requests of a check, for documents, packages and topics
    #[arg(long, value_name = "N", default_value_t = MAX_REQUESTS, value_parser = number::<usize>)]
    pub(crate) max_requests: usize,
    /// Maximum number of documents of a check
    #[arg(long, value_name = "N", default_value_t = MAX_DOCUMENTS, value_parser = number::<usize>)]
    pub(crate) max_documents: usize,
    /// Maximum bytes of packages that the check of a URL fetches, such as 500MB; 0B for none
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(PACKAGE_BYTES), value_parser = size)]
    pub(crate) packages: ByteSize,
}

impl CheckArgs {
    /// What is to be checked, at least one.
    pub(crate) fn targets(&self) -> Result<Vec<OsString>, Failure> {
        if self.targets.is_empty() { Ok(vec![self.out.out()?.into()]) } else { Ok(self.targets.clone()) }
    }
}

impl Cli {
    /// The command line of this process.
    pub(crate) fn of_process() -> Self {
        parse(command())
    }
}

/// Flags without a variable, which would apply to every run.
const ONE_RUN: [&str; 8] =
    ["take_over", "allow_empty", "drop_hub", "dry_run", "resource", "at", "all", "with_others"];

/// The command line with all its habits.
pub(crate) fn command() -> clap::Command {
    with_variables(habitual(Cli::command(), &HELP), "RESYNC_SOURCE_", &ONE_RUN)
}

fn algorithm() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(["md5", "sha-1", "sha-256"]).try_map(|name| name.parse::<Algorithm>())
}

#[cfg(test)]
mod tests {
    use resync_common::habits::wrong_help;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_help_is_complete_and_its_examples_are_command_lines() {
        assert_eq!(wrong_help(&command(), &HELP), Vec::<String>::new());
    }

    #[test]
    fn what_is_to_be_typed_can_be_pasted_into_a_shell() {
        let site = OutArgs { out: None, config: Some("our site/source.toml".into()), json: false };
        assert_eq!(
            site.hints().notify(" --skip 1"),
            "`resync-source notify --config 'our site/source.toml' --skip 1`"
        );
    }

    #[test]
    fn every_flag_but_those_of_a_single_run_has_an_environment_variable() {
        let is_for_packagers =
            |command: &&clap::Command| ["completions", "man"].contains(&command.get_name());
        for command in command().get_subcommands().filter(|command| !is_for_packagers(command)) {
            for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
                if ONE_RUN.contains(&argument.get_id().as_str()) {
                    assert_eq!(argument.get_env(), None);
                    continue;
                }
                let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
                assert!(
                    variable.is_some_and(|name| name.starts_with("RESYNC_SOURCE_")),
                    "{}",
                    argument.get_id()
                );
            }
        }
    }
}
