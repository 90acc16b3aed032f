//! The Debian packages of a release: installed, upgraded and removed by a real dpkg in a folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use resync_harness::{binary, free_address, left_out};
use tempfile::{TempDir, tempdir};
use walkdir::WalkDir;

use super::release::{PROGRAMS, artefact};
use super::{read, root, run, said, text};

/// A system of which there is nothing but dpkg's own records.
struct System {
    folder: TempDir,
    package: PathBuf,
}

impl System {
    fn new(program: &str) -> Self {
        let folder = tempdir().unwrap();
        let records = folder.path().join("system/var/lib/dpkg");
        for part in ["info", "updates"] {
            fs::create_dir_all(records.join(part)).unwrap();
        }
        fs::write(records.join("status"), "").unwrap();
        Self { package: artefact(&format!("{program}_"), ".deb"), folder }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("system").join(path)
    }

    /// Maintainer scripts run without chroot, and know by `DPKG_ROOT` that this is not the running system.
    fn dpkg(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", self.path("").display()));
        command.args(["--force-script-chrootless", "--force-not-root", "--force-depends", "--force-confold"]);
        said(command.args(arguments))
    }

    fn install(&self) {
        self.dpkg(&["--install", self.package.to_str().unwrap()]);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_package_is_installed_kept_as_it_was_changed_and_removed_without_a_trace() {
    let system = System::new("resync-hub");
    system.install();
    let (hub, config) = (system.path("usr/bin/resync-hub"), system.path("etc/resync-hub/hub.toml"));
    assert_eq!((mode(&hub), mode(&config)), (0o755, 0o644));
    let checked = said(Command::new(&hub).args(["config", "check", "--config"]).arg(&config));
    assert!(!checked.is_empty());
    let unit = fs::read_to_string(system.path("usr/lib/systemd/system/resync-hub.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/resync-hub serve --config /etc/resync-hub/hub.toml"), "{unit}");
    assert_eq!(unit.replace("/usr/bin/", "/usr/local/bin/"), read("deploy/resync-hub.service"));

    let changed = read("deploy/hub.toml").replace("hub.example.org", "hub.library.example");
    fs::write(&config, &changed).unwrap();
    system.install();
    assert_eq!(fs::read_to_string(&config).unwrap(), changed, "an upgrade leaves the configuration alone");

    system.dpkg(&["--remove", "resync-hub"]);
    assert!(!hub.exists() && config.exists());
    system.dpkg(&["--purge", "resync-hub"]);
    assert!(!system.path("etc/resync-hub").exists());
}

#[test]
fn the_packages_of_the_other_programs_are_installed_and_removed_without_a_trace() {
    for program in ["resync-source", "resync-destination"] {
        let system = System::new(program);
        system.install();
        system.install();
        let installed = system.path("usr/bin").join(program);
        assert!(said(Command::new(&installed).arg("--version")).contains(env!("CARGO_PKG_VERSION")));
        let unit = system.path("usr/lib/systemd/system").join(format!("{program}.service"));
        let unit = fs::read_to_string(unit).unwrap();
        assert_eq!(unit.replace("/usr/bin/", "/usr/local/bin/"), read(&format!("deploy/{program}.service")));
        system.dpkg(&["--purge", program]);
        assert!(!installed.exists() && !system.path("etc").join(program).exists());
    }
}

#[test]
fn each_package_says_what_it_needs_and_holds_what_an_operator_looks_for() {
    for program in PROGRAMS {
        let package = System::new(program).package;
        let field = |name: &str| said(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name));
        assert_eq!(field("Package").trim(), program);
        assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
        assert!(field("Depends").contains("libc6 (>= 2."), "{}", field("Depends"));
        let held = said(Command::new("dpkg-deb").arg("--contents").arg(&package));
        let unit = format!("/usr/lib/systemd/system/{program}.service");
        let documents =
            ["copyright", "changelog.gz", "deploy/README.md", "docs/operations.md", "docs/hub.md"];
        let documents = documents.map(|file| format!("/usr/share/doc/{program}/{file}"));
        for file in documents.into_iter().chain([unit]) {
            assert!(held.lines().any(|line| line.ends_with(&file)), "{file} is missing:\n{held}");
        }
        for line in held.lines() {
            assert!(line.contains(" root/root "), "{line}");
            assert!(
                line.starts_with('l') || line[5..10].matches('w').count() == 0,
                "only root may write: {line}"
            );
        }
    }
    let hub = artefact("resync-hub_", ".deb");
    let held = said(Command::new("dpkg-deb").arg("--contents").arg(hub));
    for file in ["systemd/system/resync-hub.socket", "examples/nginx.conf", "examples/alerts.yml"] {
        assert!(held.lines().any(|line| line.ends_with(file)), "{file} is missing:\n{held}");
    }
}

#[test]
fn the_pages_of_the_package_lead_to_each_other() {
    let system = System::new("resync-hub");
    system.install();
    let mut followed = 0;
    for page in WalkDir::new(system.path("usr/share/doc/resync-hub")) {
        let page = page.unwrap().into_path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| {
            Path::new(link).extension().is_some_and(|kind| kind == "md") && !link.contains("://")
        }) {
            let target = page.parent().unwrap().join(link);
            assert!(target.is_file(), "{} leads to {link}, which is not there", page.display());
            followed += 1;
        }
    }
    assert!(followed > 50, "only {followed} links were followed");
}

