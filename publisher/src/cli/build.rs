//! `build`, `publish` and `dump`: builds all sets of a site.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    thread::available_parallelism,
};

use indicatif::MultiProgress;
use resync_common::output::{say, warn};
use resync_publisher::{
    Error,
    blocking::unblocked,
    publish::{
        self, Build, BuildMode, Built, Claim, DryRun, DueDumps, Dump, RetireFailure, claim, clear, describe,
    },
    state::set_folders,
    status,
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    Failure,
    arguments::{BuildArgs, TokenArgs, outs_of},
    failed_set, json,
    notify::{
        NotifyReport, drop_hubs, has_hub_to_notify, notify_all, warn_of_hubs_on_hold, warn_of_replaced_hubs,
    },
    print_json,
    progress::Bar,
    request::{BuildRequest, SetSettings},
    sets::{self, print_failure},
    text, tokens,
};

/// As many sets are built at once as there are cores, within these bounds: a set that waits for another process does not delay others, and each hashes on all
/// cores.
const BUILDS: (usize, usize) = (2, 8);

/// What a build of all sets did, for a person and for a script.
#[derive(Default)]
pub(super) struct BuildReport {
    /// The names of the sets that the configuration no longer lists and that were removed.
    retired: Vec<String>,
    /// With the name of the set if there are several.
    lines: Vec<(Option<String>, String)>,
    sets: Vec<Value>,
    has_maintenance_failures: bool,
    /// Whether there was no room for a version.
    lacks_versions: bool,
    failed: Vec<Failure>,
    /// The sets that were built, and those that were not.
    pub(super) built: Vec<(PathBuf, SetSettings)>,
    unbuilt: Vec<PathBuf>,
    /// Those of them whose files seem to be gone.
    pub(super) emptied: Vec<PathBuf>,
    /// The claim of a configuration that lists all sets.
    pub(super) claim: Option<Claim>,
    /// The dry run of which it is.
    dry_run: Option<Arc<DryRun>>,
}

impl BuildReport {
    fn add_built(&mut self, set_settings: &SetSettings, built: &Built) {
        let name = name_of(set_settings);
        for line in text::warnings(built) {
            warn(text::of_set(name, &line));
        }
        self.lines.push((name.map(str::to_owned), text::built(built, set_settings, self.dry_run.is_some())));
        self.sets.push(json::built(name, built));
        self.has_maintenance_failures |= !built.failures.is_empty();
        self.lacks_versions |= built.unkept.failed > 0;
    }

    /// Something that could not be done for a set. The failure of an only set is the outcome of the command.
    fn add_failure(&mut self, name: Option<&str>, failure: Failure) {
        let failure = self.named(failure);
        print_failure(name, &failure);
        self.failed.push(failure);
    }

    /// A set that cannot be built.
    fn add_unbuilt(&mut self, out: PathBuf, name: Option<&str>, failure: Failure) {
        if matches!(&failure, Failure::Publisher(error) if error.is_of_emptiness()) {
            self.emptied.push(out.clone());
        }
        let failure = self.named(failure);
        self.sets.push(failed_set(name, &failure));
        self.add_failure(name, failure);
        self.unbuilt.push(out);
    }

    /// A failure by the paths of the site, also of a dry run.
    fn named(&self, failure: Failure) -> Failure {
        match &self.dry_run {
            Some(dry_run) => failure.tried_in(dry_run),
            None => failure,
        }
    }

