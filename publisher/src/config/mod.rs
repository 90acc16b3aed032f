//! `source.toml`: what a Source publishes, and how. All mistakes of a file are named at once, each with a hint.

mod reader;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use resync_common::config::{self, Keys, Source, value, with_values};
use toml::{Table, Value};

use crate::settings::{BaseUrl, HubUrl, Settings};

/// The default name of the file.
pub const FILE: &str = "source.toml";

/// The default folder of the site in a new file.
pub const OUT: &str = "site";

/// The content of a new file.
const TEMPLATE: &str = include_str!("template.toml");

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The folder of the site.
    pub out: PathBuf,
    /// Each set of resources, with the folder of its documents.
    pub sets: Vec<(PathBuf, Settings)>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It cannot be read, or something in it is wrong.
    #[error(transparent)]
    Unusable(#[from] config::ConfigError),
    /// It is there already.
    #[error("`{}` exists already; edit it, or remove it first", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Config {
    /// Reads a file. Relative paths in it start from its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&config::read(path)?, path)
    }

    /// With the site in another folder.
    #[must_use]
    pub fn at(self, out: &Path) -> Self {
        let moved = |set: PathBuf| match set.strip_prefix(&self.out) {
            Ok(below) if !below.as_os_str().is_empty() => out.join(below),
            _ => out.to_owned(),
        };
        let sets = self.sets.into_iter().map(|(set, settings)| (moved(set), settings)).collect();
        Self { out: out.to_owned(), sets }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let source = Source::new(text);
        let folder = path.parent().unwrap_or(Path::new(""));
        let config = source.parse().and_then(|table| reader::config(folder, Keys::new(&source, &table)));
        Ok(source.settle(config, path)?)
    }
}

/// Every key with its meaning and its value in a file, or else its default. With a file it is itself a configuration.
pub fn print(path: Option<&Path>) -> Result<String, ConfigError> {
    let Some(path) = path else { return Ok(TEMPLATE.to_owned()) };
    Config::load(path)?;
    let written = config::table(path)?;
    let settings = with_values(TEMPLATE, |key| value(&written, key).cloned());
    let of_tables = |key: &str| Some((key.to_owned(), written.get(key)?.clone()));
    let tables: Table = ["link", "set"].into_iter().filter_map(of_tables).collect();
    Ok(if tables.is_empty() { settings } else { format!("{settings}\n{tables}") })
}

