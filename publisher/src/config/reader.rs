//! What the keys of a file mean: the sets, their links and the rules.

use std::path::{Path, PathBuf};

use resync_core::digest::Algorithm;
use toml::{Table, Value};

use super::Config;
use crate::{
    links::LinkTemplate,
    settings::{BaseUrl, HubUrl, PageUrl, Root, Rules, SetName, Settings},
};

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
const RESOURCE_LIST: [&str; 4] = ["small", "percent", "age", "keep"];

/// Reads one file; what is wrong with it is kept.
pub(super) struct Reader<'a> {
    /// Where relative paths start from.
    pub(super) folder: &'a Path,
    pub(super) problems: &'a mut Vec<String>,
}

impl Reader<'_> {
    /// All that the file says, as far as it can be understood.
    pub(super) fn config(&mut self, table: &Table) -> Option<Config> {
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
            self.kept(section, "resource_list.", &mut rules.resource_lists_kept);
        }
        if let Some(section) = self.section(table, "resource_dump") {
            self.only(section, &RESOURCE_DUMP, "resource_dump.");
            rules.resource_dump_seconds = self.time(section, "every", "resource_dump.", None);
            self.kept(section, "resource_dump.", &mut rules.resource_dumps_kept);
        }
        rules.change_dump_seconds = self.only_time(table, "change_dump", "every");
        rules.archive_seconds = self.only_time(table, "archive", "after");
        rules
    }

    /// How many snapshots stay.
    fn kept(&mut self, section: &Table, place: &str, kept: &mut usize) {
        if let Some(number) = self.number(section, "keep", place, 1..=1_000) {
            *kept = usize::try_from(number).unwrap_or(usize::MAX);
        }
    }
}
