//! What deploy/release makes of the programs that are built already: the same bytes again, and programs that work without a compiler, from
//! tarball, Debian packages and wheels, up to the first synchronised files. (It compiles nothing here; a release does.)

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use resync_harness::tree::differences;
use resync_harness::{JUDGES, Process, binary, eventually, free_address, left_out};
use tempfile::tempdir;

use super::roots::Root;
use super::{root, run, said, text};

pub(super) const PROGRAMS: [&str; 3] = ["resync-hub", "resync-source", "resync-destination"];
/// How long it may take from an artefact on the disk to the first synchronised files.
const ENOUGH: Duration = Duration::from_secs(60);
const PYTHONS: [&str; 6] = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];

/// The artefacts, which all tests share.
static ARTEFACTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
    let _ = fs::remove_dir_all(&folder);
    release(&folder, "umask 022");
    folder
});

/// Packs the programs of the tests, in a shell that is set up like this.
fn release(into: &Path, setup: &str) {
    let bins = binary("resync-hub").parent().unwrap().to_owned();
    // Nobody downloads these.
    let script = format!("{setup}; exec \"$0\" --level 1 --bins \"$1\" \"$2\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(root().join("deploy/release")).arg(bins).arg(into);
    said(command.env_remove("SOURCE_DATE_EPOCH"));
}

/// The artefact whose name begins and ends so.
pub(super) fn artefact(begins: &str, ends: &str) -> PathBuf {
    let names = fs::read_dir(&*ARTEFACTS).unwrap().map(|file| file.unwrap().path());
    let is_it = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name.starts_with(begins) && name.ends_with(ends) && !name.contains("-debug.")
    };
    let found: Vec<_> = names.filter(is_it).collect();
    let [one] = &found[..] else { panic!("one artefact {begins}…{ends}: {found:?}") };
    one.clone()
}

#[test]
fn the_same_programs_give_the_same_artefacts_anywhere() {
    let folder = tempdir().unwrap();
    let (again, below) = (folder.path().join("again"), folder.path().join("etc/lib/here"));
    fs::create_dir_all(&below).unwrap();
    release(&again, &format!("umask 077; export TZ=Asia/Tokyo LC_ALL=C TMPDIR='{}'", below.display()));
    assert_eq!(differences(&ARTEFACTS, &again).unwrap(), Vec::<PathBuf>::new());
    let sums = said(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&again));
    // A tarball, its debug information, and three packages of two kinds.
    assert_eq!(sums.lines().filter(|line| line.ends_with(": OK")).count(), 8, "{sums}");
}

/// In the place of cargo stands what notes how it is called: the compilation itself takes too long for a test.
#[test]
fn programs_are_built_for_an_old_c_library_and_without_the_places_of_their_building() {
    let folder = tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let notes = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\nenv > '{}'\nexit 1\n",
        place("arguments").display(),
        place("environment").display()
    );
    fs::create_dir(place("tools")).unwrap();
    for tool in ["cargo", "cargo-zigbuild"] {
        fs::write(place("tools").join(tool), &notes).unwrap();
        fs::set_permissions(place("tools").join(tool), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", place("tools").display(), std::env::var("PATH").unwrap());
    let host = "x86_64-unknown-linux-gnu";
    let mut release = Command::new(root().join("deploy/release"));
    release.args(["--target", host]).arg(place("dist")).env("PATH", path);
    release.env("CARGO_TARGET_DIR", place("target")).env("CARGO_HOME", place("home"));
    let stopped = run(release.env_remove("SOURCE_DATE_EPOCH"));
    assert!(!stopped.status.success() && !place("dist").exists(), "{}", text(&stopped));

    let arguments = fs::read_to_string(place("arguments")).unwrap_or_else(|_| panic!("{}", text(&stopped)));
    let arguments: Vec<_> = arguments.lines().collect();
    let against = format!("{host}.2.17");
    assert_eq!(arguments[..6], ["zigbuild", "--release", "--locked", "--target", &against, "--bins"]);
    let environment = fs::read_to_string(place("environment")).unwrap();
    let of =
        |name: &str| environment.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap();
    assert!(of("SOURCE_DATE_EPOCH").parse::<u64>().is_ok());
    for (place, name) in
        [(root().canonicalize().unwrap(), "/src"), (place("target"), "/target"), (place("home"), "/cargo")]
    {
        for (variable, flag) in [("RUSTFLAGS", "--remap-path-prefix"), ("CFLAGS", "-ffile-prefix-map")] {
            let mapped = format!("{flag}={}={name}", place.display());
            assert!(of(variable).split(' ').any(|one| one == mapped), "{variable}: {mapped}");
        }
    }
    // The packages and features are known to cargo itself.
    let mut resolve = Command::new("cargo");
    resolve.args(["tree", "--offline", "--locked", "--depth", "0", "--target", host]).args(&arguments[6..]);
    let found = said(resolve.current_dir(root()));
    for package in ["resync-hub v", "resync-publisher v", "resync-subscriber-kit v"] {
        assert!(found.contains(package), "{found}");
    }
}

#[test]
fn a_release_overwrites_nothing() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("a file"), "").unwrap();
    let refused = run(Command::new(root().join("deploy/release")).arg(folder.path()));
    assert!(!refused.status.success() && text(&refused).contains("is not empty"), "{}", text(&refused));
}