#[test]
fn each_package_brings_man_pages_and_completions_where_they_are_looked_for() {
    for (program, some) in
        [("resync-hub", "backup"), ("resync-source", "publish"), ("resync-destination", "sync")]
    {
        let system = System::new(program);
        system.install();
        let pages = system.path("usr/share/man/man1");
        let page = |name: &str| {
            let page = pages.join(format!("{name}.1.gz"));
            said(Command::new("man").args(["--warnings", "--local-file"]).arg(page).env("MANWIDTH", "200"))
        };
        assert!(page(program).contains(&format!("{program}-{some}(1)")), "{}", page(program));
        assert!(page(&format!("{program}-{some}")).contains("--help"));
        let commands = said(Command::new(system.path("usr/bin").join(program)).arg("--help"));
        let commands = commands.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
        let commands: Vec<_> = commands
            .lines()
            .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert!(commands.contains(&some) && commands.len() > 8, "{commands:?}");
        for command in commands {
            let page = pages.join(format!("{program}-{command}.1.gz"));
            assert!(page.is_file() || command == "help", "{command} has no man page");
        }
        let script = system.path("usr/share/bash-completion/completions").join(program);
        let completes = format!("source '{}' && complete -p {program}", script.display());
        assert!(said(Command::new("bash").args(["-c", &completes])).contains(program));
        let zsh = system.path("usr/share/zsh/vendor-completions").join(format!("_{program}"));
        let zsh = fs::read_to_string(zsh).unwrap();
        assert!(zsh.starts_with(&format!("#compdef {program}")), "{zsh:.100}");
        let fish = system.path("usr/share/fish/vendor_completions.d").join(format!("{program}.fish"));
        assert!(fs::read_to_string(fish).unwrap().contains(&format!("complete -c {program}")));
    }
}

/// Debian's own judge of packages.
#[test]
fn lintian_finds_neither_errors_nor_warnings_in_the_packages() {
    let packages = PROGRAMS.map(|program| System::new(program).package);
    let judged = run(Command::new("lintian").arg("--allow-root").args(packages));
    let found = text(&judged);
    let faults: Vec<_> =
        found.lines().filter(|line| line.starts_with("E: ") || line.starts_with("W: ")).collect();
    assert_eq!(faults, Vec::<&str>::new(), "{found}");
}

