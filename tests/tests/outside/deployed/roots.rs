//! Roots of systems without a compiler: one of Debian's essential packages, and one of the C library alone. They are copies of what is
//! installed here, so that nothing is downloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{TempDir, tempdir};

use super::said;

/// A folder that is the root of everything that runs in it.
pub(super) struct Root(TempDir);

impl Root {
    /// With the packages that every Debian has, as after `debootstrap --variant=minbase` without apt.
    pub(super) fn of_debian() -> Self {
        let packages = Packages::installed_here();
        let names = packages.with_dependencies(packages.essential());
        let root = Self::of(&names);
        let records = root.path("var/lib/dpkg");
        for part in ["info", "updates"] {
            fs::create_dir_all(records.join(part)).unwrap();
        }
        let status: Vec<_> = names.iter().map(|name| packages.0[name].join("\n")).collect();
        fs::write(records.join("status"), status.join("\n\n") + "\n").unwrap();
        fs::write(root.path("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
        fs::write(root.path("etc/group"), "root:x:0:\n").unwrap();
        root
    }

    /// With nothing but what the programs are linked against.
    pub(super) fn of_the_c_library() -> Self {
        Self::of(&["libc6", "libgcc-s1"].map(str::to_owned).into())
    }

    fn of(packages: &BTreeSet<String>) -> Self {
        let root = Self(tempdir().unwrap());
        for folder in ["bin", "lib", "lib64", "sbin"] {
            fs::create_dir_all(root.path("usr").join(folder)).unwrap();
            std::os::unix::fs::symlink(Path::new("usr").join(folder), root.path(folder)).unwrap();
        }
        for folder in ["dev", "tmp", "root"] {
            fs::create_dir(root.path(folder)).unwrap();
        }
        fs::write(root.path("dev/null"), "").unwrap();
        // Documentation may be left out of an installation.
        let copy = "dpkg-query --listfiles \"$@\" | sort -u | grep -v '^/usr/share/' | while read -r file; do
            if [ -L \"$file\" ] || [ -f \"$file\" ]; then echo \"$file\"; fi
            done | tar -C / -cPf - --no-recursion -T - | tar -C \"$0\" -xf - --keep-directory-symlink";
        said(Command::new("bash").args(["-c", copy]).arg(root.path("")).args(packages));
        root
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// A program of this root, run in it.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(self.0.path()).arg(program).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

/// Installed packages: the lines of each in dpkg's records.
struct Packages(BTreeMap<String, Vec<String>>);

impl Packages {
    fn installed_here() -> Self {
        let status = fs::read_to_string("/var/lib/dpkg/status").unwrap();
        let paragraphs = status.split("\n\n").map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let installed =
            paragraphs.filter(|lines| lines.iter().any(|line| line == "Status: install ok installed"));
        Self(installed.map(|lines| (field(&lines, "Package").to_owned(), lines)).collect())
    }

    fn essential(&self) -> BTreeSet<String> {
        let essential = self.0.iter().filter(|(_, lines)| field(lines, "Essential") == "yes");
        essential.map(|(name, _)| name.clone()).chain(["passwd".to_owned()]).collect()
    }

    /// These packages and all that they cannot do without.
    fn with_dependencies(&self, mut found: BTreeSet<String>) -> BTreeSet<String> {
        let mut new: Vec<_> = found.iter().cloned().collect();
        while let Some(name) = new.pop() {
            let lines = &self.0[&name];
            let needed = format!("{},{}", field(lines, "Pre-Depends"), field(lines, "Depends"));
            for alternatives in needed.split(',').filter(|one| !one.trim().is_empty()) {
                let mut names = alternatives.split('|').filter_map(|one| one.split_whitespace().next());
                // A virtual package is provided by one that is essential itself.
                let known = names.find_map(|one| {
                    let name = one.split(':').next().unwrap_or_default();
                    self.0.contains_key(name).then(|| name.to_owned())
                });
                if let Some(name) = known.filter(|name| found.insert(name.clone())) {
                    new.push(name);
                }
            }
        }
        found
    }
}

fn field<'a>(lines: &'a [String], name: &str) -> &'a str {
    lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
}