/// Writes a commented file for one set of resources, unless the file exists.
pub fn write_new(
    path: &Path,
    out: &Path,
    directory: &Path,
    base_url: &BaseUrl,
    hubs: &[HubUrl],
) -> Result<(), ConfigError> {
    let text = with_values(TEMPLATE, |key| match key {
        "out" => Some(Value::from(&*out.to_string_lossy())),
        "directory" => Some(Value::from(&*directory.to_string_lossy())),
        "base_url" => Some(Value::from(base_url.as_str())),
        "hubs" => Some(Value::from(hubs.iter().map(HubUrl::as_str).collect::<Vec<_>>())),
        _ => None,
    });
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ConfigError::Exists { path: path.to_owned() },
        _ => ConfigError::Write { path: path.to_owned(), source },
    };
    let mut file = fs::File::create_new(path).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use resync_core::digest::Algorithm;

    use super::*;
    use crate::settings::LinkTemplate;

    fn parse(text: &str) -> Result<Config, Vec<String>> {
        Config::parse(text, Path::new("/etc/rs/source.toml")).map_err(|error| match error {
            ConfigError::Unusable(config::ConfigError::Problems(problems)) => problems,
            other => vec![other.to_string()],
        })
    }

    #[test]
    fn a_new_file_is_read_as_it_was_meant_and_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let base = BaseUrl::parse("https://example.org/data/").unwrap();
        let hub = HubUrl::parse("https://hub.example.org/websub/").unwrap();
        let write = || {
            write_new(&path, Path::new("si\"te"), Path::new("/srv/data"), &base, std::slice::from_ref(&hub))
        };
        write().unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!(config.out, folder.path().join("si\"te"));
        let settings = Settings::new("/srv/data", base.clone()).hub(hub.clone());
        assert_eq!(config.sets, [(config.out.clone(), settings)]);
        assert!(matches!(write(), Err(ConfigError::Exists { .. })));
    }

    #[test]
    fn sets_have_documents_of_their_own_and_take_over_what_they_do_not_say() {
        let config = parse(
            r#"
            out = "site"
            base_url = "https://example.org"
            hash = ["md5"]
            hubs = ["https://hub.example.org/"]
            [change_list]
            entries = 10
            age = "1h"
            [resource_list]
            age = "never"
            keep = 3
            [resource_dump]
            every = "7d"
            keep = 4
            [archive]
            after = "30d"
            [[set]]
            name = "articles"
            directory = "a"
            [[set]]
            name = "images"
            directory = "/srv/i"
            base_url = "https://images.example.org/"
            hash = "sha-256"
            hubs = []
            ignore = ["*.bak"]
            json_patch = true
            "#,
        )
        .unwrap();
        assert_eq!(config.out, Path::new("/etc/rs/site"));
        let [(first_out, first), (second_out, second)] = config.sets.as_slice() else { panic!("{config:?}") };
        assert_eq!(
            (first_out.as_path(), second_out.as_path()),
            (Path::new("/etc/rs/site/articles"), Path::new("/etc/rs/site/images"))
        );
        assert_eq!(first.base_url.as_str(), "https://example.org/articles/");
        assert_eq!(
            (first.directory.as_path(), first.hubs.len(), first.hash.as_slice()),
            (Path::new("/etc/rs/a"), 1, &[Algorithm::Md5][..])
        );
        assert_eq!((second.base_url.as_str(), second.hubs.len()), ("https://images.example.org/", 0));
        assert_eq!(
            (second.hash.as_slice(), second.ignore.as_slice()),
            (&[Algorithm::Sha256][..], &["*.bak".to_owned()][..])
        );
        assert_eq!((first.json_patch, second.json_patch), (false, true));
        let rules = first.rules;
        assert_eq!(
            (rules.change_list_entries, rules.change_list_seconds, rules.resource_list_seconds),
            (10, Some(3600), None)
        );
        let day = 24 * 3600;
        assert_eq!((rules.resource_lists_kept, rules.resource_dumps_kept), (3, 4));
        assert_eq!(
            (rules.resource_dump_seconds, rules.change_dump_seconds, rules.archive_seconds),
            (Some(7 * day), None, Some(30 * day))
        );
    }

    #[test]
    fn all_mistakes_are_named_at_once_each_with_a_hint() {
        let problems = parse(
            r#"
            ouT = "site"
            base_url = "ftp://example.org/"
            hubz = []
            hash = ["crc32"]
            [change_list]
            entries = 0
            [change_dump]
            every = "often"
            [archive]
            every = "1d"
            [[set]]
            name = "Über"
            directory = 1
            colour = "red"
            "#,
        )
        .unwrap_err();
        let expected = [
            "line 2, column 13: ouT is not a key: did you mean out?",
            "line 4, column 13: hubz is not a key: did you mean hubs?",
            "line 1, column 1: out is missing",
            "line 3, column 24: base_url: `ftp://example.org/` uses `ftp`",
            "line 7, column 23: change_list.entries must be a whole number from 1 to 50000",
            "line 9, column 21: change_dump.every must be a time such as \"12h\"",
            "line 11, column 13: archive.every is not a key: known here: after",
            "line 15, column 13: set.colour is not a key: ",
            "line 13, column 20: set.name: ",
            "line 14, column 25: set.directory must be text in quotes",
            "line 5, column 20: hash: write md5, sha-1 or sha-256",
        ];
        for words in expected {
            let words = format!("/etc/rs/source.toml, {words}");
            assert!(
                problems.iter().any(|problem| problem.starts_with(&words)),
                "`{words}` is not in {problems:#?}"
            );
        }
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    }

    #[test]
    fn links_are_read_and_what_is_wrong_with_one_is_named_with_its_line() {
        let top = "out = \"o\"\nbase_url = \"http://example.org/\"\ndirectory = \"d\"\n";
        let link = "[[link]]\nrel = \"duplicate\"\nhref = \"http://m.example/{path}\"\npri = 2\ntype = \"a/b\"\nmodified = true\n";
        let config = parse(&format!("{top}{link}")).unwrap();
        let expected = LinkTemplate::new("duplicate", "http://m.example/{path}").unwrap().pri(2).unwrap();
        assert_eq!(config.sets[0].1.links, [expected.media_type("a/b").modified()]);
        let problems =
            parse(&format!("{top}{link}[[link]]\nrel = \"up\"\nhref = \"http://m.example/\"\n")).unwrap_err();
        assert!(
            problems[0].contains("line 11, column 7: `up` is not a relation between resources"),
            "{problems:?}"
        );
        assert!(
            parse(&format!("{top}[[link]]\nrell = \"via\"\n"))
                .unwrap_err()
                .concat()
                .contains("mean link.rel?")
        );
    }

    #[test]
    fn a_time_that_is_cut_to_whole_seconds_is_refused() {
        let top = "out = \"o\"\nbase_url = \"http://example.org/\"\ndirectory = \"d\"\n";
        for (table, key) in [("resource_dump", "every"), ("versions", "keep")] {
            let with = |time: &str| parse(&format!("{top}[{table}]\n{key} = \"{time}\"\n"));
            assert!(with("0s").is_ok() && with("1s 1000ms").is_ok() && with("never").is_ok(), "{table}");
            for time in ["500ms", "1s 1ns"] {
                let problems = with(time).unwrap_err();
                assert!(problems[0].contains("in whole seconds"), "{problems:?}");
            }
        }
    }

    #[test]
    fn two_sets_of_one_name_and_a_pattern_that_is_none_are_refused() {
        let set = "[[set]]\nname = \"a\"\ndirectory = \"a\"\n";
        let top = "out = \"o\"\nbase_url = \"http://example.org/\"\n";
        let problems = parse(&format!("{top}{set}{set}")).unwrap_err();
        assert_eq!(
            problems,
            ["/etc/rs/source.toml, line 7, column 8: set.name: `a` is the name of another set"]
        );
        let problems = parse(&format!("{top}directory = \"d\"\nignore = [\"[z-a]\"]")).unwrap_err();
        assert!(problems[0].contains("line 4, column 10: ignore: "), "{problems:?}");
        assert!(parse("out = ").unwrap_err()[0].contains("line 1, column 7: not valid TOML: "));
    }

    #[test]
    fn what_is_printed_has_every_key_and_means_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let text = "out = \"o\"\nbase_url = \"http://example.org/\"\nhash = \"md5\"\nresource_list = { keep = 3 }\n\
                    [[link]]\nrel = \"via\"\nhref = \"http://m.example/{path}\"\n\
                    [[set]]\nname = \"a\"\ndirectory = \"a\"\n[[set.link]]\nrel = \"collection\"\nhref = \"http://m.example/\"\n\
                    [[set]]\nname = \"b\"\ndirectory = \"b\"\n";
        fs::write(&path, text).unwrap();
        let meant = Config::load(&path).unwrap();
        let printed = print(Some(&path)).unwrap();
        assert!(printed.contains("\nkeep = 3\n") && printed.contains("\n#directory = "), "{printed}");
        fs::write(&path, &printed).unwrap();
        assert_eq!(Config::load(&path).unwrap(), meant, "{printed}");
        assert_eq!(print(Some(&path)).unwrap(), printed);
        let default = print(None).unwrap();
        assert!(default.contains("\n#out = ") && default.contains("\nhash = [\"sha-256\"]\n"), "{default}");
    }
}