#[test]
fn debug_information_lies_beside_the_programs_and_fits_them() {
    let folder = tempdir().unwrap();
    let tarball = artefact("resync-", ".tar.gz");
    let debug =
        tarball.with_file_name(tarball.file_name().unwrap().to_str().unwrap().replace(".tar", "-debug.tar"));
    for file in [&tarball, &debug] {
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(file).arg("--strip-components=1").arg("-C").arg(folder.path());
        said(&mut unpack);
    }
    for program in PROGRAMS {
        let (bytes, link) =
            (fs::read(folder.path().join("bin").join(program)).unwrap(), format!("{program}.debug"));
        assert!(
            bytes.windows(link.len()).any(|part| part == link.as_bytes()),
            "it names its debug information"
        );
        assert!(folder.path().join("bin").join(format!("{program}.debug")).is_file());
    }
}

#[tokio::test]
async fn pip_installs_the_programs_without_an_index() {
    let (artefacts, folder) = (&*ARTEFACTS, tempdir().unwrap());
    said(Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(folder.path().join("python")));
    let mut pip = pip();
    let began = Instant::now();
    pip.arg("--python").arg(folder.path().join("python"));
    pip.args(["install", "--disable-pip-version-check", "--no-index", "--find-links"]).arg(artefacts);
    said(pip.args(PROGRAMS));
    let programs = folder.path().join("python/bin").display().to_string();
    synchronise(folder.path(), |program| Command::new(format!("{programs}/{program}")), folder.path()).await;
    is_soon_enough("wheels", began);
    assert!(folder.path().join("python/share/man/man1/resync-source.1").is_file());
}

/// The pip of an environment that is there already.
fn pip() -> Command {
    Command::new(JUDGES.installed().join("bin/pip"))
}

#[test]
fn pip_finds_the_wheels_fit_for_every_python() {
    let folder = tempdir().unwrap();
    for version in PYTHONS {
        let mut pip = pip_offline(&ARTEFACTS);
        pip.args(["--python-version", version, "--target"]).arg(folder.path());
        let found = said(pip.args(PROGRAMS));
        assert!(found.contains("Would install"), "{version}: {found}");
    }
}

/// What pip would install from this folder.
fn pip_offline(from: &Path) -> Command {
    let mut pip = pip();
    pip.args(["install", "--disable-pip-version-check", "--no-index", "--only-binary=:all:", "--dry-run"]);
    pip.arg("--find-links").arg(from);
    pip
}

/// The programs of other kinds are not there: their wheels are empty here.
#[test]
fn wheels_for_arm64_and_static_ones_have_names_that_pip_knows() {
    let folder = tempdir().unwrap();
    let script = "if True:
        import sys, zipfile
        sys.dont_write_bytecode = True
        sys.path.insert(0, sys.argv[1])
        from packages import Kind, wheel_tags
        for name, glibc in [('static', ''), ('linked', '2.17')]:
            for machine in ['x86_64', 'aarch64']:
                tags = '.'.join(wheel_tags(Kind(None, machine, glibc)))
                with zipfile.ZipFile(f'{sys.argv[2]}/{name}-1-py3-none-{tags}.whl', 'w') as wheel:
                    info = f'Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\n'
                    wheel.writestr(f'{name}-1.dist-info/METADATA', info)
                    wheel.writestr(f'{name}-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\n')";
    said(Command::new("python3").args(["-c", script]).arg(root().join("deploy")).arg(folder.path()));
    for (platform, names) in [("manylinux2014", &["static", "linked"][..]), ("musllinux_1_1", &["static"])] {
        for machine in ["x86_64", "aarch64"] {
            let mut pip = pip_offline(folder.path());
            pip.args(["--platform", &format!("{platform}_{machine}"), "--target"]).arg(folder.path());
            let found = said(pip.args(names));
            assert!(found.contains("Would install"), "{platform} {machine}: {found}");
        }
    }
}