    /// The name of a set by its folder, also in a dry run.
    fn name_of_folder(&self, out: &Path) -> String {
        let original = self.dry_run.as_ref().map_or_else(|| out.to_owned(), |dry_run| dry_run.original(out));
        original.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The sets whose hubs are notified: those that were built, and others that can be read. An error if the site has none.
    fn outs_to_notify(&self, site: &Path) -> Result<Vec<PathBuf>, Failure> {
        let mut outs = outs_of(site)?;
        outs.retain(|out| !self.unbuilt.contains(out) || status(out).is_ok());
        Ok(outs)
    }

    /// The outcome of the command. It is returned last, so that hubs are notified of what was built.
    pub(super) fn outcome(&mut self) -> Result<(), Failure> {
        let failed = std::mem::take(&mut self.failed);
        sets::sum(failed, self.sets.len(), "could not be built; the others were published")?;
        match (self.has_maintenance_failures, self.lacks_versions) {
            (true, _) => Err(Failure::Maintenance),
            (false, true) => Err(Failure::Versions),
            (false, false) => Ok(()),
        }
    }

    /// Adds something to the line of a set.
    fn add_to_line(&mut self, name: Option<&str>, more: String) {
        match self.lines.iter_mut().find(|(known, _)| name.is_none() || known.as_deref() == name) {
            Some((_, line)) => *line = format!("{line} · {more}"),
            None => self.lines.push((name.map(str::to_owned), more)),
        }
    }

    /// Adds what came of notifying the hubs.
    fn add_notified(&mut self, notify_report: &NotifyReport) {
        for (name, line) in notify_report.lines() {
            self.add_to_line(name, line);
        }
    }

    /// Makes the dumps that are due; says whether there was one.
    async fn make_due_dumps(&mut self) -> bool {
        let mut is_any = false;
        for (out, set_settings) in self.built.clone() {
            let claim = self.claim.clone();
            let dumping = unblocked(move || {
                let bar = Bar::new();
                DueDumps::new(&out).claim(claim.as_ref()).progress(&|step| bar.show(step)).make()
            });
            let maintenance = dumping.await;
            let name = name_of(&set_settings);
            for failure in &maintenance.failures {
                warn(text::of_set(name, &text::failure(failure)));
            }
            self.has_maintenance_failures |= !maintenance.failures.is_empty();
            self.sets
                .iter_mut()
                .filter(|set| set["set"].as_str() == name)
                .for_each(|set| json::add(set, &maintenance));
            if !maintenance.written.is_empty() {
                self.add_to_line(name, text::maintenance(&maintenance));
                is_any = true;
            }
        }
        is_any
    }

    /// Prints it, with more values in JSON.
    pub(super) fn print(
        self,
        is_json: bool,
        more: impl IntoIterator<Item = (&'static str, Vec<Value>)>,
    ) -> Result<(), Failure> {
        if !is_json {
            let retired = text::retired(self.dry_run.is_some());
            self.retired.iter().map(|name| text::of_set(Some(name), &retired)).for_each(say);
            self.lines.iter().map(|(name, line)| text::of_set(name.as_deref(), line)).for_each(say);
            return Ok(());
        }
        let mut object = json!({ "sets": self.sets, "retired": self.retired });
        if self.dry_run.is_some() {
            object["dry_run"] = json!(true);
        }
        for (key, values) in more {
            object[key] = json!(values);
        }
        print_json(&object)
    }
}

fn name_of(set_settings: &SetSettings) -> Option<&str> {
    set_settings.settings.root.as_ref().map(|root| root.name.as_str())
}

/// Builds the sets, some at once, and returns the results in their order.
async fn build_each(
    sets: &[(PathBuf, SetSettings)],
    claim: Option<&Claim>,
    mode: BuildMode,
    allow_empty: bool,
    dry_run: Option<&Arc<DryRun>>,
) -> Vec<Result<Built, Error>> {
    let (fewest, most) = BUILDS;
    let permits =
        Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from).clamp(fewest, most)));
    let bars = MultiProgress::new();
    let mut building = JoinSet::new();
    for (position, (out, set_settings)) in sets.iter().enumerate() {
        let (settings, place, claimed) = (set_settings.settings.clone(), out.clone(), claim.cloned());
        let (permits, bars, dry_run) = (Arc::clone(&permits), bars.clone(), dry_run.cloned());
        building.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            let built = unblocked(move || {
                let bar = Bar::among(&bars);
                let progress = |step| bar.show(step);
                let build = Build::new(&settings, &place).claim(claimed.as_ref()).mode(mode);
                build.allow_empty(allow_empty).dry_run(dry_run.as_deref()).progress(&progress).run()
            });
            (position, built.await)
        });
    }
    let built: BTreeMap<_, _> = building.join_all().await.into_iter().collect();
    built.into_values().collect()
}

