//! `forget`: lists what is kept of a file, and takes it out for good.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use resync_common::{
    output::{Table, say},
    words::{Size, counted},
};
use resync_core::websub::TopicUrl;
use resync_publisher::{
    Error,
    forget::{self, Forget, Kept, KeptVersion, Removal, VersionName, Which},
};
use serde_json::json;

use super::{
    Failure,
    arguments::ForgetArgs,
    print_json, sets,
    text::{count, escaped},
};

/// Sets that failed, with their names if there are several.
type Failed = Vec<(Option<String>, Failure)>;

pub(super) fn run(arguments: &ForgetArgs) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    match arguments.which() {
        None => list(arguments, &outs),
        Some(which) => remove(arguments, which, &outs),
    }
}

fn list(arguments: &ForgetArgs, outs: &[PathBuf]) -> Result<(), Failure> {
    let (found, failed) = kept(arguments, outs);
    if found.is_empty() && failed.is_empty() {
        return Err(Failure::NeverKept(name(arguments)));
    }
    if arguments.out.json {
        print_json(&json!({ "kept": found }))?;
    } else {
        table(&found).print();
    }
    sets::outcome(failed, outs.len(), "cannot be read")
}

fn remove(arguments: &ForgetArgs, which: Which, outs: &[PathBuf]) -> Result<(), Failure> {
    if outs.len() > 1 {
        refuse_several(arguments, outs)?;
    }
    let (is_json, is_dry) = (arguments.out.json, arguments.dry_run);
    let announce = |removal: &Removal| {
        if !is_json {
            going(removal).into_iter().for_each(say);
        }
    };
    let one = |out: &Path| {
        let forget = Forget::new(out, &arguments.resource, which).with_others(arguments.with_others);
        let removal = forget.dry_run(is_dry).announce(&announce).run()?;
        Ok::<_, Error>((out.to_owned(), removal))
    };
    let (done, mut failed) = sets::each(outs, one);
    let (mut removals, mut others) = (Vec::new(), Vec::new());
    for (out, removal) in done {
        match removal {
            Some(removal) => removals.push(removal),
            None => others.push(out),
        }
    }
    if removals.is_empty() && failed.is_empty() {
        return Err(no_such(arguments, which, outs));
    }
    let (elsewhere, unread) = elsewhere(outs, &others, &removals);
    failed.extend(unread);
    if is_json {
        let what = if is_dry { "would_forget" } else { "forgotten" };
        print_json(&json!({ what: removals, "other_sets": elsewhere }))?;
    } else {
        let said = removals.iter().flat_map(|one| if is_dry { would_go(one) } else { gone(one) });
        said.chain(elsewhere.iter().map(|uri| same_elsewhere(uri))).for_each(say);
    }
    sets::outcome(failed, outs.len(), "could not forget it, or not be asked for the same bytes")
}

/// What each set keeps of what was named.
fn kept(arguments: &ForgetArgs, outs: &[PathBuf]) -> (Vec<Kept>, Failed) {
    let (found, failed) = sets::each(outs, |out: &Path| forget::kept(out, &arguments.resource));
    (found.into_iter().flatten().collect(), failed)
}

/// One path may mean a file of each set, and what is removed is gone. A set that cannot be read may have one, too.
fn refuse_several(arguments: &ForgetArgs, outs: &[PathBuf]) -> Result<(), Failure> {
    let (found, failed) = kept(arguments, outs);
    let is_uri = arguments.resource.to_str().is_some_and(|text| TopicUrl::parse(text).is_ok());
    if !is_uri {
        sets::outcome(failed, outs.len(), "cannot be read, so nothing is removed; name the file by its URI")?;
    }
    let uris: BTreeSet<String> = found.iter().map(|kept| escaped(&kept.uri)).collect();
    if uris.len() < 2 {
        return Ok(());
    }
    Err(Error::SeveralKept { name: name(arguments), uris: uris.into_iter().collect() }.into())
}

