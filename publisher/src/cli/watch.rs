//! `watch`: builds and notifies until it is stopped.

use std::{collections::BTreeSet, path::PathBuf, pin::pin, time::Duration};

use resync_common::{output::answer, signals};
use resync_publisher::{notify::Token, publish::BuildMode, watch};

use super::{Failure, arguments::BuildArgs, build, json, sets::name_in, text, tokens};

pub(super) async fn run(arguments: &BuildArgs, token: Vec<Token>, rescan: Duration) -> Result<(), Failure> {
    let build_request = arguments.build_request()?;
    tokens::check_for_build(arguments, &build_request, &token)?;
    let sets = build_request.sets.clone();
    let is_json = arguments.out.json;
    let mut stop = pin!(signals::stop()?);
    // The first build reports like `build`, and shows at once what cannot work. Sets that fail are tried again, and so is an only one whose files seem to be
    // gone: its disk may be mounted later.
    let mut first = tokio::select! {
        first = build::all(arguments, build_request, BuildMode::WithoutDumps) => first?,
        () = &mut stop => return Ok(()),
    };
    if first.built.is_empty() && first.emptied.is_empty() {
        return first.outcome();
    }
    let claim = first.claim.take();
    // Of a set with a name this has been printed.
    let mut said: BTreeSet<PathBuf> = first.emptied.drain(..).collect();
    said.retain(|emptied| sets.iter().any(|(out, set)| out == emptied && set.settings.root.is_some()));
    first.print(is_json, [])?;
    let sets: Vec<_> = sets.into_iter().map(|(out, set_settings)| (out, set_settings.settings)).collect();
    let outs: Vec<_> = sets.iter().map(|(out, _)| out.clone()).collect();
    let timing = watch::Timing { rescan, ..watch::Timing::default() };
    let observe = |report: watch::Report| {
        match &report {
            watch::Report::BuildFailed(out, error) if error.is_of_emptiness() && said.remove(out) => return,
            watch::Report::Built(out, _) => {
                said.remove(out);
            }
            _ => {}
        }
        let name = name_in(&outs, report.out());
        if is_json {
            json::watched(name.as_deref(), &report).into_iter().for_each(answer);
        } else {
            text::print_report(name.as_deref(), &report);
        }
    };
    let options = watch::Options { claim, tokens: token, timing, allow_empty: arguments.allow_empty };
    Ok(watch::watch(sets, options, stop, observe).await?)
}