/// Builds all sets, and lists them in the Source Description.
pub(super) async fn all(
    arguments: &BuildArgs,
    build_request: BuildRequest,
    mode: BuildMode,
) -> Result<BuildReport, Failure> {
    if let Some(contradiction) = &build_request.contradiction {
        warn(contradiction);
    }
    let site = build_request.configured_site();
    let hints = arguments.out.hints_with(build_request.place_of_hubs());
    let BuildRequest { out, sets, drops, dry_run, .. } = build_request;
    let are_several = sets.len() > 1;
    let mut report = BuildReport { dry_run: dry_run.clone(), ..BuildReport::default() };
    if let Some((site, configuration)) = site.clone() {
        let staying: Vec<_> = sets.iter().map(|(out, _)| out.clone()).collect();
        let takes_over = arguments.take_over;
        let claimed = unblocked(move || claim(&site, &configuration, &staying, takes_over)).await?;
        report.claim = Some(claimed);
    }
    let (claim_of_all, allow_empty) = (report.claim.as_ref(), arguments.allow_empty);
    let built = build_each(&sets, claim_of_all, mode, allow_empty, dry_run.as_ref()).await;
    for ((out, set_settings), built) in sets.into_iter().zip(built) {
        match built {
            Ok(built) => {
                report.add_built(&set_settings, &built);
                report.built.push((out, set_settings));
            }
            Err(error) => report.add_unbuilt(out, name_of(&set_settings), error.into()),
        }
    }
    if are_several {
        for (out, set_settings) in report.built.clone() {
            if let Err(error) = unblocked(move || describe(&out)).await {
                report.add_failure(name_of(&set_settings), error.into());
            }
        }
    }
    // The Source Description no longer lists the retired sets.
    if let Some((site, _)) = site.filter(|_| report.failed.is_empty()) {
        let cleared = unblocked(move || clear(&site)).await?;
        report.retired = cleared.iter().map(|out| report.name_of_folder(out)).collect();
    }
    let unretired = report.claim.as_ref().map_or(Vec::new(), |claim| claim.retire_failures().to_vec());
    for RetireFailure { out, error } in unretired {
        let name = report.name_of_folder(&out);
        report.add_unbuilt(out, Some(&name), Failure::Retire(error));
    }
    warn_of_hubs_on_hold(&set_folders(&out)?, &drops, &hints);
    for (out, set_settings) in &report.built {
        warn_of_replaced_hubs(out, &set_settings.replaced_hubs, &drops);
    }
    Ok(report)
}

pub(super) async fn publish(arguments: &BuildArgs, token: &TokenArgs) -> Result<(), Failure> {
    let mut build_request = arguments.build_request()?;
    tokens::check_for_build(arguments, &build_request, &token.tokens.token)?;
    build_request.drops.clone_from(&token.drop_hub);
    let (site, place_of_hubs) = (build_request.out.clone(), build_request.place_of_hubs());
    let mut built = all(arguments, build_request, BuildMode::WithoutDumps).await?;
    let is_json = arguments.out.json;
    // Why a set was not built has been printed.
    let outs = match built.outs_to_notify(&site) {
        Ok(outs) => outs,
        Err(none) => {
            let failures = built.outcome();
            return built.print(is_json, []).and(failures).and(Err(none));
        }
    };
    let dropped = drop_hubs(&outs, &token.drop_hub, "dropped");
    let (statuses, _) = sets::each(&outs, status);
    let has_hubs = statuses.len() < outs.len() || statuses.iter().any(has_hub_to_notify);
    if !has_hubs {
        built.make_due_dumps().await;
        let failures = built.outcome();
        if let Some((_, last)) = built.lines.last_mut() {
            last.push_str(" · no hub to notify; add one ");
            last.push_str(&place_of_hubs);
        }
        let nothing = [("hubs", Vec::new()), ("notify_failures", Vec::new())];
        return built.print(is_json, nothing).and(failures).and(dropped);
    }
    let mut notify_report = notify_all(&outs, token).await;
    built.add_notified(&notify_report);
    // Dumps can take hours: the hubs are notified of the changes before, and of the dumps after.
    if built.make_due_dumps().await {
        let of_dumps = notify_all(&outs, token).await.only_changes();
        built.add_notified(&of_dumps);
        notify_report = notify_report.then(of_dumps);
    }
    let failures = built.outcome();
    built.print(is_json, notify_report.json())?;
    failures.and(notify_report.outcome).and(dropped)
}

