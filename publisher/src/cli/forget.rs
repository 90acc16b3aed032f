//! `forget`: lists what is kept of a file, and takes it out for good.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use resync_common::{
    output::{Table, say},
    words::{Size, counted},
};
use resync_publisher::forget::{self, Kept, KeptVersion, Removed, VersionName, Which};
use serde_json::json;

use super::{
    Failure,
    arguments::ForgetArgs,
    print_json, sets,
    text::{count, escaped},
};

pub(super) fn run(arguments: &ForgetArgs) -> Result<(), Failure> {
    match arguments.which() {
        None => list(arguments),
        Some(which) => remove(arguments, which),
    }
}

fn list(arguments: &ForgetArgs) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    let (found, failed) = sets::each(&outs, |out: &Path| forget::kept(out, &arguments.resource));
    let found: Vec<Kept> = found.into_iter().flatten().collect();
    if found.is_empty() && failed.is_empty() {
        return Err(never_kept(arguments, None));
    }
    if arguments.out.json {
        print_json(&json!({ "kept": found }))?;
    } else {
        table(&found).print();
    }
    sets::outcome(failed, outs.len(), "cannot be read")
}

fn remove(arguments: &ForgetArgs, which: Which) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    refuse_several(arguments, &outs)?;
    let is_json = arguments.out.json;
    let announce = |goes: &Removed| {
        if !is_json {
            going(goes).into_iter().for_each(say);
        }
    };
    let (resource, with_others) = (&arguments.resource, arguments.with_others);
    let (removed, failed) =
        sets::each(&outs, |out: &Path| forget::forget(out, resource, which, with_others, announce));
    let removed: Vec<Removed> = removed.into_iter().flatten().collect();
    if removed.is_empty() && failed.is_empty() {
        return Err(never_kept(arguments, Some(which)));
    }
    if is_json {
        print_json(&json!({ "forgotten": removed }))?;
    } else {
        removed.iter().map(gone).for_each(say);
    }
    sets::outcome(failed, outs.len(), "could not forget it")
}

/// One path may mean a file of each set, and what is removed is gone.
fn refuse_several(arguments: &ForgetArgs, outs: &[PathBuf]) -> Result<(), Failure> {
    if outs.len() < 2 {
        return Ok(());
    }
    let (found, _) = sets::each(outs, |out: &Path| forget::kept(out, &arguments.resource));
    let uris: BTreeSet<String> =
        found.into_iter().flatten().map(|kept| format!("`{}`", escaped(&kept.uri))).collect();
    if uris.len() < 2 {
        return Ok(());
    }
    let name = escaped(&arguments.resource.to_string_lossy());
    Err(Failure::SeveralKept { name, uris: uris.into_iter().collect::<Vec<_>>().join(" or ") })
}

fn never_kept(arguments: &ForgetArgs, which: Option<Which>) -> Failure {
    let name = escaped(&arguments.resource.to_string_lossy());
    Failure::NeverKept(match which {
        Some(Which::At(at)) => format!("`{name}` from {at} on"),
        Some(Which::All) | None => format!("`{name}`"),
    })
}

fn table(found: &[Kept]) -> Table {
    let mut table = Table::new(["TIME", "SIZE", "URI", "DIGEST", "SAME BYTES"]);
    for Kept { uri, versions, .. } in found {
        for version in versions {
            let KeptVersion { moment, bytes, digest, .. } = version;
            let cells = [moment.to_string(), Size(*bytes).to_string(), uri.clone()];
            table.row(cells.into_iter().chain([digest.to_string(), sharers(version)]));
        }
    }
    table
}

/// Names one and counts the others; empty where nobody else has the bytes.
fn sharers(version: &KeptVersion) -> String {
    match (version.shared_with.first(), version.others.saturating_sub(1)) {
        (None, _) => String::new(),
        (Some(VersionName { uri, .. }), 0) => uri.clone(),
        (Some(VersionName { uri, .. }), more) => format!("{uri} and {more} more"),
    }
}

/// What goes, a line each.
fn going(goes: &Removed) -> Vec<String> {
    let own = goes.versions.iter().map(|version| {
        let (bytes, digest) = (Size(version.bytes), version.digest);
        format!("goes: `{}` from {} on, {bytes}, {digest}", escaped(&goes.uri), version.moment)
    });
    let also = goes.shared_with.iter().map(|VersionName { uri, moment }| {
        format!("goes with it, as it has the same bytes: `{}` from {moment} on", escaped(uri))
    });
    let more = goes.others.saturating_sub(goes.shared_with.len() as u64);
    let more = (more > 0).then(|| format!("and {} with the same bytes", count(more, "more version")));
    own.chain(also).chain(more).collect()
}

/// What was done, and what was not.
fn gone(removed: &Removed) -> String {
    let uri = escaped(&removed.uri);
    let still = match (removed.published, removed.same_bytes_published) {
        (false, _) => "",
        (true, false) => "; the file itself is still published",
        (true, true) => "; the file itself is still published, with these bytes",
    };
    if removed.versions.is_empty() {
        return format!("nothing is kept of `{uri}` that was to be forgotten, nor will be{still}");
    }
    let all = count(removed.versions.len() as u64, "version");
    let with = match removed.others {
        0 => String::new(),
        others => format!(" and {} with the same bytes", counted(others, "other", "others")),
    };
    format!(
        "{all} of `{uri}`{with} forgotten, {}; they answer 410, and caches may keep them for a year{still}",
        Size(removed.bytes)
    )
}
