//! The sets of a site, whose Capability Lists its Source Description lists.

use std::{collections::BTreeMap, fs::File, io::BufReader, path::Path};

use resync_core::{document::Relation, xml::Reader};

use crate::{
    error::{Action, Error},
    helpers::files,
    settings::{Root, SetName, Settings},
    site::{Location, Site},
    state::State,
};

/// The Capability Lists of all sets of the site, this one's included, each with the page that describes the set.
///
/// A set whose state cannot be read stays, as long as its Capability List says that it belongs here.
pub(super) fn described(settings: &Settings, out: &Path) -> Result<Sets, Error> {
    let mut sets = Sets::from([described_set(settings)]);
    let (Some(root), Some(above)) = (&settings.root, out.parent()) else { return Ok(sets) };
    for other in files::folders_in(above).map_err(Error::cannot(Action::Read, above))? {
        let is_other = other.file_name() != out.file_name();
        sets.extend(match State::load(&other) {
            Ok(State { retired: Some(_), .. }) => None,
            Ok(State { settings, .. }) => {
                (is_other && is_of(&settings, root)).then(|| described_set(&settings))
            }
            Err(error) => {
                if !matches!(error, Error::NotBuilt { .. }) {
                    tracing::debug!(%error, "cannot read a set; the Source Description still lists it");
                }
                published(root, &other).filter(|_| is_other)
            }
        });
    }
    Ok(sets)
}

/// The URLs of Capability Lists, and of the pages that describe their sets.
type Sets = BTreeMap<String, Option<String>>;

fn described_set(settings: &Settings) -> (String, Option<String>) {
    (Site::of(settings).capability_list().url, settings.described_by.as_ref().map(ToString::to_string))
}

fn is_of(settings: &Settings, root: &Root) -> bool {
    settings.root.as_ref().is_some_and(|other| other.base_url == root.base_url)
}

/// What the Capability List in the folder of a set says, if it points up to the Source Description of this site.
fn published(root: &Root, out: &Path) -> Option<(String, Option<String>)> {
    let name = SetName::parse(out.file_name()?.to_str()?).ok()?;
    let site = Site::of_set(&Root { name, ..root.clone() });
    let Location { path, url } = site.capability_list();
    let reader = Reader::new(BufReader::new(File::open(out.join(path)).ok()?)).ok()?;
    let leads_to = |relation| reader.header().link(relation).map(|link| link.href.clone());
    let is_of_the_site = leads_to(&Relation::Up)? == site.source_description().url;
    is_of_the_site.then(|| (url, leads_to(&Relation::DescribedBy)))
}