/// `build` and `publish` with `--dry-run`: the same in a site of links, and what would be sent to the hubs. Dumps are not tried, since they may take hours.
pub(super) async fn try_out(arguments: &BuildArgs, token: Option<&TokenArgs>) -> Result<(), Failure> {
    let mut build_request = arguments.build_request()?;
    if let Some(token) = token {
        tokens::check_for_build(arguments, &build_request, &token.tokens.token)?;
        build_request.drops.clone_from(&token.drop_hub);
    }
    let site = build_request.out.clone();
    let dry_run = Arc::new(unblocked(move || DryRun::of(&site)).await?);
    let tried = try_in(arguments, token, build_request.tried_in(Arc::clone(&dry_run))).await;
    tried.map_err(|failure| failure.tried_in(&dry_run))
}

async fn try_in(
    arguments: &BuildArgs,
    token: Option<&TokenArgs>,
    build_request: BuildRequest,
) -> Result<(), Failure> {
    let site = build_request.out.clone();
    let mut report = all(arguments, build_request, BuildMode::WithoutDumps).await?;
    let (mut more, mut dropped) = (Vec::new(), Ok(()));
    if let (Some(token), Ok(outs)) = (token, report.outs_to_notify(&site)) {
        dropped = drop_hubs(&outs, &token.drop_hub, "would drop");
        let (all, told) = would_notify(&mut report, &outs);
        more.push(("would_notify", all));
        dropped = dropped.and(told);
    }
    let failures = report.outcome();
    report.print(arguments.out.json, more)?;
    failures.and(dropped)
}

/// Adds what would be sent to the hubs of these sets; returns it in JSON, and whether all of them could tell.
fn would_notify(report: &mut BuildReport, outs: &[PathBuf]) -> (Vec<Value>, Result<(), Failure>) {
    // As before a notification: for a set that has left, the Source Description has changed too.
    let (told, failed) =
        sets::each(outs, |out| describe(out).and_then(|_| Ok((out.to_owned(), status(out)?.hubs))));
    let mut all = Vec::new();
    for (out, hubs) in told {
        let name = (outs.len() > 1).then(|| report.name_of_folder(&out));
        for hub in hubs.iter().filter(|hub| !hub.on_hold) {
            if let Some(line) = text::would_notify(hub) {
                report.add_to_line(name.as_deref(), line);
                all.push(
                    json!({ "set": name, "hub": hub.url, "waiting": hub.waiting, "pending": hub.pending }),
                );
            }
        }
    }
    (all, sets::outcome(failed, outs.len(), "could not be announced to hubs"))
}

pub(super) async fn dump(arguments: &BuildArgs, changes: bool) -> Result<(), Failure> {
    let mut report = all(arguments, arguments.build_request()?, BuildMode::Full).await?;
    let failures = report.outcome();
    let what = if changes { Dump::Changes } else { Dump::Resources };
    let (mut dumps, mut failed) = (Vec::new(), Vec::new());
    let sets = std::mem::take(&mut report.built);
    let all = sets.len();
    for (out, set_settings) in sets {
        let dumped = unblocked(move || {
            let bar = Bar::new();
            publish::dump(&out, what, &|step| bar.show(step))
        });
        match dumped.await {
            Ok(dumped) => {
                report.add_to_line(name_of(&set_settings), text::dumped(what, &dumped));
                dumps.push(json::dumped(name_of(&set_settings), &dumped));
            }
            Err(error) => failed.push((name_of(&set_settings).map(str::to_owned), error.into())),
        }
    }
    let outcome = sets::outcome(failed, all, "could not be packed");
    report.print(arguments.out.json, [("dumps", dumps)])?;
    failures.and(outcome)
}
