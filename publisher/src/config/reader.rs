//! What the keys of a file mean: the sets, their links and the rules.

use std::path::{Path, PathBuf};

use resync_common::config::Keys;
use resync_core::digest::Algorithm;

use super::Config;
use crate::settings::{
    BaseUrl, HubUrl, Keep, LinkError, LinkTemplate, PageUrl, Root, Rules, SetName, Settings, VersionRules,
};

/// Keys of a set. For those that it does not have, those at the top count.
const OF_SETS: [&str; 8] =
    ["directory", "described_by", "hubs", "hash", "ignore", "json_patch", "link", "versions"];

/// All that the file says, as far as it can be understood. Relative paths start from `folder`.
pub(super) fn config(folder: &Path, top: Keys<'_, '_>) -> Option<Config> {
    top.know(&OF_SETS);
    let out = top.required("out", top.text("out"), "write the folder of the site");
    let out = out.map(|out| folder.join(out));
    let base_url = top.parsed("base_url", BaseUrl::parse);
    let base_url = top.required("base_url", base_url, "write the URL of that folder");
    let rules = rules(&top);
    let tables = top.sections("set");
    let sets = if top.has("set") {
        if top.has("directory") {
            top.blame("directory", &"belongs into each [[set]] where there are any");
        }
        sets(folder, &top, tables, base_url.as_ref(), out.as_deref(), rules)
    } else {
        let settings = settings(folder, &top, &top, base_url, rules);
        settings.zip(out.clone()).map(|(settings, out)| vec![(out, settings)])
    };
    top.finish();
    Some(Config { out: out?, sets: sets? })
}

fn sets(
    folder: &Path,
    top: &Keys<'_, '_>,
    tables: Vec<Keys<'_, '_>>,
    root: Option<&BaseUrl>,
    out: Option<&Path>,
    rules: Rules,
) -> Option<Vec<(PathBuf, Settings)>> {
    let (all, mut found) = (tables.len(), Vec::<(PathBuf, Settings)>::new());
    for set in tables {
        set.know(&OF_SETS);
        let name = set.required("name", set.parsed("name", SetName::parse), "write what the set is called");
        let own = set.parsed("base_url", BaseUrl::parse);
        let below = root.zip(name.as_ref()).map(|(root, name)| root.below(name));
        let base_url = if set.has("base_url") { own } else { below };
        let settings = settings(folder, top, &set, base_url, rules);
        if let (Some(name), Some(root), Some(out), Some(settings)) = (name, root, out, settings) {
            let folder = out.join(name.as_str());
            if found.iter().any(|(known, _)| *known == folder) {
                set.blame("name", &format!("`{name}` is the name of another set"));
            }
            let root = Root { base_url: root.clone(), name, described_by: page(top) };
            found.push((folder, Settings { root: Some(root), ..settings }));
        }
        set.finish();
    }
    (found.len() == all).then_some(found)
}

fn settings(
    folder: &Path,
    top: &Keys<'_, '_>,
    set: &Keys<'_, '_>,
    base_url: Option<BaseUrl>,
    rules: Rules,
) -> Option<Settings> {
    let directory = set.required("directory", set.text("directory"), "write the folder of the resources");
    let of = |key: &str| if set.has(key) { set } else { top };
    let hubs = of("hubs").list("hubs", HubUrl::parse);
    let hash =
        of("hash").list("hash", |text| text.parse::<Algorithm>().map_err(|_| "write md5, sha-1 or sha-256"));
    let ignore = texts(of("ignore"), "ignore");
    let links = of("link").sections("link").into_iter().filter_map(link).collect();
    let json_patch = of("json_patch").flag("json_patch").unwrap_or(false);
    let versions = of("versions").section("versions").map_or_else(VersionRules::default, versions);
    let described_by = page(of("described_by"));
    let settings = Settings::new(folder.join(directory?), base_url?).hashes(hash);
    let settings = Settings { rules, ignore, json_patch, links, versions, described_by, ..settings };
    if let Err(reason) = settings.ignored() {
        of("ignore").blame("ignore", &reason);
    }
    Some(hubs.into_iter().fold(settings, Settings::hub))
}

