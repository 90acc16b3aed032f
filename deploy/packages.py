"""What deploy/release packs: programs with their man pages, completions, units and documents, as tarball, Debian package and wheel."""

import base64
import csv
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAINTAINER = "The resync-hub project <resync-hub@example.org>"
DEBIAN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Program:
    name: str
    crate: str
    summary: str
    description: str
    # Files of deploy/.
    units: tuple
    configuration: str = ""
    examples: tuple = ()


PROGRAMS = [
    Program(
        "resync-hub",
        "resync-hub",
        "WebSub hub for ResourceSync communities",
        "A hub that takes notifications of changes from Sources and delivers them to\nsubscribers: in order, signed, with"
        " retries that survive a restart. What it\nacknowledged is on the disk.",
        ("resync-hub.service", "resync-hub.socket"),
        "hub.toml",
        (
            "nginx.conf",
            "Caddyfile",
            "prometheus/prometheus.yml",
            "prometheus/kubernetes.yml",
            "prometheus/alerts.yml",
            "grafana/dashboards/resync-hub.json",
        ),
    ),
    Program(
        "resync-source",
        "resync-publisher",
        "ResourceSync Source that publishes the changes of a folder",
        "It writes the ResourceSync documents of a folder, finds what has changed, and\nnotifies WebSub hubs.",
        ("resync-source.service",),
    ),
    Program(
        "resync-destination",
        "resync-subscriber-kit",
        "ResourceSync Destination that keeps a copy in step with its Source",
        "It finds what a Source offers, subscribes at its WebSub hub, checks\nsignatures, and keeps a folder in step.",
        ("resync-destination.service",),
    ),
]


@dataclass(frozen=True)
class Kind:
    """The programs for one kind of machine."""

    # Where they are, stripped.
    folder: Path
    machine: str
    # The oldest C library that they run with. Static ones need none.
    glibc: str

    @property
    def name(self):
        return f"{self.machine}-linux-{'gnu' if self.glibc else 'musl'}"


@dataclass(frozen=True)
class Output:
    """Where artefacts are written, and how hard they are compressed: 1 to 9."""

    folder: Path
    level: int


def version():
    return re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


# --- the tree of the tarball, from which the packages take their files ---


def write_tree(kind, writer, tree):
    """Programs of one kind, and what those of another one, which run here, write about themselves."""
    for program in PROGRAMS:
        copy(kind.folder / program.name, tree / "bin" / program.name)
        for path, text in written_pages(writer.folder / program.name).items():
            put(tree / path, text)
        for unit in program.units:
            copy(ROOT / "deploy" / unit, tree / "lib/systemd/system" / unit)
    copy_documents(PROGRAMS, tree / "share/doc/resync")


def written_pages(program):
    """The man pages and completions of a program, by the paths at which they are looked for."""
    found = {path: run(program, "completions", shell) for shell, path in completions(program.name).items()}
    with tempfile.TemporaryDirectory() as folder:
        run(program, "man", folder)
        return found | {f"share/man/man1/{page.name}": page.read_bytes() for page in Path(folder).iterdir()}


def completions(name):
    """Where each shell looks for what completes the command lines of a program."""
    return {
        "bash": f"share/bash-completion/completions/{name}",
        "zsh": f"share/zsh/site-functions/_{name}",
        "fish": f"share/fish/vendor_completions.d/{name}.fish",
    }


def pages_of(program, tree):
    """The man pages and completions of one program in a tree."""
    pages = sorted((tree / "share/man/man1").glob(f"{program.name}[.-]*"))
    return [*pages, *(tree / path for path in completions(program.name).values())]


def copy_documents(programs, folder):
    """The pages lie as in the repository, so that they lead to each other."""
    of_docs = [page for place in ("docs", "docs/reference") for page in (ROOT / place).glob("*.md")]
    pages = [*ROOT.glob("*.md"), ROOT / "deploy/README.md", *of_docs, *ROOT.glob("LICENSE-*")]
    for page in pages:
        copy(page, folder / page.relative_to(ROOT))
    for program in programs:
        for example in filter(None, [program.configuration, *program.examples]):
            copy(ROOT / "deploy" / example, folder / "examples" / Path(example).name)


# --- the tarball ---


def write_tarball(tree, out):
    """With what is in the tree in a folder of its name."""

    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = epoch()
        return entry

    with open(out.folder / f"{tree.name}.tar.gz", "wb") as file, gzip.GzipFile("", "wb", out.level, file, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in [tree, *sorted(tree.rglob("*"))]:
                archive.add(path, f"{tree.name}/{path.relative_to(tree)}".removesuffix("/."), recursive=False, filter=plain)


# --- the wheel ---


def write_wheel(program, kind, tree, out):
    """pip puts the program beside Python's own, and the rest of the wheel into the same tree."""
    name, number, tags = program.name.replace("-", "_"), version().replace("-rc.", "rc"), wheel_tags(kind)
    data, info = f"{name}-{number}.data", f"{name}-{number}.dist-info"
    files = {f"{data}/scripts/{program.name}": tree / "bin" / program.name}
    files |= {f"{data}/data/{path.relative_to(tree)}": path for path in pages_of(program, tree)}
    files |= {f"{info}/licenses/{path.name}": path for path in sorted(ROOT.glob("LICENSE-*"))}
    contents = {path: file.read_bytes() for path, file in files.items()}
    contents[f"{info}/METADATA"] = f"""\
Metadata-Version: 2.4
Name: {program.name}
Version: {number}
Summary: {program.summary}
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{program.description}

The wheel has the program `{program.name}`, which is written in Rust and needs nothing of Python.
""".encode()
    wheel = ["Wheel-Version: 1.0", "Generator: deploy/release", "Root-Is-Purelib: false", *(f"Tag: py3-none-{tag}" for tag in tags)]
    contents[f"{info}/WHEEL"] = "".join(f"{line}\n" for line in wheel).encode()
    contents[f"{info}/RECORD"] = record(contents, f"{info}/RECORD")
    with zipfile.ZipFile(out.folder / f"{name}-{number}-py3-none-{'.'.join(tags)}.whl", "w") as archive:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(path, time.gmtime(epoch())[:6])
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, out.level)


