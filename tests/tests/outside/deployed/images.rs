//! The container images: what deploy/Containerfile says of them, as far as that goes without a container engine.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use resync_harness::{binary, free_address};
use resync_hub::config::{self, LogFormat};

use super::{read, root, run, said, text};

/// The image of each has its name.
const ROLES: [&str; 3] = ["hub", "source", "destination"];

#[test]
fn the_images_are_built_with_a_compiler_that_the_workspace_supports() {
    let containerfile = Containerfile::read();
    let build = containerfile.stage("build");
    let tag = build.image.rsplit_once("rust:").expect("the official Rust image").1;
    let version = |text: &str| -> Vec<u32> { text.split('.').map_while(|part| part.parse().ok()).collect() };
    let pinned = version(tag.split('-').next().unwrap_or_default());
    assert_eq!(pinned.len(), 2, "{tag} is not pinned to a minor version");
    assert!(pinned >= version(env!("CARGO_PKG_RUST_VERSION")), "{tag} is older than rust-version");
    let debian = |text: &str| (text.contains("bookworm") || text.contains("debian12")).then_some(12);
    for role in ROLES {
        let runtime = containerfile.stage(role);
        assert!(runtime.image.contains("/distroless/"), "no shell in {}", runtime.image);
        assert_eq!(debian(&build.image), debian(&runtime.image), "both have the same C library");
    }
}

#[test]
fn without_a_target_the_image_is_that_of_the_hub() {
    assert_eq!(Containerfile::read().stages.last().unwrap().name, "hub");
}

#[test]
fn everything_that_the_images_copy_exists() {
    let containerfile = Containerfile::read();
    let ignored = read("deploy/Containerfile.dockerignore");
    for copy in containerfile.all("COPY").map(Copy::parse) {
        for source in copy.sources {
            match &copy.from {
                None => {
                    assert!(root().join(&source).exists(), "{source} is not in the repository");
                    assert!(
                        ignored.lines().any(|line| line == format!("!{source}")),
                        "{source} is kept out of the build"
                    );
                }
                Some(from) => {
                    let stages = [containerfile.stage(from), containerfile.stage("build")];
                    let mut made = stages.iter().flat_map(|stage| stage.values("RUN"));
                    assert!(made.any(|run| run.contains(&source)), "{from} does not make {source}");
                }
            }
        }
    }
}

#[test]
fn each_image_builds_a_program_of_this_workspace_with_all_its_members() {
    let containerfile = Containerfile::read();
    let copied: Vec<_> = containerfile.all("COPY").map(Copy::parse).flat_map(|copy| copy.sources).collect();
    let members = members();
    for member in &members {
        let is_copied = copied.iter().any(|source| Path::new(member).starts_with(source));
        assert!(is_copied, "cargo needs the workspace member {member}");
    }
    for role in ROLES {
        let run = containerfile.stage(&format!("build-{role}")).value("RUN");
        let words: Vec<_> = run.split_whitespace().collect();
        let after = |flag: &str| words.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1]);
        assert!(words.contains(&"--locked") && words.contains(&"--release"));
        assert_eq!(after("--features"), Some("cli"));
        let package = after("--package").expect("one package is built");
        let program = after("--bin").expect("one program is built");
        assert_eq!(program, format!("resync-{role}"));
        let manifest = members
            .iter()
            .map(|member| read(&format!("{member}/Cargo.toml")))
            .find(|manifest| manifest.contains(&format!("[package]\nname = \"{package}\"")))
            .expect("the package is a member");
        assert!(
            manifest.contains(&format!("[[bin]]\nname = \"{program}\"")),
            "{package} has no program {program}"
        );
    }
}

#[test]
fn the_images_run_their_programs_as_nobody_in_particular() {
    let containerfile = Containerfile::read();
    for (role, setting) in [
        ("hub", "RESYNC_HUB_DATA_DIR"),
        ("source", "RESYNC_SOURCE_OUT"),
        ("destination", "RESYNC_DESTINATION_INTO"),
    ] {
        let runtime = containerfile.stage(role);
        let user = runtime.value("USER");
        let (uid, gid) = user.split_once(':').expect("user and group");
        assert!(uid.parse::<u32>().is_ok_and(|id| id > 0), "{uid} is not a number other than 0");
        assert!(gid.parse::<u32>().is_ok_and(|id| id > 0), "{gid} is not a number other than 0");

        let data = list(runtime.value("VOLUME"));
        let folder = runtime.values("COPY").map(Copy::parse).find(|copy| copy.to == data[0]);
        let owner = folder.and_then(|copy| copy.owner);
        assert_eq!(owner.as_deref(), Some(user), "a fresh volume belongs to the user of {role}");
        assert!(runtime.environment()[setting].starts_with(&data[0]), "{role} writes elsewhere");
    }
}

#[test]
fn each_image_starts_the_program_that_was_copied() {
    let containerfile = Containerfile::read();
    for (role, command) in [("hub", "serve"), ("source", "watch"), ("destination", "listen")] {
        let runtime = containerfile.stage(role);
        let entry = list(runtime.value("ENTRYPOINT"));
        let [program] = &entry[..] else { panic!("nothing but the program: {entry:?}") };
        assert!(program.ends_with(&format!("/resync-{role}")));
        assert!(runtime.values("COPY").map(Copy::parse).any(|copy| copy.to == *program));
        assert_eq!(list(runtime.value("CMD")), [command]);
    }
}

