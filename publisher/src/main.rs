//! `resync-source`: the Source's tool. All it does is in the library; here flags become calls and results become words.

mod cli;
mod json;
mod notify_report;
mod progress;
mod sets;
mod words;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::Arc,
    thread::available_parallelism,
    time::Duration,
};

use clap::CommandFactory as _;
use cli::{
    BuildArgs, BuildRequest, CheckArgs, Cli, Command, Failure, InitArgs, NotifyArgs, ServeArgs, SetSettings,
    StatusArgs, TokenArgs, outs_of,
};
use indicatif::MultiProgress;
use notify_report::{NotifyReport, notify_all};
use progress::Bar;
use resync_common::{
    logging::{self, takes_colour},
    signals,
};
use resync_publisher::{
    BaseUrl, HubUrl,
    blocking::unblocked,
    check, config,
    notify::{self, Token},
    publish::{
        Build, BuildError, BuildMode, Built, Claim, Dump, RetireFailure, claim, clear, describe,
        dump_with_progress, make_due_dumps,
    },
    serve, status, watch,
};
use serde_json::{Value, json};
use sets::{blame, name_in};
use tokio::{sync::Semaphore, task::JoinSet};

/// How long a build may go on that a watch has begun when it is to stop. What is cut short then, as a dump may be, is made by the next.
const GRACE: Duration = Duration::from_secs(5);

/// As many sets are built at once as there are cores, within these bounds: one that waits for another process holds up no other, and each hashes on all cores.
const BUILDS: (usize, usize) = (2, 8);