#[test]
fn a_stripped_program_is_small_and_says_where_its_debug_information_is() {
    let folder = tempdir().unwrap();
    let program = folder.path().join("resync-source");
    fs::copy(binary("resync-source"), &program).unwrap();
    let size = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    let (before, version) = (size("resync-source"), said(Command::new(&program).arg("--version")));
    for _ in 0..2 {
        said(Command::new(root().join("deploy/strip")).arg(&program));
    }
    assert!(size("resync-source") * 3 < before * 2, "{} of {before} bytes", size("resync-source"));
    assert!(size("resync-source.debug") > 0);
    assert_eq!(said(Command::new(&program).arg("--version")), version);
    let (bytes, link) = (fs::read(&program).unwrap(), b"resync-source.debug");
    assert!(bytes.windows(link.len()).any(|part| part == link), "it names its debug information");
}

/// `sudo resync-hub token add` beside a service would leave tokens that the service cannot read, and `fsck` a store.
#[test]
fn nothing_is_written_where_the_hub_could_not_read_it() {
    let folder = tempdir().unwrap();
    let hub = |arguments: &[&str]| {
        let mut command = Command::new(binary("resync-hub"));
        command.args(arguments).arg("--data-dir").arg(folder.path());
        // Nobody listens there.
        command.env("RESYNC_HUB_ADMIN_LISTEN", free_address().to_string());
        command.env(
            "RESYNC_HUB_SECRETS_KEY",
            "0000000000000000000000000000000000000000000000000000000000000000",
        );
        run(&mut command)
    };
    let add = ["token", "add", "library", "--topic-prefix", "https://library.example/"];
    // Only root can give a folder away.
    if rustix::process::getuid().is_root() {
        std::os::unix::fs::chown(folder.path(), Some(65_532), None).unwrap();
        let file = tempdir().unwrap();
        let file = file.path().join("a copy").display().to_string();
        let passed_on = format!("backup - --data-dir {} > '{file}'", folder.path().display());
        let piped = format!("restore - --data-dir {}", folder.path().display());
        for (arguments, as_owner) in [
            (&add[..], "token add library --topic-prefix https://library.example/"),
            (&["fsck"], "fsck"),
            (&["fsck", "--repair"], "fsck --repair"),
            (&["backup", &file], &passed_on),
            (&["restore", &file], &piped),
            (&["secrets", "rotate"], "secrets rotate"),
        ] {
            let refused = hub(arguments);
            let said = text(&refused);
            assert!(!refused.status.success() && said.contains("number 65532"), "{arguments:?}: {said}");
            // Only root may read a backup, so root passes it to the owner.
            let before =
                if arguments[0] == "restore" { format!("sudo cat '{file}' | ") } else { String::new() };
            let line = said.lines().find(|line| line.starts_with(&format!("  {before}sudo -u '#65532' ")));
            assert!(line.is_some_and(|line| line.contains(as_owner)), "{arguments:?}: {said}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?}");
        }
        std::os::unix::fs::chown(folder.path(), Some(0), None).unwrap();
        // What counts is whose the store is: the folder may be a volume.
        let mark = folder.path().join("engine");
        fs::write(&mark, "fjall 1\n").unwrap();
        std::os::unix::fs::chown(&mark, Some(65_532), None).unwrap();
        let refused = hub(&add);
        assert!(!refused.status.success() && text(&refused).contains("number 65532"), "{}", text(&refused));
        fs::remove_file(mark).unwrap();
    } else {
        left_out("commands in a data folder of another user", "only root can give a folder away");
    }
    let added = hub(&add);
    assert!(added.status.success() && text(&added).starts_with("rsh_"), "{}", text(&added));
}

#[test]
fn the_packages_scripts_leave_a_system_without_systemd_alone() {
    for script in ["postinst", "prerm", "postrm"] {
        let text = read(&format!("deploy/deb/{script}"));
        said(Command::new("sh").args(["-n", "-c", &text]));
        assert!(text.contains("${DPKG_ROOT:-}/run/systemd/system"), "{script}");
        assert_eq!(mode(&root().join("deploy/deb").join(script)), 0o755);
    }
}
