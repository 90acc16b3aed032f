//! Which file belongs to which resource, so that no two share one and nothing is removed that is still
//! needed.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use url::{Origin, Url};

use super::path::relative_path;
use super::{Authority, PathError, ResourceError};

/// The places of all resources of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// By relative path a hash of the URI: lists may be long.
    owners: HashMap<Box<Path>, u64>,
    /// The folders that the files need.
    folders: HashSet<Box<Path>>,
}

impl Places {
    /// Takes the file of the resource `loc`, read as `url` in a list of the origin `home`; `None` when it is
    /// listed a second time.
    pub(crate) fn take(
        &mut self,
        loc: &str,
        url: &Url,
        home: &Origin,
        base: &Url,
        authority: Authority,
    ) -> Result<Option<PathBuf>, ResourceError> {
        if authority == Authority::SameOrigin && url.origin() != *home {
            return Err(ResourceError::OtherOrigin { list: home.ascii_serialization() });
        }
        let relative = relative_path(loc, url, base)?;
        let mut hasher = DefaultHasher::new();
        url.hash(&mut hasher);
        let owner = hasher.finish();
        match self.owners.get(relative.as_path()) {
            Some(known) if *known == owner => return Ok(None),
            Some(_) => return Err(PathError::Collision(relative).into()),
            None => {}
        }
        self.owners.insert(relative.as_path().into(), owner);
        let folders = relative.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        for folder in folders {
            if self.folders.contains(folder) {
                break;
            }
            self.folders.insert(folder.into());
        }
        Ok(Some(relative))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether a resource has this very file.
    pub(crate) fn lists(&self, relative: &Path) -> bool {
        self.owners.contains_key(relative)
    }

    /// The resource whose file stands where this one needs a folder.
    pub(crate) fn listed_above(&self, relative: &Path) -> Option<PathBuf> {
        relative.ancestors().skip(1).find(|folder| self.lists(folder)).map(Path::to_owned)
    }

    /// Whether what is there now must stay: it is listed, or it stands where a listed resource belongs that
    /// has not been put there, and may be the older form of it.
    pub(crate) fn needs(&self, relative: &Path) -> bool {
        self.lists(relative) || self.folders.contains(relative) || self.listed_above(relative).is_some()
    }

    /// Whether a resource has a file under this folder.
    pub(crate) fn has_below(&self, folder: &Path) -> bool {
        self.folders.contains(folder)
    }
}