fn main() -> ExitCode {
    let cli = Cli::of_process();
    let logging = logging::start(&cli.log).map_err(|_| Failure::Log(cli.log.clone()));
    let done = logging.and_then(|()| {
        let runtime = tokio::runtime::Runtime::new()?;
        let done = runtime.block_on(run(cli.command));
        runtime.shutdown_timeout(GRACE);
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Init(arguments) => run_init(arguments),
        Command::Build(arguments) => {
            let mut said = run_build(&arguments, arguments.build_request()?, BuildMode::Full).await?;
            let outcome = said.outcome();
            said.say(arguments.out.json, []).and(outcome)
        }
        Command::Notify(arguments) => run_notify(&arguments).await,
        Command::Publish { build, token } => run_publish(&build, &token).await,
        Command::Dump { build, changes } => run_dump(&build, changes).await,
        Command::Watch { build, tokens, rescan } => run_watch(&build, tokens.token, rescan).await,
        Command::Serve(arguments) => run_serve(arguments).await,
        Command::Check(arguments) => run_check(&arguments).await,
        Command::Status(arguments) => run_status(&arguments),
        Command::Completions(wanted) => say(&wanted.script(Cli::command())),
        Command::Man(wanted) => wanted.write(Cli::command()).map_err(Failure::Man),
    }
}

/// What a build of all sets did, for a person and for a script.
#[derive(Default)]
struct Said {
    /// With the name of the set, where there are several.
    lines: Vec<(Option<String>, String)>,
    sets: Vec<Value>,
    has_maintenance_failures: bool,
    failed: Vec<Failure>,
    /// The sets that were built, and those that were not.
    built: Vec<(PathBuf, SetSettings)>,
    unbuilt: Vec<PathBuf>,
    /// That of the site, where a configuration names all of its sets.
    claim: Option<Claim>,
}

impl Said {
    fn take(&mut self, set_settings: &SetSettings, built: &Built) {
        let name = name_of(set_settings);
        for line in words::warnings(built) {
            eprintln!("warning: {}", words::of_set(name, &line));
        }
        self.lines.push((name.map(str::to_owned), words::built(built, set_settings)));
        self.sets.push(json::built(name, built));
        self.has_maintenance_failures |= !built.failures.is_empty();
    }

    /// One set that cannot be built keeps no other from it. Where there is only one, its failure is what the command ends with.
    fn fail(&mut self, name: Option<&str>, failure: Failure) {
        blame(name, &failure);
        self.failed.push(failure);
    }

    /// A set that is not to be built any more and cannot be taken leave of.
    fn leave(&mut self, RetireFailure { out, error }: RetireFailure) {
        let name = out.file_name().map(|name| name.to_string_lossy().into_owned());
        self.sets.push(json!({ "set": name, "error": error.to_string() }));
        self.fail(name.as_deref(), Failure::Retire(error));
        self.unbuilt.push(out);
    }

    /// What the command ends with when all else has been done: what fails keeps nobody from being told of the rest.
    fn outcome(&mut self) -> Result<(), Failure> {
        let failed = std::mem::take(&mut self.failed);
        sets::sum(failed, self.sets.len(), "could not be built; the others were published")?;
        if self.has_maintenance_failures { Err(Failure::Maintenance) } else { Ok(()) }
    }

    /// Adds something to what is said of a set.
    fn add(&mut self, name: Option<&str>, more: String) {
        match self.lines.iter_mut().find(|(known, _)| name.is_none() || known.as_deref() == name) {
            Some((_, line)) => *line = format!("{line} · {more}"),
            None => self.lines.push((name.map(str::to_owned), more)),
        }
    }

    /// Adds what the hubs said.
    fn record(&mut self, notify_report: &NotifyReport) {
        for (name, line) in notify_report.lines() {
            self.add(name, line);
        }
    }

    /// Makes the dumps that are due, and says whether there was one.
    async fn make_due_dumps(&mut self) -> bool {
        let mut is_any = false;
        for (out, set_settings) in self.built.clone() {
            let claimed = self.claim.clone();
            let dumping = unblocked(move || {
                let bar = Bar::new();
                make_due_dumps(&out, claimed.as_ref(), &|step| bar.tell(step))
            });
            let maintenance = dumping.await;
            let name = name_of(&set_settings);
            for failures in &maintenance.failures {
                eprintln!("warning: {}", words::of_set(name, &words::failures(failures)));
            }
            self.has_maintenance_failures |= !maintenance.failures.is_empty();
            self.sets
                .iter_mut()
                .filter(|set| set["set"].as_str() == name)
                .for_each(|set| json::add(set, &maintenance));
            if !maintenance.written.is_empty() {
                self.add(name, words::maintenance(&maintenance));
                is_any = true;
            }
        }
        is_any
    }

    /// Says it, with what came after it.
    fn say(
        self,
        is_json: bool,
        more: impl IntoIterator<Item = (&'static str, Vec<Value>)>,
    ) -> Result<(), Failure> {
        if !is_json {
            let lines: Vec<_> =
                self.lines.iter().map(|(name, line)| words::of_set(name.as_deref(), line)).collect();
            return if lines.is_empty() { Ok(()) } else { say(&lines.join("\n")) };
        }
        let mut object = json!({ "sets": self.sets });
        for (key, values) in more {
            object[key] = json!(values);
        }
        say_json(&object)
    }
}

fn name_of(set_settings: &SetSettings) -> Option<&str> {
    set_settings.settings.root.as_ref().map(|root| root.name.as_str())
}

/// Builds the sets, some at once, and gives what came of each, in their order. Hashing keeps all cores busy for as long as it takes, so it runs off the
/// runtime, which stays free for signals.
async fn build_each(
    sets: &[(PathBuf, SetSettings)],
    claim: Option<&Claim>,
    mode: BuildMode,
) -> Vec<Result<Built, BuildError>> {
    let (fewest, most) = BUILDS;
    let turns = Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from).clamp(fewest, most)));
    let bars = MultiProgress::new();
    let mut building = JoinSet::new();
    for (position, (out, set_settings)) in sets.iter().enumerate() {
        let (settings, place, claimed) = (set_settings.settings.clone(), out.clone(), claim.cloned());
        let (turns, bars) = (Arc::clone(&turns), bars.clone());
        building.spawn(async move {
            // It is never closed.
            let _turn = turns.acquire_owned().await;
            let built = unblocked(move || {
                let bar = Bar::among(&bars);
                let progress = |step| bar.tell(step);
                Build::new(&settings, &place).claim(claimed.as_ref()).mode(mode).progress(&progress).run()
            });
            (position, built.await)
        });
    }
    let built: BTreeMap<_, _> = building.join_all().await.into_iter().collect();
    built.into_values().collect()
}

