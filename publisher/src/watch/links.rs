//! The symbolic links of a collection: what they lead to changes without an event that names them, so each build looks at them.

use std::{collections::BTreeSet, path::PathBuf};

use crate::inventory::MOST_LINKS;

/// The links that are known.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeSet<PathBuf>);

impl Links {
    /// A build found these, in all files or in some.
    pub(super) fn found(&mut self, links: Vec<PathBuf>, is_all: bool) {
        if is_all {
            self.0.clear();
        }
        if self.0.len() <= MOST_LINKS {
            self.0.extend(links);
        }
    }

    /// Those that a build has to look at. Where there are many, none: looking at them would take as long as at all files, and a rescan does.
    pub(super) fn to_look_at(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().filter(move |_| self.0.len() <= MOST_LINKS).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_looked_at_while_they_are_few() {
        let mut links = Links::default();
        let paths = |count: usize| (0..count).map(|number| PathBuf::from(number.to_string())).collect();
        links.found(paths(2), true);
        links.found(vec!["new".into()], false);
        assert_eq!(links.to_look_at().collect::<Vec<_>>(), ["0", "1", "new"].map(PathBuf::from));
        links.found(paths(MOST_LINKS + 1), false);
        assert_eq!(links.to_look_at().count(), 0);
        links.found(paths(MOST_LINKS), true);
        assert_eq!(links.to_look_at().count(), MOST_LINKS);
    }
}
