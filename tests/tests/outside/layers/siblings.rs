//! Which files and folders of one folder use each other, and which of these uses lead back to where they begin.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source::{self, File, Named, Use};

/// A name is given on from module to module no oftener.
const MOST_HOPS: usize = 16;

/// The uses between what stands in one folder, by who uses what: of each the first.
pub(super) struct Uses(BTreeMap<(String, String), Use>);

impl Uses {
    /// Those of the production code below `src`.
    pub(super) fn read(src: &Path) -> Self {
        Self::of(&source::files(src))
    }

    fn of(files: &[File]) -> Self {
        let modules = Modules::of(files);
        let mut first = BTreeMap::new();
        for used in source::in_production(files).flat_map(|file| modules.uses(file)) {
            first.entry((used.module.clone(), used.names.clone())).or_insert(used);
        }
        Self(first)
    }

    /// Each use that leads back to where it begins without those that are known, and each of these that closes no circle.
    pub(super) fn problems(&self, folder: &str, known: &[(&str, &str)]) -> Vec<String> {
        let is_known = |module: &str, names: &str| known.contains(&(module, names));
        let others: BTreeSet<_> = self.0.keys().filter(|(module, names)| !is_known(module, names)).collect();
        let circular = self
            .0
            .values()
            .filter(|used| !is_known(&used.module, &used.names) && leads(&others, &used.names, &used.module));
        let circular = circular.map(|Use { file, line, module, names }| {
            format!("{folder}/{file}:{line}: `{module}` uses `{names}`, which leads back to it")
        });
        let closes = |module: &str, names: &str| {
            self.0.contains_key(&(module.to_owned(), names.to_owned())) && leads(&others, names, module)
        };
        let unneeded = known.iter().filter(|(module, names)| !closes(module, names));
        let unneeded = unneeded.map(|(module, names)| {
            format!("{folder}: that `{module}` uses `{names}` closes no circle: remove the exception")
        });
        circular.chain(unneeded).collect()
    }
}

/// Whether these uses lead from one to the other.
fn leads(uses: &BTreeSet<&(String, String)>, from: &str, to: &str) -> bool {
    let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(user) = open.pop() {
        for (module, names) in uses {
            if module == user && reached.insert(names.as_str()) {
                open.push(names);
            }
        }
    }
    reached.contains(to)
}

/// The modules of a crate, each with the names that its `use` lines give to others.
struct Modules(BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>);

impl Modules {
    fn of(files: &[File]) -> Self {
        let modules = source::in_production(files).filter(|file| !file.is_program());
        Self(modules.map(|file| (file.module().to_vec(), file.bound())).collect())
    }

    /// What a file names beside it, or beside a folder that it is in.
    fn uses(&self, file: &File) -> Vec<Use> {
        let used = file.named().into_iter().filter_map(|Named { line, path, .. }| {
            let (module, home) = (file.module(), self.home(path)?);
            let shared = module.iter().zip(&home).take_while(|(one, other)| one == other).count();
            let (module, names) = (module.get(..=shared)?, home.get(..=shared)?);
            Some(Use { file: file.place(), line, module: module.join("/"), names: names.join("/") })
        });
        used.collect()
    }

    /// The module in which this path ends, by whatever modules its names are given on.
    fn home(&self, mut path: Vec<String>) -> Option<Vec<String>> {
        for _ in 0..MOST_HOPS {
            let end = (0..=path.len()).rev().find(|end| self.0.contains_key(&path[..*end]))?;
            let (module, rest) = path.split_at(end);
            let named = rest.first().and_then(|name| self.0[module].get(name));
            let Some(named) = named.filter(|named| **named != path[..=end]) else {
                return Some(module.to_vec());
            };
            path = [named.as_slice(), &rest[1..]].concat();
        }
        None
    }
}

mod tests {
    use super::*;

    /// Their paths without the end, with their texts.
    fn uses(files: &[(&str, &str)]) -> Uses {
        let read =
            |(path, text): &(&str, &str)| File::read(path.split('/').map(str::to_owned).collect(), text);
        Uses::of(&files.iter().map(read).collect::<Vec<_>>())
    }

    #[test]
    fn a_circle_is_named_by_each_of_its_uses_also_where_a_parent_gives_the_name_on() {
        let house = uses(&[
            ("lib", "mod attic; mod cellar; pub use attic::Lamp;"),
            ("attic/mod", "mod bulb; mod chest; mod web; pub use self::{bulb::Bulb as Lamp, chest::Lid};"),
            ("attic/bulb", "use super::web;"),
            (
                "attic/chest",
                "use super::web::{self, Spider}; fn dig() -> super::Lamp { crate::cellar::dig() }",
            ),
            ("attic/web", "#[cfg(test)] use super::chest::Hinge; use super::Lid;"),
            ("cellar", "use crate::Lamp;"),
        ]);
        let found: Vec<_> = house.0.keys().map(|(module, names)| format!("{module} {names}")).collect();
        assert_eq!(
            found,
            [
                "attic cellar",
                "attic/bulb attic/web",
                "attic/chest attic/bulb",
                "attic/chest attic/web",
                "attic/web attic/chest",
                "cellar attic",
            ]
        );
        let between =
            |module: &str, names: &str| format!("`{module}` uses `{names}`, which leads back to it");
        assert_eq!(
            house.problems("house", &[("cellar", "attic")]),
            [
                format!("house/src/attic/bulb.rs:1: {}", between("attic/bulb", "attic/web")),
                format!("house/src/attic/chest.rs:1: {}", between("attic/chest", "attic/bulb")),
                format!("house/src/attic/chest.rs:1: {}", between("attic/chest", "attic/web")),
                format!("house/src/attic/web.rs:1: {}", between("attic/web", "attic/chest")),
            ]
        );
    }

    #[test]
    fn an_exception_that_closes_no_circle_is_named() {
        let house = uses(&[("lib", ""), ("attic", "use crate::cellar::Wine;"), ("cellar", "")]);
        assert_eq!(house.problems("house", &[]), Vec::<String>::new());
        let unneeded = |module: &str, names: &str| {
            format!("house: that `{module}` uses `{names}` closes no circle: remove the exception")
        };
        assert_eq!(
            house.problems("house", &[("attic", "cellar"), ("cellar", "attic")]),
            [unneeded("attic", "cellar"), unneeded("cellar", "attic")]
        );
    }

    #[test]
    fn a_name_that_is_given_on_in_a_circle_leads_nowhere() {
        let house = uses(&[
            ("lib", "pub use attic::Lamp;"),
            ("attic", "pub use crate::Lamp;"),
            ("cellar", "use crate::Lamp;"),
        ]);
        assert_eq!(house.problems("house", &[]), Vec::<String>::new());
    }
}