/// Builds all sets, and has the Source Description lead to them.
async fn run_build(
    arguments: &BuildArgs,
    build_request: BuildRequest,
    mode: BuildMode,
) -> Result<Said, Failure> {
    let site = build_request.configured_site();
    let sets = build_request.sets;
    let are_several = sets.len() > 1;
    let mut said = Said::default();
    if let Some((site, configuration)) = site.clone() {
        let staying: Vec<_> = sets.iter().map(|(out, _)| out.clone()).collect();
        let takes_over = arguments.take_over;
        let claimed = unblocked(move || claim(&site, &configuration, &staying, takes_over)).await?;
        said.claim = Some(claimed);
    }
    let built = build_each(&sets, said.claim.as_ref(), mode).await;
    for ((out, set_settings), built) in sets.into_iter().zip(built) {
        match built {
            Ok(built) => {
                said.take(&set_settings, &built);
                said.built.push((out, set_settings));
            }
            Err(error) => {
                let name = name_of(&set_settings);
                said.sets.push(json!({ "set": name, "error": error.to_string() }));
                said.fail(name, error.into());
                said.unbuilt.push(out);
            }
        }
    }
    if are_several {
        for (out, set_settings) in said.built.clone() {
            if let Err(error) = unblocked(move || describe(&out)).await {
                said.fail(name_of(&set_settings), error.into());
            }
        }
    }
    // One that was built has written a Source Description that does not lead there.
    if let Some((site, _)) = site.filter(|_| said.failed.is_empty()) {
        unblocked(move || clear(&site)).await?;
    }
    for one in said.claim.as_ref().map_or(Vec::new(), |claim| claim.retire_failures().to_vec()) {
        said.leave(one);
    }
    Ok(said)
}

fn run_init(arguments: InitArgs) -> Result<(), Failure> {
    let InitArgs { config: path, directory, base_url, out, mut hub } = arguments;
    if path.exists() {
        return Err(config::ConfigError::Exists { path }.into());
    }
    let asks = directory.is_none() || base_url.is_none();
    let directory = match directory {
        Some(directory) => directory,
        None => ask("The folder whose files are the resources", "the folder", "--directory DIR")?.into(),
    };
    let base_url = match base_url {
        Some(base_url) => base_url,
        None => ask(
            "The URL under which that folder is published, as https://example.org/data/",
            "the base URL",
            "--base-url URL",
        )?,
    };
    let base_url = BaseUrl::parse(&base_url)?;
    if asks && hub.is_empty() {
        hub.extend(answer("The URL of a hub to notify of changes; empty for none")?);
    }
    let hubs = hub.iter().map(|hub| HubUrl::parse(hub)).collect::<Result<Vec<_>, _>>()?;
    // Paths in the file start from its folder, those of flags from where the program runs.
    let elsewhere = path.parent().is_some_and(|folder| !folder.as_os_str().is_empty());
    let written = |given: PathBuf| if elsewhere { std::path::absolute(given) } else { Ok(given) };
    let out = out.map_or_else(|| Ok(config::OUT.into()), written)?;
    let directory = written(directory)?;
    if !directory.is_dir() {
        eprintln!("warning: the folder `{}` does not exist yet", directory.display());
    }
    config::write_new(&path, &out, &directory, &base_url, &hubs)?;
    let flag =
        if path == Path::new(config::FILE) { String::new() } else { format!(" --config {}", path.display()) };
    say(&format!("{} written; check it, then run `resync-source publish{flag}`", path.display()))
}

/// What a person says who is asked; nothing where nobody is there, or says nothing.
fn answer(question: &str) -> Result<Option<String>, Failure> {
    let mut answer = String::new();
    if io::stdin().is_terminal() {
        write!(io::stderr(), "{question}: ")?;
        io::stdin().read_line(&mut answer)?;
    }
    Ok(Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty()))
}

fn ask(question: &str, what: &'static str, flag: &'static str) -> Result<String, Failure> {
    answer(question)?.ok_or(Failure::NotAsked(what, flag))
}

async fn run_notify(arguments: &NotifyArgs) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    if let Some(number) = arguments.skip {
        skip_refused(&outs, number)?;
    }
    let notify_report = notify_all(&outs, &arguments.token).await;
    if arguments.out.json {
        let object = notify_report.json().into_iter().map(|(key, values)| (key.to_owned(), json!(values)));
        say_json(&Value::Object(object.collect()))?;
    } else {
        for (name, line) in notify_report.lines() {
            say(&words::of_set(name, &line))?;
        }
    }
    notify_report.outcome
}

