//! What a command builds.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use resync_publisher::{HubUrl, Settings, publish::DryRun};

/// The settings of a build, and which of them come from the last build.
#[derive(Clone, Debug)]
pub(crate) struct SetSettings {
    pub(crate) settings: Settings,
    /// The hubs are those of the last build.
    pub(crate) hubs_from_last_build: bool,
    /// The hash algorithms are those of the last build.
    pub(crate) hash_from_last_build: bool,
    /// The hubs of the last build in whose place flags name others.
    pub(crate) replaced_hubs: Vec<HubUrl>,
}

/// What a command builds. The configuration is read once, at its begin.
#[derive(Clone, Debug)]
pub(crate) struct BuildRequest {
    /// The folder of the site.
    pub(crate) out: PathBuf,
    /// Each set with the folder of its documents.
    pub(crate) sets: Vec<(PathBuf, SetSettings)>,
    /// The configuration file, if any.
    pub(crate) configuration: Option<PathBuf>,
    /// Whether that lists all sets of the site: not with --out, which names another site.
    pub(crate) names_all: bool,
    /// How the flags contradict the configuration.
    pub(crate) contradiction: Option<String>,
    /// The hubs that are dropped after the build.
    pub(crate) drops: Vec<HubUrl>,
    /// Where it is only tried.
    pub(crate) dry_run: Option<Arc<DryRun>>,
}

impl BuildRequest {
    /// The folder of the site whose sets a configuration lists, and that file.
    pub(crate) fn configured_site(&self) -> Option<(PathBuf, PathBuf)> {
        let configuration = self.configuration.clone().filter(|_| self.names_all)?;
        Some((self.out.clone(), configuration))
    }

    /// Where to add a hub.
    pub(crate) fn place_of_hubs(&self) -> String {
        place_of_hubs(self.configuration.as_deref())
    }

    /// Tries all this elsewhere.
    pub(crate) fn tried_in(mut self, dry_run: Arc<DryRun>) -> Self {
        self.out = dry_run.inside(&self.out);
        for (out, _) in &mut self.sets {
            *out = dry_run.inside(out);
        }
        self.dry_run = Some(dry_run);
        self
    }
}

/// Where to add a hub: in the configuration, or by a flag if there is none.
pub(super) fn place_of_hubs(configuration: Option<&Path>) -> String {
    configuration
        .map_or_else(|| "with --hub URL".to_owned(), |file| format!("in `hubs` of {}", file.display()))
}