def wheel_tags(kind):
    """The names of a kind of machine in Python's world."""
    # A static program needs neither C library. No name for arm64 is older than this one.
    glibc = kind.glibc or "2.17"
    tags = [f"manylinux_{glibc.replace('.', '_')}_{kind.machine}"]
    if glibc == "2.17":
        # An old pip knows only the older name.
        tags.insert(0, f"manylinux2014_{kind.machine}")
    return tags if kind.glibc else [*tags, f"musllinux_1_1_{kind.machine}"]


def record(contents, itself):
    """The digest and the size of every file but the record."""
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    for path, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(content)])
    rows.writerow([itself, "", ""])
    return lines.getvalue().encode()


# --- the Debian package ---


def write_debian_package(program, kind, tree, out):
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        copy(tree / "bin" / program.name, root / "usr/bin" / program.name)
        for unit in program.units:
            text = (tree / "lib/systemd/system" / unit).read_text().replace("/usr/local/bin/", "/usr/bin/")
            put(root / "usr/lib/systemd/system" / unit, text.encode())
        for path in pages_of(program, tree):
            place = root / "usr" / str(path.relative_to(tree)).replace("zsh/site-functions", "zsh/vendor-completions")
            if place.parent.name == "man1":
                put(place.with_name(f"{place.name}.gz"), packed(path.read_bytes()))
            else:
                copy(path, place)
        write_debian_documents(program, root / "usr/share/doc" / program.name)
        (root / "etc" / program.name).mkdir(parents=True)
        if program.configuration:
            copy(ROOT / "deploy" / program.configuration, root / "etc" / program.name / program.configuration)
        put(root / "usr/share/lintian/overrides" / program.name, (ROOT / "deploy/deb/overrides").read_bytes())
        write_control(program, kind, root)
        package = out.folder / f"{program.name}_{debian_version()}_{DEBIAN_MACHINES[kind.machine]}.deb"
        # What several threads compress depends on their number.
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{out.level}", "--build", root, package],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "DPKG_DEB_THREADS_MAX": "1"},
        )


def write_debian_documents(program, folder):
    copy_documents([program], folder)
    for licence in folder.glob("LICENSE-*"):
        licence.unlink()
    words = "MIT or Apache 2.0, as you like. Apache 2.0 is in /usr/share/common-licenses/Apache-2.0, MIT is:\n\n"
    put(folder / "copyright", (words + (ROOT / "LICENSE-MIT").read_text()).encode())
    changes = f"""\
{program.name} ({debian_version()}) unstable; urgency=medium

  * What has changed is in CHANGELOG.md.

 -- {MAINTAINER}  {formatdate(epoch())}
"""
    put(folder / "changelog.gz", packed(changes.encode()))


def write_control(program, kind, root):
    control = root / "DEBIAN"
    needed = [f"libc6 (>= {kind.glibc})"]
    if b"libgcc_s.so.1" in (root / "usr/bin" / program.name).read_bytes():
        needed.append("libgcc-s1")
    if "DynamicUser=yes" not in (ROOT / "deploy" / program.units[0]).read_text():
        needed.append("passwd")
    files = sorted(path for path in root.rglob("*") if path.is_file())
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files if not path.is_relative_to(root / "etc")]
    put(control / "md5sums", "".join(sums).encode())
    size = sum(path.stat().st_size for path in files)
    for script in ["postinst", "prerm", "postrm"]:
        text = (ROOT / "deploy/deb" / script).read_text()
        text = text.replace("@PROGRAM@", program.name).replace("@UNITS@", " ".join(reversed(program.units)))
        put(control / script, text.encode(), 0o755)
    if program.configuration:
        put(control / "conffiles", f"/etc/{program.name}/{program.configuration}\n".encode())
    description = program.description.replace("\n", "\n ")
    fields = f"""\
Package: {program.name}
Version: {debian_version()}
Architecture: {DEBIAN_MACHINES[kind.machine]}
Maintainer: {MAINTAINER}
Installed-Size: {size // 1024 + 1}
Depends: {", ".join(needed)}
Recommends: ca-certificates
Section: web
Priority: optional
Description: {program.summary}
 {description}
"""
    put(control / "control", fields.encode())


def debian_version():
    return version().replace("-", "~")


# --- files ---


def copy(file, into):
    put(into, file.read_bytes(), 0o755 if file.stat().st_mode & 0o100 else 0o644)


def put(path, content, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def run(program, *arguments):
    return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE).stdout


def packed(content):
    return gzip.compress(content, 9, mtime=0)


def epoch():
    return int(os.environ["SOURCE_DATE_EPOCH"])