/// Leaves a Change Notification out for the hubs that have refused it.
fn skip_refused(outs: &[PathBuf], number: u64) -> Result<(), Failure> {
    let (skipped, failed) = sets::each(outs, |out| notify::skip(out, number));
    let hubs = skipped.concat();
    for hub in &hubs {
        eprintln!("skipped Change Notification {number} for {hub}");
    }
    if !hubs.is_empty() {
        return Ok(());
    }
    sets::outcome(failed, outs.len(), "cannot be read").and(Err(Failure::NotRefused(number)))
}

async fn run_publish(arguments: &BuildArgs, token: &TokenArgs) -> Result<(), Failure> {
    let build_request = arguments.build_request()?;
    let (site, place_of_hubs) = (build_request.out.clone(), build_request.place_of_hubs());
    let mut built = run_build(arguments, build_request, BuildMode::WithoutDumps).await?;
    let is_json = arguments.out.json;
    // Why a set was not built is known.
    let outs = match outs_of(&site) {
        Ok(outs) => outs,
        Err(none) => {
            let failures = built.outcome();
            return built.say(is_json, []).and(failures).and(Err(none));
        }
    };
    let outs: Vec<_> =
        outs.into_iter().filter(|out| !built.unbuilt.contains(out) || status(out).is_ok()).collect();
    let (standing, _) = sets::each(&outs, status);
    let has_hubs = standing.len() < outs.len() || standing.iter().any(|set| !set.hubs.is_empty());
    if !has_hubs {
        built.make_due_dumps().await;
        let failures = built.outcome();
        if let Some((_, last)) = built.lines.last_mut() {
            last.push_str(" · no hub to notify; add one ");
            last.push_str(&place_of_hubs);
        }
        return built.say(is_json, [("hubs", Vec::new()), ("notify_failures", Vec::new())]).and(failures);
    }
    let mut notify_report = notify_all(&outs, token).await;
    built.record(&notify_report);
    // They can take hours: the hubs hear of the changes before, and of the dumps when these are there.
    if built.make_due_dumps().await {
        let of_dumps = notify_all(&outs, token).await.only_changes();
        built.record(&of_dumps);
        notify_report = notify_report.then(of_dumps);
    }
    let failures = built.outcome();
    built.say(is_json, notify_report.json())?;
    failures.and(notify_report.outcome)
}

async fn run_dump(arguments: &BuildArgs, changes: bool) -> Result<(), Failure> {
    let mut said = run_build(arguments, arguments.build_request()?, BuildMode::Full).await?;
    let failures = said.outcome();
    let what = if changes { Dump::Changes } else { Dump::Resources };
    let (mut dumps, mut failed) = (Vec::new(), Vec::new());
    let sets = std::mem::take(&mut said.built);
    let all = sets.len();
    for (out, set_settings) in sets {
        let dumped = unblocked(move || {
            let bar = Bar::new();
            dump_with_progress(&out, what, &|step| bar.tell(step))
        });
        match dumped.await {
            Ok(dumped) => {
                said.add(name_of(&set_settings), words::dumped(what, &dumped));
                dumps.push(json::dumped(name_of(&set_settings), &dumped));
            }
            Err(error) => failed.push((name_of(&set_settings).map(str::to_owned), error.into())),
        }
    }
    let outcome = sets::outcome(failed, all, "could not be packed");
    said.say(arguments.out.json, [("dumps", dumps)])?;
    failures.and(outcome)
}