/// Where there is not even a shell.
#[tokio::test]
async fn a_tarball_is_enough_where_there_is_nothing_but_the_c_library() {
    if !may_change_root("the tarball in an empty root") {
        return;
    }
    let (tarball, system) = (artefact("resync-", ".tar.gz"), Root::of_the_c_library());
    let began = Instant::now();
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(tarball).arg("--strip-components=1");
    said(unpack.arg("-C").arg(system.path("usr")));
    assert!(!system.path("usr/bin/sh").exists());
    synchronise(&system.path(""), |program| system.command(&format!("/usr/bin/{program}")), Path::new("/"))
        .await;
    is_soon_enough("the tarball", began);
}

#[tokio::test]
async fn the_debian_packages_are_enough_on_a_system_without_compiler() {
    if !may_change_root("the Debian packages in an empty root") {
        return;
    }
    let system = Root::of_debian();
    for tool in ["cc", "gcc", "make", "cargo", "python3"] {
        assert!(!system.path("usr/bin").join(tool).exists(), "{tool}");
    }
    for program in PROGRAMS {
        let package = artefact(&format!("{program}_"), ".deb");
        fs::copy(package, system.path("root").join(format!("{program}.deb"))).unwrap();
    }
    let packages = PROGRAMS.map(|program| format!("/root/{program}.deb"));
    let began = Instant::now();
    said(system.command("dpkg").arg("--install").args(&packages));
    synchronise(&system.path(""), |program| system.command(program), Path::new("/")).await;
    is_soon_enough("the Debian packages", began);

    said(system.command("dpkg").arg("--verify").args(PROGRAMS));
    for program in ["resync-source", "resync-destination"] {
        let owner = said(system.command("stat").args(["--format=%U", &format!("/srv/{program}")]));
        assert_eq!(owner.trim(), program, "its service writes there");
    }
    fs::write(system.path("srv/resync-source/kept"), "").unwrap();
    said(system.command("dpkg").arg("--install").args(&packages));
    said(system.command("dpkg").arg("--purge").args(PROGRAMS));
    assert!(system.path("srv/resync-source/kept").exists(), "a purge leaves what the program wrote");
    for program in PROGRAMS {
        assert!(!system.path("etc").join(program).exists() && !system.path("usr/bin").join(program).exists());
    }
}

fn is_soon_enough(what: &str, began: Instant) {
    let took = began.elapsed();
    eprintln!("from {what} to the first synchronised files: {:.1} s", took.as_secs_f64());
    assert!(took < ENOUGH, "{what}: {took:?}");
}

/// Only root may, and anybody else is told what is not tested.
fn may_change_root(what: &str) -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        left_out(what, "only root may change the root");
    }
    is_root
}

/// Runs hub, Source and Destination in a folder until a changed file has arrived. `seen` is that folder as the programs see it.
async fn synchronise(folder: &Path, program: impl Fn(&str) -> Command, seen: &Path) {
    let start = |name: &str, arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = program(name);
        command.args(arguments).envs(environment.iter().copied());
        Process::run(name, &mut tokio::process::Command::from(command))
    };
    let [hub, admin, site, callback] = [(); 4].map(|()| free_address().to_string());
    let path = |name: &str| seen.join(name).display().to_string();
    let (collection, out, copy, data) = (path("collection"), path("site"), path("copy"), path("hub"));
    fs::create_dir(folder.join("collection")).unwrap();
    fs::write(folder.join("collection/a.txt"), "one").unwrap();
    let endpoint = format!("http://{hub}/websub/");
    let base = format!("http://{site}/");

    let mut running = vec![start(
        "resync-hub",
        &["--dev", "--data-dir", &data, "--listen", &hub],
        &[("RESYNC_HUB_ADMIN_LISTEN", &admin)],
    )];
    running[0].line("listening on").await;
    let mut build = program("resync-source");
    said(build.args(["build", &collection, "--base-url", &base, "--out", &out, "--hub", &endpoint]));
    running.push(start("resync-source", &["serve", "--out", &out, "--listen", &site], &[]));
    running[1].line("listening on").await;
    running.push(start(
        "resync-destination",
        &["listen", &base, "--into", &copy, "--listen", &callback],
        &[],
    ));
    running[2].line("in step: ").await;
    assert_eq!(fs::read_to_string(folder.join("copy/a.txt")).unwrap(), "one");

    fs::write(folder.join("collection/a.txt"), "another").unwrap();
    said(program("resync-source").args(["publish", "--out", &out]));
    eventually("the change arrives", async || {
        fs::read_to_string(folder.join("copy/a.txt")).is_ok_and(|copied| copied == "another")
    })
    .await;
}
