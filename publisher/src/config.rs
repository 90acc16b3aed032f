//! `source.toml`: what a Source publishes, and how. All mistakes of a file are named at once, each with a hint.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use resync_core::digest::Algorithm;
use toml::{Table, Value};

use crate::links::LinkTemplate;
use crate::settings::{BaseUrl, HubUrl, PageUrl, Root, Rules, SetName, Settings};

/// The name that the file has where nobody says another.
pub const FILE: &str = "source.toml";

/// The folder of the site in a new file, where nobody says another.
pub const OUT: &str = "site";

/// Where the content of a new file comes from.
const TEMPLATE: &str = include_str!("config/template.toml");

const TOP: [&str; 15] = [
    "out",
    "base_url",
    "directory",
    "described_by",
    "hubs",
    "hash",
    "ignore",
    "json_patch",
    "change_list",
    "resource_list",
    "resource_dump",
    "change_dump",
    "archive",
    "link",
    "set",
];
const SET: [&str; 9] =
    ["name", "directory", "base_url", "described_by", "hubs", "hash", "ignore", "json_patch", "link"];
const LINK: [&str; 7] = ["rel", "href", "pri", "type", "only", "sidecar", "modified"];
const CHANGE_LIST: [&str; 2] = ["entries", "age"];
const RESOURCE_DUMP: [&str; 2] = ["every", "keep"];
const RESOURCE_LIST: [&str; 3] = ["small", "percent", "age"];

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
    /// It cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is there already.
    #[error("`{}` is there already: edit it, or remove it first", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is no TOML.
    #[error("`{}` is no TOML: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        reason: String,
    },
    /// It says what cannot be.
    #[error("`{}`:\n  {}", path.display(), problems.join("\n  "))]
    Problems {
        /// The file.
        path: PathBuf,
        /// All that is wrong with it.
        problems: Vec<String>,
    },
}

impl Config {
    /// Reads a file. Relative paths in it start from its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// The same for a site in another folder.
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
        let table: Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
            path: path.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut problems = Vec::new();
        let config = Reader { folder, problems: &mut problems }.config(&table);
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError::Problems { path: path.to_owned(), problems }),
        }
    }
}

/// Writes a commented file for one set of resources; one that is there is left alone.
pub fn write_new(
    path: &Path,
    out: &Path,
    directory: &Path,
    base_url: &BaseUrl,
    hubs: &[HubUrl],
) -> Result<(), ConfigError> {
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let hubs: Vec<_> = hubs.iter().map(|hub| quoted(hub.as_str())).collect();
    let text = TEMPLATE
        .replace("{out}", &quoted(&out.to_string_lossy()))
        .replace("{directory}", &quoted(&directory.to_string_lossy()))
        .replace("{base_url}", &quoted(base_url.as_str()))
        .replace("{hubs}", &format!("[{}]", hubs.join(", ")));
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ConfigError::Exists { path: path.to_owned() },
        _ => ConfigError::Io { action: "write", path: path.to_owned(), source },
    };
    let mut file = fs::File::create_new(path).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