async fn run_watch(arguments: &BuildArgs, token: Vec<Token>, rescan: Duration) -> Result<(), Failure> {
    let build_request = arguments.build_request()?;
    let sets = build_request.sets.clone();
    let is_json = arguments.out.json;
    let mut stop = pin!(signals::stop()?);
    // The first build shows at once what cannot work; its words are those of `build`. What works for one set only is tried again.
    let mut first = tokio::select! {
        first = run_build(arguments, build_request, BuildMode::WithoutDumps) => first?,
        () = &mut stop => return Ok(()),
    };
    if first.built.is_empty() {
        return first.outcome();
    }
    let claimed = first.claim.take();
    first.say(is_json, [])?;
    let sets: Vec<_> = sets.into_iter().map(|(out, set_settings)| (out, set_settings.settings)).collect();
    let outs: Vec<_> = sets.iter().map(|(out, _)| out.clone()).collect();
    let timing = watch::Timing { rescan, ..watch::Timing::default() };
    let tell = |report: watch::Report| {
        let name = name_in(&outs, report.out());
        if is_json {
            // A watch goes on when nobody reads any more.
            drop(json::watched(name.as_deref(), &report).map(|line| writeln!(io::stdout(), "{line}")));
        } else {
            words::watched(name.as_deref(), &report);
        }
    };
    Ok(watch::watch(sets, claimed, token, timing, stop, tell).await?)
}

async fn run_serve(arguments: ServeArgs) -> Result<(), Failure> {
    let out = arguments.out.out()?;
    let outs = arguments.out.outs()?;
    let (standing, failed) = sets::each(&outs, status);
    if standing.is_empty() {
        return sets::outcome(failed, outs.len(), "cannot be read");
    }
    for (name, failure) in &failed {
        blame(name.as_deref(), failure);
    }
    let stop = signals::stop()?;
    let listener = tokio::net::TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| Failure::Listen(arguments.listen, error))?;
    let address = listener.local_addr()?;
    let mut documents = standing.iter().flat_map(|set| &set.documents);
    let start = documents.find(|document| document.capability == "description").map(|start| &start.url);
    if arguments.out.json {
        let sets: Vec<_> = standing
            .iter()
            .map(|set| json!({"directory": set.directory, "base_url": set.base_url}))
            .collect();
        let listening = format!("http://{address}");
        say_json(&json!({"listening": listening, "serving": sets, "source_description": start}))?;
    } else {
        let sets: Vec<_> =
            standing.iter().map(|set| format!("{} as {}", set.directory, set.base_url)).collect();
        say(&format!("listening on http://{address}, serving {}", sets.join(", ")))?;
        start.map_or(Ok(()), |start| say(&format!("Source Description: {start}")))?;
    }
    Ok(serve::serve(listener, out, stop).await?)
}

async fn run_check(arguments: &CheckArgs) -> Result<(), Failure> {
    let targets = arguments.targets()?;
    let targets = targets.iter().map(|target| check::Target::parse(target)).collect::<Result<Vec<_>, _>>()?;
    let options = check::Options {
        base_url: arguments.base_url.as_deref().map(BaseUrl::parse).transpose()?,
        deadline: arguments.deadline,
        requests: arguments.max_requests,
        documents: arguments.max_documents,
        packages: arguments.packages.as_u64(),
    };
    let bar = Bar::new();
    let checking = check::check(&targets, &options, move |asked| bar.ask(asked)).await;
    let findings = checking?;
    if arguments.out.json {
        say(&serde_json::to_string_pretty(&findings).map_err(io::Error::from)?)?;
    } else {
        say(&findings.text(takes_colour(&io::stdout())).to_string())?;
    }
    match findings.ended_early {
        Some(reason) => Err(Failure::EndedEarly(reason)),
        None if findings.conforming => Ok(()),
        None => Err(Failure::Rules),
    }
}

fn run_status(arguments: &StatusArgs) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    let (standing, failed) = sets::each(&outs, status);
    if arguments.out.json {
        let broken =
            failed.iter().map(|(name, failure)| json!({ "set": name, "error": failure.to_string() }));
        match standing.as_slice() {
            [only] if outs.len() == 1 => say(&serde_json::to_string_pretty(only).map_err(io::Error::from)?)?,
            [] if outs.len() == 1 => {}
            sets => say_json(&sets.iter().map(|set| json!(set)).chain(broken).collect())?,
        }
    } else if !standing.is_empty() {
        let place_of_hubs = arguments.out.place_of_hubs();
        let said: Vec<_> = standing.iter().map(|status| words::status(status, &place_of_hubs)).collect();
        say(&said.join("\n\n"))?;
    }
    sets::outcome(failed, outs.len(), "cannot be read")
}

fn say_json(object: &Value) -> Result<(), Failure> {
    say(&serde_json::to_string_pretty(object).map_err(io::Error::from)?)
}

/// A reader that has seen enough (`| head`) is no failure.
fn say(line: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
