//! Which resources somebody may mean who names one.

use std::{
    env,
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

use crate::{settings::Settings, versions::spellings};

/// The URIs that a resource may have in the lists by what somebody calls it, each once. What was written comes first.
pub(super) fn uris(settings: &Settings, named: &OsStr) -> Vec<String> {
    let here = env::current_dir().unwrap_or_default();
    let paths = paths_below(&settings.directory, &here, Path::new(named));
    let as_uri = named.to_str().into_iter().flat_map(spellings);
    let mut uris = Vec::new();
    for uri in as_uri.chain(paths.iter().map(|path| settings.base_url.join(path))) {
        if !uris.contains(&uri) {
            uris.push(uri);
        }
    }
    uris
}

/// The paths below the collection that a path may mean: one from the folder `here`, or one from the collection.
fn paths_below(collection: &Path, here: &Path, named: &Path) -> Vec<PathBuf> {
    // The records of a program are in no folder.
    let absolute = Some(here.join(named)).filter(|_| collection.is_absolute());
    // The file may be gone, and a folder above it a link.
    let real = absolute.as_deref().and_then(|path| {
        let real = |above: &Path| Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?));
        path.ancestors().skip(1).find_map(real)
    });
    let below = |path: &PathBuf| path.strip_prefix(collection).ok().map(Path::to_owned);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    // Who stands in the collection names a file from there.
    let is_inside = collection.is_absolute()
        && (here.starts_with(collection)
            || here.canonicalize().is_ok_and(|here| here.starts_with(collection)));
    let from_collection = (!is_inside && named.components().all(is_plain)).then(|| named.to_owned());
    let mut paths: Vec<_> = [&absolute, &real].into_iter().flatten().filter_map(below).collect();
    paths.extend(from_collection);
    // No URI has a way up.
    paths.retain(|path| path.components().all(is_plain));
    paths
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_named_by_its_path_from_here_or_from_the_collection_also_when_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let whole = place.path().canonicalize().unwrap();
        let collection = whole.join("papers");
        fs::create_dir_all(collection.join("sub")).unwrap();
        let paths = |here: &Path, named: &Path| paths_below(&collection, here, named);
        let means = |named: &Path, path: &str| paths(&whole, named).contains(&PathBuf::from(path));
        assert!(means(&collection.join("gone/a.pdf"), "gone/a.pdf"));
        let up = paths(&whole, &collection.join("sub/../a.pdf"));
        assert!(!up.is_empty() && up.iter().all(|path| path == Path::new("a.pdf")), "{up:?}");
        assert!(means(Path::new("papers/sub/a.pdf"), "sub/a.pdf"));
        assert!(means(Path::new("sub/a.pdf"), "sub/a.pdf"));
        assert!(paths(&whole, &whole.join("other/a.pdf")).is_empty());
        assert!(paths(&whole, Path::new("../a.pdf")).is_empty());
        assert_eq!(paths_below(Path::new(""), &whole, Path::new("a.pdf")), [Path::new("a.pdf")]);
        for named in ["a.pdf", "./a.pdf"] {
            let from_sub = paths(&collection.join("sub"), Path::new(named));
            assert!(!from_sub.is_empty() && from_sub.iter().all(|path| path == Path::new("sub/a.pdf")));
        }
    }
}
