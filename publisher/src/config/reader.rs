//! What the keys of a file mean: the sets, their links and the rules.

use std::path::{Path, PathBuf};

use resync_core::digest::Algorithm;
use toml::Value;

use super::{Config, section::Section};
use crate::settings::{BaseUrl, HubUrl, LinkError, LinkTemplate, PageUrl, Root, Rules, SetName, Settings};

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

/// Reads one file.
pub(super) struct Reader<'a> {
    /// Where relative paths start from.
    pub(super) folder: &'a Path,
    pub(super) top: Section<'a>,
}

impl Reader<'_> {
    /// All that the file says, as far as it can be understood.
    pub(super) fn config(&self) -> Option<Config> {
        let top = self.top;
        top.only(&TOP);
        let out = top.path("out").map(|out| self.folder.join(out));
        let base_url = top.parsed("base_url", BaseUrl::parse);
        let rules = self.rules();
        let sets = match top.table.get("set") {
            None => self
                .settings(top, base_url, rules)
                .zip(out.as_ref())
                .map(|(settings, out)| vec![(out.clone(), settings)]),
            Some(Value::Array(sets)) if !sets.is_empty() => {
                if top.has("directory") {
                    top.wrong("directory", &"belongs into each [[set]] where there are any");
                }
                self.sets(sets, base_url.as_ref(), out.as_deref(), rules)
            }
            Some(_) => {
                top.wrong("set", &"write [[set]], and below it name and directory, once for each set");
                None
            }
        };
        Some(Config { out: out?, sets: sets? })
    }

    fn sets(
        &self,
        sets: &[Value],
        root: Option<&BaseUrl>,
        out: Option<&Path>,
        rules: Rules,
    ) -> Option<Vec<(PathBuf, Settings)>> {
        let mut found: Vec<(PathBuf, Settings)> = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            let place = format!("set {}: ", number + 1);
            let Value::Table(table) = set else {
                self.top.wrong(&place, &"write it as a [[set]] with its keys below");
                continue;
            };
            let set = Section { table, place: &place, problems: self.top.problems };
            set.only(&SET);
            let name = set.parsed("name", SetName::parse);
            let own = set.has("base_url").then(|| set.parsed("base_url", BaseUrl::parse));
            let below = root.zip(name.as_ref()).map(|(root, name)| root.below(name));
            let settings = self.settings(set, own.unwrap_or(below), rules);
            let (Some(name), Some(root), Some(out), Some(settings)) = (name, root, out, settings) else {
                continue;
            };
            let folder = out.join(name.as_str());
            if found.iter().any(|(known, _)| *known == folder) {
                set.wrong("name", &format!("`{name}` is the name of another set"));
            }
            let root = Root { base_url: root.clone(), name, described_by: page(self.top) };
            found.push((folder, Settings { root: Some(root), ..settings }));
        }
        (found.len() == sets.len()).then_some(found)
    }

    /// The settings of a set. For keys that it does not have, those at the top count.
    fn settings(&self, set: Section<'_>, base_url: Option<BaseUrl>, rules: Rules) -> Option<Settings> {
        let directory = set.path("directory").map(|directory| self.folder.join(directory));
        let of = |key| if set.has(key) { set } else { self.top };
        let hubs = of("hubs").list("hubs", HubUrl::parse);
        let hash = of("hash")
            .list("hash", |text| text.parse::<Algorithm>().map_err(|_| "write md5, sha-1 or sha-256"));
        let ignore = of("ignore").texts("ignore");
        let links = links(of("link"));
        let json_patch = of("json_patch").flag("json_patch");
        let described_by = page(of("described_by"));
        let settings = Settings::new(directory?, base_url?).hashes(hash);
        let settings = Settings { rules, ignore, json_patch, links, described_by, ..settings };
        if let Err(reason) = settings.ignored() {
            of("ignore").wrong("ignore", &reason);
        }
        Some(hubs.into_iter().fold(settings, Settings::hub))
    }

    fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        if let Some(list) = self.top.below("change_list", "change_list.") {
            list.only(&["entries", "age"]);
            replace(&mut rules.change_list_entries, list.number("entries", 1..=50_000));
            rules.change_list_seconds = list.seconds("age", rules.change_list_seconds);
        }
        if let Some(list) = self.top.below("resource_list", "resource_list.") {
            list.only(&["small", "percent", "age", "keep"]);
            replace(&mut rules.resource_list_small, list.number("small", 0..=i64::MAX));
            replace(&mut rules.resource_list_percent, list.number("percent", 1..=100));
            rules.resource_list_seconds = list.seconds("age", rules.resource_list_seconds);
            replace(&mut rules.resource_lists_kept, list.number("keep", 1..=1_000));
        }
        if let Some(dump) = self.top.below("resource_dump", "resource_dump.") {
            dump.only(&["every", "keep"]);
            rules.resource_dump_seconds = dump.seconds("every", None);
            replace(&mut rules.resource_dumps_kept, dump.number("keep", 1..=1_000));
        }
        if let Some(dump) = self.top.below("change_dump", "change_dump.") {
            dump.only(&["every"]);
            rules.change_dump_seconds = dump.seconds("every", None);
        }
        if let Some(archive) = self.top.below("archive", "archive.") {
            archive.only(&["after"]);
            rules.archive_seconds = archive.seconds("after", None);
        }
        rules
    }
}

fn replace<T>(value: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *value = new;
    }
}

fn page(section: Section<'_>) -> Option<PageUrl> {
    let key = "described_by";
    section.has(key).then(|| section.parsed(key, PageUrl::parse)).flatten()
}

fn links(section: Section<'_>) -> Vec<LinkTemplate> {
    let Some(links) = section.table.get("link") else { return Vec::new() };
    let tables: Option<Vec<_>> =
        links.as_array().and_then(|links| links.iter().map(Value::as_table).collect());
    let Some(tables) = tables else {
        section.wrong("link", &"write [[link]], and below it rel and href, once for each link");
        return Vec::new();
    };
    let links = tables.into_iter().enumerate().filter_map(|(number, table)| {
        let place = format!("{}link {}: ", section.place, number + 1);
        link(Section { table, place: &place, problems: section.problems })
    });
    links.collect()
}

fn link(section: Section<'_>) -> Option<LinkTemplate> {
    section.only(&LINK);
    let (rel, href) = (section.text("rel"), section.text("href"));
    let (pri, only) = (section.number("pri", 1..=999_999), section.texts("only"));
    let media_type = section.has("type").then(|| section.text("type")).flatten();
    let (is_sidecar, has_time) = (section.flag("sidecar"), section.flag("modified"));
    let (rel, href) = (rel?, href?);
    let template = || -> Result<LinkTemplate, LinkError> {
        let mut template = LinkTemplate::new(rel, href)?.only(only)?;
        if let Some(pri) = pri {
            template = template.pri(pri)?;
        }
        if let Some(media_type) = media_type {
            template = template.media_type(media_type);
        }
        if is_sidecar {
            template = template.sidecar();
        }
        Ok(if has_time { template.modified() } else { template })
    };
    template().map_err(|error| section.wrong("", &error)).ok()
}