fn rules(top: &Keys<'_, '_>) -> Rules {
    let mut rules = Rules::default();
    if let Some(list) = top.section("change_list") {
        replace(&mut rules.change_list_entries, number(&list, "entries", 1, 50_000));
        rules.change_list_seconds = seconds(&list, "age", rules.change_list_seconds);
        list.finish();
    }
    if let Some(list) = top.section("resource_list") {
        replace(&mut rules.resource_list_small, number(&list, "small", 0, u64::MAX >> 1));
        replace(&mut rules.resource_list_percent, number(&list, "percent", 1, 100));
        rules.resource_list_seconds = seconds(&list, "age", rules.resource_list_seconds);
        replace(&mut rules.resource_lists_kept, number(&list, "keep", 1, 1_000));
        list.finish();
    }
    if let Some(dump) = top.section("resource_dump") {
        rules.resource_dump_seconds = seconds(&dump, "every", None);
        replace(&mut rules.resource_dumps_kept, number(&dump, "keep", 1, 1_000));
        dump.finish();
    }
    if let Some(dump) = top.section("change_dump") {
        rules.change_dump_seconds = seconds(&dump, "every", None);
        dump.finish();
    }
    if let Some(archive) = top.section("archive") {
        rules.archive_seconds = seconds(&archive, "after", None);
        archive.finish();
    }
    rules
}

fn versions(keys: Keys<'_, '_>) -> VersionRules {
    let mut rules = VersionRules { only: texts(&keys, "only"), ..VersionRules::default() };
    let what = "\"never\", \"always\", or a time such as \"365d\", in whole seconds";
    let keep = keys.read("keep", what, |value| match value.as_str()? {
        "never" => Some(Keep::Never),
        "always" => Some(Keep::Always),
        text => whole_seconds(text).map(Keep::Seconds),
    });
    replace(&mut rules.keep, keep);
    replace(
        &mut rules.bytes,
        keys.read("size", "a size such as \"50 GiB\"", |value| bytes_of(value.as_str()?)),
    );
    if let Err(reason) = rules.patterns() {
        keys.blame("only", &reason);
    }
    keys.finish();
    rules
}

/// A number of bytes with its unit, of 1,000 or of 1,024, or of bytes.
fn bytes_of(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let kinds = ["k", "m", "g", "t", "p"];
    let power =
        |letter: &str| kinds.iter().zip(1..).find_map(|(kind, power)| (*kind == letter).then_some(power));
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        unit => match (unit.strip_suffix("ib"), unit.strip_suffix('b')) {
            (Some(letter), _) => 1024_u64.pow(power(letter)?),
            (None, Some(letter)) => 1000_u64.pow(power(letter)?),
            (None, None) => return None,
        },
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn link(keys: Keys<'_, '_>) -> Option<LinkTemplate> {
    let rel = keys.required("rel", keys.text("rel"), "write how the target is related");
    let href = keys.required("href", keys.text("href"), "write the URL of the target");
    let (pri, only) = (number(&keys, "pri", 1, 999_999), texts(&keys, "only"));
    let media_type = keys.text("type");
    let (is_sidecar, has_time) = (keys.flag("sidecar"), keys.flag("modified"));
    let template = |rel: String, href: String| -> Result<LinkTemplate, LinkError> {
        let mut template = LinkTemplate::new(&rel, &href)?.only(only)?;
        if let Some(pri) = pri {
            template = template.pri(pri)?;
        }
        if let Some(media_type) = media_type {
            template = template.media_type(media_type);
        }
        if is_sidecar == Some(true) {
            template = template.sidecar();
        }
        Ok(if has_time == Some(true) { template.modified() } else { template })
    };
    let made = rel.zip(href).map(|(rel, href)| template(rel, href));
    let link = made.and_then(|made| made.map_err(|error| keys.wrong("rel", error.to_string())).ok());
    keys.finish();
    link
}

fn page(keys: &Keys<'_, '_>) -> Option<PageUrl> {
    keys.parsed("described_by", PageUrl::parse)
}

fn texts(keys: &Keys<'_, '_>, key: &str) -> Vec<String> {
    keys.list(key, |text| Ok::<_, std::convert::Infallible>(text.to_owned()))
}

fn number<T: TryFrom<u64>>(keys: &Keys<'_, '_>, key: &str, from: u64, to: u64) -> Option<T> {
    keys.count(key, from, to).and_then(|number| T::try_from(number).ok())
}

/// A duration in seconds, `None` for `never`; `otherwise` where the key is missing.
fn seconds(keys: &Keys<'_, '_>, key: &str, otherwise: Option<u64>) -> Option<u64> {
    let what = "a time such as \"12h\" or \"30d\", in whole seconds, or \"never\"";
    let time = keys.read(key, what, |value| match value.as_str()? {
        "never" => Some(None),
        text => whole_seconds(text).map(Some),
    });
    time.unwrap_or(otherwise)
}

/// A time without a rest that would be lost.
fn whole_seconds(text: &str) -> Option<u64> {
    let time = humantime::parse_duration(text).ok().filter(|time| time.subsec_nanos() == 0);
    time.map(|time| time.as_secs())
}

fn replace<T>(value: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *value = new;
    }
}