struct Reader<'a> {
    folder: &'a Path,
    problems: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn config(&mut self, table: &Table) -> Option<Config> {
        self.only(table, &TOP, "");
        let out = self.path(table, "out", "").map(|out| self.folder.join(out));
        let base_url = self.parsed(table, "base_url", "", BaseUrl::parse);
        let rules = self.rules(table);
        let sets = match table.get("set") {
            None => self.only_set(table, base_url.as_ref(), out.as_deref(), rules),
            Some(Value::Array(sets)) if !sets.is_empty() => {
                if table.contains_key("directory") {
                    self.wrong("directory", "belongs into each [[set]] where there are any");
                }
                self.sets(table, sets, base_url.as_ref(), out.as_deref(), rules)
            }
            Some(_) => {
                self.wrong("set", "write [[set]], and below it name and directory, once for each set");
                None
            }
        };
        Some(Config { out: out?, sets: sets? })
    }

    fn only_set(
        &mut self,
        table: &Table,
        base_url: Option<&BaseUrl>,
        out: Option<&Path>,
        rules: Rules,
    ) -> Option<Vec<(PathBuf, Settings)>> {
        let settings = self.settings(table, table, "", base_url.cloned(), rules);
        Some(vec![(out?.to_owned(), settings?)])
    }

    fn sets(
        &mut self,
        table: &Table,
        sets: &[Value],
        root: Option<&BaseUrl>,
        out: Option<&Path>,
        rules: Rules,
    ) -> Option<Vec<(PathBuf, Settings)>> {
        let mut found: Vec<(PathBuf, Settings)> = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            let place = format!("set {}: ", number + 1);
            let Value::Table(set) = set else {
                self.wrong(&place, "write it as a [[set]] with its keys below");
                continue;
            };
            self.only(set, &SET, &place);
            let name = self.parsed(set, "name", &place, SetName::parse);
            let own =
                set.contains_key("base_url").then(|| self.parsed(set, "base_url", &place, BaseUrl::parse));
            let below = root.zip(name.as_ref()).map(|(root, name)| root.below(name));
            let base_url = own.unwrap_or(below);
            let settings = self.settings(set, table, &place, base_url, rules);
            let (Some(name), Some(root), Some(out), Some(settings)) = (name, root, out, settings) else {
                continue;
            };
            let folder = out.join(name.as_str());
            if found.iter().any(|(known, _)| *known == folder) {
                self.wrong(&format!("{place}name"), &format!("`{name}` is the name of another set"));
            }
            let described_by = self.page(table, "");
            let root = Some(Root { base_url: root.clone(), name, described_by });
            found.push((folder, Settings { root, ..settings }));
        }
        (found.len() == sets.len()).then_some(found)
    }

    /// What a set does not say stands at the top.
    fn settings(
        &mut self,
        set: &Table,
        top: &Table,
        place: &str,
        base_url: Option<BaseUrl>,
        rules: Rules,
    ) -> Option<Settings> {
        let directory = self.path(set, "directory", place).map(|directory| self.folder.join(directory));
        let of = |key| if set.contains_key(key) { (set, place) } else { (top, "") };
        let (table, at) = of("hubs");
        let hubs = self.list(table, "hubs", at, HubUrl::parse);
        let (table, at) = of("hash");
        let hash = self.list(table, "hash", at, |text| {
            text.parse::<Algorithm>().map_err(|_| "write md5, sha-1 or sha-256")
        });
        let (table, at) = of("ignore");
        let ignore =
            self.list(table, "ignore", at, |text| Ok::<_, std::convert::Infallible>(text.to_owned()));
        let (table, at) = of("link");
        let links = self.links(table, at);
        let (table, at) = of("json_patch");
        let json_patch = self.is_so(table, "json_patch", at);
        let settings = Settings::new(directory?, base_url?).hashes(hash);
        let (table, at) = of("described_by");
        let described_by = self.page(table, at);
        let settings = Settings { rules, ignore, json_patch, links, described_by, ..settings };
        if let Err(reason) = settings.ignored() {
            self.wrong(&format!("{at}ignore"), &reason.to_string());
        }
        Some(hubs.into_iter().fold(settings, Settings::hub))
    }

    fn page(&mut self, table: &Table, place: &str) -> Option<PageUrl> {
        let key = "described_by";
        table.contains_key(key).then(|| self.parsed(table, key, place, PageUrl::parse)).flatten()
    }

    fn links(&mut self, table: &Table, place: &str) -> Vec<LinkTemplate> {
        let Some(links) = table.get("link") else { return Vec::new() };
        let Some(links) = links.as_array().filter(|links| links.iter().all(Value::is_table)) else {
            self.wrong(
                &format!("{place}link"),
                "write [[link]], and below it rel and href, once for each link",
            );
            return Vec::new();
        };
        let links = links.iter().filter_map(Value::as_table).enumerate();
        links.filter_map(|(number, link)| self.link(link, &format!("{place}link {}: ", number + 1))).collect()
    }

    fn link(&mut self, link: &Table, place: &str) -> Option<LinkTemplate> {
        self.only(link, &LINK, place);
        let (rel, href) = (self.text(link, "rel", place), self.text(link, "href", place));
        let pri = self.number(link, "pri", place, 1..=999_999);
        let only = self.list(link, "only", place, |text| Ok::<_, std::convert::Infallible>(text.to_owned()));
        let media_type = link.contains_key("type").then(|| self.text(link, "type", place)).flatten();
        let is_sidecar = self.is_so(link, "sidecar", place);
        let has_time = self.is_so(link, "modified", place);
        let template = LinkTemplate::new(rel?, href?).and_then(|template| template.only(only));
        let template = template.map(|template| if is_sidecar { template.sidecar() } else { template });
        let template = template.map(|template| if has_time { template.modified() } else { template });
        let template = template.and_then(|template| match pri {
            Some(pri) => template.pri(u32::try_from(pri).unwrap_or(u32::MAX)),
            None => Ok(template),
        });
        let template = template.map(|template| match media_type {
            Some(media_type) => template.media_type(media_type),
            None => template,
        });
        template.map_err(|error| self.wrong(place, &error.to_string())).ok()
    }

    fn rules(&mut self, table: &Table) -> Rules {
        let mut rules = Rules::default();
        if let Some(section) = self.section(table, "change_list") {
            self.only(section, &CHANGE_LIST, "change_list.");
            if let Some(entries) = self.number(section, "entries", "change_list.", 1..=50_000) {
                rules.change_list_entries = usize::try_from(entries).unwrap_or(usize::MAX);
            }
            rules.change_list_seconds = self.time(section, "age", "change_list.", rules.change_list_seconds);
        }
        if let Some(section) = self.section(table, "resource_list") {
            self.only(section, &RESOURCE_LIST, "resource_list.");
            if let Some(small) = self.number(section, "small", "resource_list.", 0..=i64::MAX) {
                rules.resource_list_small = small.unsigned_abs();
            }
            if let Some(percent) = self.number(section, "percent", "resource_list.", 1..=100) {
                rules.resource_list_percent = u8::try_from(percent).unwrap_or(u8::MAX);
            }
            rules.resource_list_seconds =
                self.time(section, "age", "resource_list.", rules.resource_list_seconds);
        }
        if let Some(section) = self.section(table, "resource_dump") {
            self.only(section, &RESOURCE_DUMP, "resource_dump.");
            rules.resource_dump_seconds = self.time(section, "every", "resource_dump.", None);
            if let Some(kept) = self.number(section, "keep", "resource_dump.", 1..=1_000) {
                rules.resource_dumps_kept = usize::try_from(kept).unwrap_or(usize::MAX);
            }
        }
        rules.change_dump_seconds = self.only_time(table, "change_dump", "every");
        rules.archive_seconds = self.only_time(table, "archive", "after");
        rules
    }

    fn wrong(&mut self, key: &str, what: &str) {
        self.problems.push(format!("{key}: {what}").replace(": : ", ": "));
    }

    /// Names each key that nobody knows, and the one that was meant.
    fn only(&mut self, table: &Table, known: &[&str], place: &str) {
        for key in table.keys().filter(|key| !known.contains(&key.as_str())) {
            let likeness = |name: &&&str| strsim::jaro_winkler(key, name);
            let nearest = known.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
            let hint = match nearest.filter(|name| likeness(name) > 0.75) {
                Some(name) => format!("is no key here: did you mean {name}?"),
                None => format!("is no key here; there are {}", known.join(", ")),
            };
            self.wrong(&format!("{place}{key}"), &hint);
        }
    }

    fn section<'t>(&mut self, table: &'t Table, key: &str) -> Option<&'t Table> {
        if let Value::Table(section) = table.get(key)? {
            return Some(section);
        }
        self.wrong(key, &format!("is a section: write [{key}] and its keys below"));
        None
    }

    fn text<'t>(&mut self, table: &'t Table, key: &str, place: &str) -> Option<&'t str> {
        match table.get(key) {
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.wrong(&format!("{place}{key}"), "write it in quotes");
                None
            }
            None => {
                self.wrong(&format!("{place}{key}"), "is missing");
                None
            }
        }
    }

    fn path(&mut self, table: &Table, key: &str, place: &str) -> Option<PathBuf> {
        self.text(table, key, place).map(PathBuf::from)
    }

    fn parsed<T, E: std::fmt::Display>(
        &mut self,
        table: &Table,
        key: &str,
        place: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(table, key, place)?;
        parse(text).map_err(|error| self.wrong(&format!("{place}{key}"), &error.to_string())).ok()
    }

    fn list<T, E: std::fmt::Display>(
        &mut self,
        table: &Table,
        key: &str,
        place: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let values = match table.get(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let mut parsed = Vec::new();
        for value in values {
            let one = match value {
                Value::String(text) => parse(text).map_err(|error| error.to_string()),
                other => Err(format!("{other} is no text: write it in quotes")),
            };
            match one {
                Ok(one) => parsed.push(one),
                Err(error) => self.wrong(&format!("{place}{key}"), &error),
            }
        }
        parsed
    }

    /// False where nothing is said.
    fn is_so(&mut self, table: &Table, key: &str, place: &str) -> bool {
        match table.get(key) {
            None => false,
            Some(Value::Boolean(is_so)) => *is_so,
            Some(_) => {
                self.wrong(&format!("{place}{key}"), "write true or false");
                false
            }
        }
    }

    fn number(
        &mut self,
        table: &Table,
        key: &str,
        place: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Option<i64> {
        match table.get(key)? {
            Value::Integer(number) if range.contains(number) => Some(*number),
            _ => {
                let limits = format!("write a number from {} to {}", range.start(), range.end());
                self.wrong(&format!("{place}{key}"), &limits);
                None
            }
        }
    }

    /// The one key of a section; never where nothing is said.
    fn only_time(&mut self, table: &Table, name: &str, key: &str) -> Option<u64> {
        let section = self.section(table, name)?;
        let place = format!("{name}.");
        self.only(section, &[key], &place);
        self.time(section, key, &place, None)
    }

    /// A duration in seconds, none for `never`; `otherwise` where nothing is said.
    fn time(&mut self, table: &Table, key: &str, place: &str, otherwise: Option<u64>) -> Option<u64> {
        if !table.contains_key(key) {
            return otherwise;
        }
        let text = self.text(table, key, place)?;
        let time = humantime::parse_duration(text).ok();
        if time.is_none() && text != "never" {
            self.wrong(&format!("{place}{key}"), "write it as \"12h\" or \"30d\", or \"never\"");
        }
        time.map(|time| time.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Vec<String>> {
        Config::parse(text, Path::new("/etc/rs/source.toml")).map_err(|error| match error {
            ConfigError::Problems { problems, .. } => problems,
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
        assert_eq!(rules.resource_dumps_kept, 4);
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
            "ouT: is no key here: did you mean out?",
            "hubz: is no key here: did you mean hubs?",
            "out: is missing",
            "base_url: `ftp://example.org/` uses `ftp`",
            "change_list.entries: write a number from 1 to 50000",
            "change_dump.every: write it as \"12h\"",
            "archive.every: is no key here; there are after",
            "set 1: colour: is no key here",
            "set 1: name: ",
            "set 1: directory: write it in quotes",
            "hash: write md5, sha-1 or sha-256",
        ];
        for words in expected {
            assert!(
                problems.iter().any(|problem| problem.starts_with(words)),
                "`{words}` is not in {problems:#?}"
            );
        }
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    }

    #[test]
    fn links_are_read_and_what_is_wrong_with_one_is_named_with_its_number() {
        let top = "out = \"o\"\nbase_url = \"http://example.org/\"\ndirectory = \"d\"\n";
        let link = "[[link]]\nrel = \"duplicate\"\nhref = \"http://m.example/{path}\"\npri = 2\ntype = \"a/b\"\nmodified = true\n";
        let config = parse(&format!("{top}{link}")).unwrap();
        let expected = LinkTemplate::new("duplicate", "http://m.example/{path}").unwrap().pri(2).unwrap();
        assert_eq!(config.sets[0].1.links, [expected.media_type("a/b").modified()]);
        let problems =
            parse(&format!("{top}{link}[[link]]\nrel = \"up\"\nhref = \"http://m.example/\"\n")).unwrap_err();
        assert!(problems[0].starts_with("link 2: `up` relates no resources"), "{problems:?}");
        assert!(
            parse(&format!("{top}[[link]]\nrell = \"via\"\n")).unwrap_err()[0].contains("did you mean rel?")
        );
    }

    #[test]
    fn two_sets_of_one_name_and_a_pattern_that_is_none_are_refused() {
        let set = "[[set]]\nname = \"a\"\ndirectory = \"a\"\n";
        let top = "out = \"o\"\nbase_url = \"http://example.org/\"\n";
        let problems = parse(&format!("{top}{set}{set}")).unwrap_err();
        assert_eq!(problems, ["set 2: name: `a` is the name of another set"]);
        let problems = parse(&format!("{top}directory = \"d\"\nignore = [\"[z-a]\"]")).unwrap_err();
        assert!(problems[0].starts_with("ignore: "), "{problems:?}");
        assert!(parse("out = ").unwrap_err()[0].contains("is no TOML"));
    }
}