#[test]
fn the_image_asks_the_hub_for_its_health() {
    let containerfile = Containerfile::read();
    let (_, check) = containerfile.stage("hub").value("HEALTHCHECK").split_once("CMD").expect("a command");
    let check = list(check);
    assert_eq!([check[0].as_str()], list(containerfile.stage("hub").value("ENTRYPOINT"))[..]);
    // Nobody listens there, which is another answer (1) than a command line that is not understood (2).
    let nobody = free_address();
    let output = run(Command::new(binary("resync-hub"))
        .args(&check[1..])
        .env("RESYNC_HUB_ADMIN_LISTEN", nobody.to_string()));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no hub runs in"), "{}", text(&output));
}

#[test]
fn the_environment_of_the_image_is_a_configuration_that_the_hub_understands() {
    let containerfile = Containerfile::read();
    let runtime = containerfile.stage("hub");
    let environment = runtime.environment();
    let config = config::load(None, environment.clone(), &Vec::new()).unwrap();
    assert!(config.listen.ip().is_unspecified(), "reachable from outside the container");
    assert_eq!(config.listen.port().to_string(), runtime.value("EXPOSE"));
    assert!(config.admin.listen.ip().is_loopback(), "not reachable from outside the container");
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.data_dir, Path::new(&environment["RESYNC_HUB_DATA_DIR"]));
    assert_eq!(environment.len(), 4, "a variable that is new here wants its own line above");
}

#[test]
fn the_programs_of_the_other_images_know_the_variables_of_their_environments() {
    let containerfile = Containerfile::read();
    for (role, command) in [("source", "watch"), ("destination", "listen")] {
        let help = said(Command::new(binary(&format!("resync-{role}"))).args([command, "--help"]));
        for name in containerfile.stage(role).environment().keys() {
            assert!(help.contains(name.as_str()), "{role} does not know {name}: {help}");
        }
    }
    let listen = &containerfile.stage("destination").environment()["RESYNC_DESTINATION_LISTEN"];
    let port = listen.strip_prefix("0.0.0.0:").expect("reachable from outside the container");
    assert_eq!(port, containerfile.stage("destination").value("EXPOSE"));
}

fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("members = "));
    list(line.expect("the workspace lists its members"))
}

/// The strings of `["a", "b"]`.
fn list(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A Containerfile by stages: instructions without comments, with continued lines joined.
struct Containerfile {
    stages: Vec<Stage>,
}

struct Stage {
    image: String,
    name: String,
    instructions: Vec<(String, String)>,
}

impl Containerfile {
    fn read() -> Self {
        let text = read("deploy/Containerfile");
        let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let joined = lines.join("\n").replace("\\\n", " ");
        let mut stages: Vec<Stage> = Vec::new();
        for line in joined.lines().filter(|line| !line.trim().is_empty()) {
            let (keyword, value) = line.split_once(' ').expect("a keyword and a value");
            if keyword == "FROM" {
                let (image, name) = value.split_once(" AS ").expect("each stage has a name");
                let (image, name) = (image.to_owned(), name.to_owned());
                stages.push(Stage { image, name, instructions: Vec::new() });
            } else {
                let stage = stages.last_mut().expect("FROM comes first");
                stage.instructions.push((keyword.to_owned(), value.trim().to_owned()));
            }
        }
        Self { stages }
    }

    fn stage(&self, name: &str) -> &Stage {
        self.stages.iter().find(|stage| stage.name == name).unwrap_or_else(|| panic!("no stage {name}"))
    }

    fn all<'a>(&'a self, keyword: &'a str) -> impl Iterator<Item = &'a str> {
        self.stages.iter().flat_map(move |stage| stage.values(keyword))
    }
}

impl Stage {
    fn values<'a>(&'a self, keyword: &'a str) -> impl Iterator<Item = &'a str> {
        self.instructions.iter().filter(move |one| one.0 == keyword).map(|one| one.1.as_str())
    }

    /// Of an instruction that stands there exactly once.
    fn value<'a>(&'a self, keyword: &'a str) -> &'a str {
        let found: Vec<_> = self.values(keyword).collect();
        let [value] = found[..] else { panic!("{keyword} stands there {} times", found.len()) };
        value
    }

    fn environment(&self) -> HashMap<String, String> {
        let pairs = self.values("ENV").flat_map(str::split_whitespace);
        pairs
            .map(|pair| pair.split_once('=').expect("NAME=value"))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }
}

/// A COPY instruction.
struct Copy {
    from: Option<String>,
    owner: Option<String>,
    sources: Vec<String>,
    to: String,
}

impl Copy {
    fn parse(value: &str) -> Self {
        let (flags, mut paths): (Vec<_>, Vec<_>) =
            value.split_whitespace().map(str::to_owned).partition(|word| word.starts_with("--"));
        let flag = |name| flags.iter().find_map(|flag: &String| flag.strip_prefix(name).map(str::to_owned));
        let to = paths.pop().expect("a destination");
        Self { from: flag("--from="), owner: flag("--chown="), sources: paths, to }
    }
}
