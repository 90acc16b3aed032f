//! Why a command failed, and its exit code.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use resync_common::{
    habits::{BAD_CONFIGURATION, FAILED, USAGE},
    words::{counted, quoted},
};
use resync_core::{build::BuildError, datetime::DateTime};
use resync_publisher::{Error, HubUrl, UrlError, config::ConfigError, publish::DryRun};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(
        "no site given; use --out DIR or --config FILE, or run `resync-source init` to write a source.toml here"
    )]
    NoSite,
    #[error(
        "which configuration? Give --config FILE, or run `resync-source init` to write a source.toml here"
    )]
    NoConfiguration,
    #[error("{0} is missing, and there is no terminal to ask; give it with {1}")]
    NotAsked(&'static str, &'static str),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Publisher(#[from] Error),
    #[error("cannot open the collection `{}`: {reason}; name a folder that is there", path.display())]
    NoCollection { path: PathBuf, reason: io::Error },
    #[error("cannot remove this set, which the configuration no longer lists: {0}")]
    Retire(Arc<Error>),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("--log `{0}` is not a filter; use off, error, warn, info, debug, trace, or target=level")]
    Log(String),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Man(io::Error),
    #[error("--hub names another hub than {}, so say which hub the token is for: --token HUB_URL=TOKEN", .0.display())]
    BareToken(PathBuf),
    #[error("write HUB_URL=TOKEN: {hub}, which the last build was given, is not in `hubs` of {}", file.display())]
    StrangeHub { hub: HubUrl, file: PathBuf },
    #[error("no hub has refused Change Notification {0}, so it is not skipped; see `resync-source status`")]
    NotRefused(u64),
    #[error("no version of `{0}` was ever kept; name a file of the collection, or its URI in the lists")]
    NeverKept(String),
    #[error(
        "`{name}` has no version that began at {at}; list its versions: `resync-source forget {}`",
        quoted(name)
    )]
    NoSuchVersion { name: String, at: DateTime },
    /// The answer of each hub has been printed.
    #[error("{failed} of {} could not be notified", counted(*all, "hub", "hubs"))]
    Hubs { failed: usize, all: usize },
    /// Each failure has been printed; `code` is that of all of them, or else 1.
    #[error("{failed} of {all} sets {what}")]
    Sets { failed: usize, all: usize, what: &'static str, code: u8 },
    /// Each warning has been printed.
    #[error("the lists are published, but due archives or dumps failed; see the warnings")]
    Maintenance,
    /// The warning has been printed.
    #[error("the lists are published, but versions could not be kept; see the warning")]
    Versions,
    /// Each has been printed.
    #[error("rules are broken")]
    Rules,
    /// What hinders it has been printed.
    #[error("nothing could be read, so no rule was checked")]
    Unread,
    #[error("the check could not be completed: {0}")]
    EndedEarly(String),
    /// A failure of a dry run, with the paths of the site.
    #[error("{text}")]
    Tried { text: String, code: u8 },
}

impl Failure {
    /// As for all programs, see CONTRIBUTING.md.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Sets { code, .. } | Self::Tried { code, .. } => *code,
            Self::NoSite
            | Self::NoConfiguration
            | Self::NotAsked(..)
            | Self::Publisher(Error::SeveralKept { .. } | Error::SharedBytes { .. }) => USAGE,
            Self::Url(_)
            | Self::Config(ConfigError::Unusable(_))
            | Self::NoCollection { .. }
            | Self::Log(_)
            | Self::BareToken(_)
            | Self::StrangeHub { .. }
            | Self::Publisher(
                Error::CollectionInSite { .. }
                | Error::NotOfFiles { .. }
                | Error::Ignore { .. }
                | Error::OfAnother { .. }
                | Error::TakenOver { .. }
                | Error::NoHub { .. }
                | Error::StillNamed { .. }
                | Error::WhoseToken { .. }
                | Error::BadToken
                | Error::NoBaseUrl { .. },
            ) => BAD_CONFIGURATION,
            _ => FAILED,
        }
    }

    /// The same failure, where it names what a dry run reads. What it writes is named where it lies, since there is no room there.
    pub(crate) fn tried_in(self, dry_run: &DryRun) -> Self {
        if self.is_of_writing() {
            return self;
        }
        let text = dry_run.with_original_paths(&self.to_string());
        Self::Tried { text, code: self.exit_code() }
    }

    fn is_of_writing(&self) -> bool {
        match self {
            Self::Publisher(Error::File { action, .. }) => action.is_writing(),
            Self::Publisher(Error::Lists(error)) => {
                matches!(error, BuildError::Write { .. } | BuildError::Scratch { .. })
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_publisher::Action;

    use super::*;

    #[test]
    fn a_dry_run_names_the_site_where_it_reads_and_its_own_folder_where_it_writes() {
        let place = tempfile::tempdir().unwrap();
        let site = place.path().join("site");
        fs::create_dir(&site).unwrap();
        let dry_run = DryRun::of(&site).unwrap();
        let says = |action| {
            let (path, source) = (dry_run.inside(&site.join("x")), io::ErrorKind::StorageFull.into());
            let failure = Failure::Publisher(Error::File { action, path, source }).tried_in(&dry_run);
            assert_eq!(failure.exit_code(), FAILED);
            failure.to_string()
        };
        let named = |path: PathBuf| format!("`{}`", path.display());
        assert!(says(Action::Read).contains(&named(site.join("x"))), "{}", says(Action::Read));
        assert!(
            says(Action::Write).contains(&named(dry_run.inside(&site.join("x")))),
            "{}",
            says(Action::Write)
        );
        let failure = Failure::from(Error::NotBuilt { out: dry_run.inside(&site) }).tried_in(&dry_run);
        assert!(failure.to_string().contains(&named(site.clone())), "{failure}");
    }
}