/// The resources of sets that have nothing of this name, but the same bytes. These sets keep them.
fn elsewhere(outs: &[PathBuf], others: &[PathBuf], removals: &[Removal]) -> (BTreeSet<String>, Failed) {
    let digests: Vec<_> = removals.iter().flat_map(|one| one.digests.iter().copied()).collect();
    let (mut uris, mut failed) = (BTreeSet::new(), Vec::new());
    for out in others {
        match forget::same_bytes(out, &digests) {
            Ok(found) => uris.extend(found),
            Err(error) => failed.push((sets::name_in(outs, out), error.into())),
        }
    }
    (uris, failed)
}

fn no_such(arguments: &ForgetArgs, which: Which, outs: &[PathBuf]) -> Failure {
    match which {
        Which::At(at) if !kept(arguments, outs).0.is_empty() => {
            Failure::NoSuchVersion { name: name(arguments), at }
        }
        Which::At(_) | Which::All => Failure::NeverKept(name(arguments)),
    }
}

fn name(arguments: &ForgetArgs) -> String {
    escaped(&arguments.resource.to_string_lossy())
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
fn going(removal: &Removal) -> Vec<String> {
    let own = removal.versions.iter().map(|KeptVersion { moment, bytes, digest, .. }| {
        let uri = escaped(&removal.uri);
        format!("removes the version of `{uri}` that began at {moment} ({}, {digest})", Size(*bytes))
    });
    let also = removal.shared_with.iter().map(|VersionName { uri, moment }| {
        let uri = escaped(uri);
        format!("also removes, since its bytes are equal: the version of `{uri}` that began at {moment}")
    });
    let more = removal.others.saturating_sub(removal.shared_with.len() as u64);
    let more = (more > 0).then(|| format!("also removes {} with equal bytes", count(more, "more version")));
    own.chain(also).chain(more).collect()
}

/// What a dry run finds.
fn would_go(removal: &Removal) -> Vec<String> {
    let going = if removal.versions.is_empty() { Vec::new() } else { going(removal) };
    nothing_kept(removal).into_iter().chain(going).chain(staying(removal)).collect()
}

/// What was done, and what was not.
fn gone(removal: &Removal) -> Vec<String> {
    let with = match removal.others {
        0 => String::new(),
        others => format!(" and {} with the same bytes", counted(others, "other", "others")),
    };
    let done = match removal.versions.len() as u64 {
        0 => nothing_kept(removal).map(|line| line + ", and no build will keep them"),
        versions => Some(format!(
            "{} of `{}`{with} forgotten, {}; `resync-source serve` answers 410 now, and caches may keep copies for a year",
            count(versions, "version"),
            escaped(&removal.uri),
            Size(removal.bytes)
        )),
    };
    done.into_iter().chain(staying(removal)).collect()
}

/// `None` if something is, or if [`staying`] says all that there is to say.
fn nothing_kept(removal: &Removal) -> Option<String> {
    let Removal { uri, versions, empty, without_digest, digests, .. } = removal;
    let is_said = digests.is_empty() && empty + without_digest > 0;
    let is_nothing = versions.is_empty() && !is_said;
    is_nothing.then(|| format!("no bytes of these versions of `{}` are kept", escaped(uri)))
}

/// What stays, or may come back, a line each.
fn staying(removal: &Removal) -> Vec<String> {
    let Removal { empty, without_digest, published_with_same_bytes: same, .. } = removal;
    let uri = escaped(&removal.uri);
    let empty = (*empty > 0).then(|| {
        let stay = if *empty == 1 { "stays" } else { "stay" };
        format!("{} of `{uri}` {stay}: empty bytes are never removed", count(*empty, "empty version"))
    });
    let unknown = (*without_digest > 0).then(|| {
        let have = if *without_digest == 1 { "has" } else { "have" };
        let versions = count(*without_digest, "version");
        format!("{versions} of `{uri}` {have} no SHA-256 on record: a build that finds the same bytes again keeps them")
    });
    let is_still = removal.published && !same.contains(&removal.uri);
    let still = is_still.then(|| format!("the file itself is still published: `{uri}`"));
    let same = same.iter().map(|uri| format!("still published with these bytes: `{}`", escaped(uri)));
    empty.into_iter().chain(unknown).chain(still).chain(same).collect()
}

fn same_elsewhere(uri: &str) -> String {
    format!("another set has the same bytes, kept or published: `{}`; forget them there, too", escaped(uri))
}
