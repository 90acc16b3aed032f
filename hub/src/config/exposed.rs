//! Files with secrets that others on the machine can read.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use resync_common::words::quoted;
use rustix::process::getegid;

use super::Config;

/// Where containers get secrets that others on the machine cannot read.
const HANDED_OVER: [&str; 4] =
    ["/run/secrets", "/var/run/secrets", "/run/credentials", "/var/run/credentials"];
const OTHERS: u32 = 0o004;
const GROUP: u32 = 0o040;
const OTHERS_ENTER: u32 = 0o001;
const ROOT: u32 = 0;

/// A file with a secret that others than the hub's user can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// Which file.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub what: &'static str,
    /// What to do about it, besides.
    remedy: &'static str,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, mode, what, remedy } = self;
        let whose = if mode & OTHERS == 0 { "its group" } else { "everybody on this machine" };
        let (typed, path) = (quoted(&path.to_string_lossy()), path.display());
        write!(f, "{path} has mode {mode:03o}: {whose} can read {what}; `chmod 600 {typed}`{remedy}")
    }
}

impl Config {
    /// The files with secrets that others can read. Files that only a service or a container gets do not count.
    pub fn exposed(&self) -> Vec<Exposed> {
        let own = self
            .secrets_in
            .as_deref()
            .map(|file| (file, "secrets", ", or have the key in a file of its own ([secrets] key_file)"));
        let admin_token = self.admin_token_file();
        let named = [
            (self.secrets.key_file.as_path(), "the keys of subscribers' secrets", ""),
            (&admin_token, "the operator's token", ""),
            (&self.tls.key, "the key of the certificate", ""),
            (&self.admin.tls.key, "the key of the operator's certificate", ""),
        ];
        let files = own.into_iter().chain(named);
        files.filter_map(|(path, what, remedy)| exposed(path, what, remedy)).collect()
    }
}

fn exposed(path: &Path, what: &'static str, remedy: &'static str) -> Option<Exposed> {
    let real = fs::canonicalize(path).ok()?;
    let file = fs::metadata(&real).ok()?;
    let mode = file.permissions().mode() & 0o777;
    let by_others = mode & OTHERS != 0 && can_be_entered(&real);
    let open = by_others || (mode & GROUP != 0 && is_shared(&file, getegid().as_raw()));
    (open && !is_handed_over(&real)).then(|| Exposed { path: path.to_owned(), mode, what, remedy })
}

/// Whether everybody gets to the file through the folders that it is in.
fn can_be_entered(file: &Path) -> bool {
    let enters =
        |folder: &Path| fs::metadata(folder).is_ok_and(|at| at.permissions().mode() & OTHERS_ENTER != 0);
    file.ancestors().skip(1).all(enters)
}

/// Whether the group may have other members than the service: that of a file which root hands to its service, the process's own and a
/// user's private one have none.
fn is_shared(file: &Metadata, own_group: u32) -> bool {
    let (user, group) = (file.uid(), file.gid());
    user != ROOT && group != ROOT && group != own_group && group != user
}

/// systemd's credentials, and the secrets of container engines: mounts of their own, which only the service or the container has. Those of
/// Kubernetes are wherever the pod says, in a folder `..TIME`.
fn is_handed_over(file: &Path) -> bool {
    let of_kubernetes =
        |part: Component<'_>| part.as_os_str().to_str().is_some_and(|name| name.starts_with("..2"));
    HANDED_OVER.iter().any(|folder| file.starts_with(folder)) || file.components().any(of_kubernetes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;
    use crate::config::load;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A folder through which everybody gets, with a file of this content and mode.
    fn file(content: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        let path = folder.path().join("hub.toml");
        fs::write(&path, content).unwrap();
        set_mode(&path, mode);
        (folder, path)
    }

    fn told(path: &Path) -> Vec<String> {
        load(Some(path), [], &Vec::new()).unwrap().exposed().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_key_or_a_password_in_a_configuration_that_everybody_reads_is_told_with_mode_and_remedy() {
        let key = format!("[secrets]\nkey = \"{}\"\n", crate::store::Keyring::generate().trim());
        let password = "moved_to = \"https://hub:password@hub.example/websub/\"\n";
        for secret in [key.as_str(), password] {
            let (_folder, path) = file(secret, 0o644);
            let told = told(&path);
            assert_eq!(told.len(), 1, "{told:?}");
            let name = path.display().to_string();
            for part in [name.as_str(), "mode 644", "everybody on this machine", "chmod 600", "key_file"] {
                assert!(told[0].contains(part), "{part}: {told:?}");
            }
            assert!(!told[0].contains("hub:password"), "the secret itself is not told");
            set_mode(&path, 0o600);
            assert_eq!(self::told(&path), [""; 0]);
        }
    }

    #[test]
    fn the_remedy_can_be_typed_also_for_a_path_with_a_space() {
        let path = PathBuf::from("/srv/a hub/hub.toml");
        let exposed = Exposed { path, mode: 0o644, what: "secrets", remedy: "" };
        let said = exposed.to_string();
        assert!(said.starts_with("/srv/a hub/hub.toml has mode 644: "), "{said}");
        assert!(said.ends_with("; `chmod 600 '/srv/a hub/hub.toml'`"), "{said}");
    }

    #[test]
    fn a_configuration_without_secrets_may_be_read_by_everybody() {
        let (_folder, path) = file("listen = \"127.0.0.1:0\"\n[secrets]\nkey = \"\"\n", 0o644);
        assert_eq!(told(&path), [""; 0]);
    }

    #[test]
    fn every_file_with_a_secret_is_looked_at_and_one_in_a_closed_folder_is_not_open() {
        let (folder, path) = file("secret", 0o604);
        let name = path.display().to_string();
        for key in ["secrets.key_file", "admin.token_file", "tls.key", "admin.key"] {
            let certificates = [("tls.key", "tls.certificate"), ("admin.key", "admin.certificate")];
            let beside = certificates.iter().find(|(of, _)| *of == key).map(|(_, certificate)| *certificate);
            let named = [Some(key), beside].into_iter().flatten();
            let config = load(None, [], &named.map(|key| (key, name.clone())).collect()).unwrap();
            assert_eq!(config.exposed().len(), 1, "{key}");
        }
        set_mode(folder.path(), 0o700);
        let config = load(None, [], &vec![("secrets.key_file", name)]).unwrap();
        assert_eq!(config.exposed(), []);
    }

    #[test]
    fn the_group_of_a_service_is_no_crowd_and_what_is_handed_over_is_nobody_elses() {
        let (_folder, path) = file("secret", 0o640);
        let metadata = fs::metadata(&path).unwrap();
        assert!(!is_shared(&metadata, metadata.gid()), "the process's own group");
        assert_eq!(exposed(&path, "a secret", ""), None, "made by this process, of its group");
        for path in
            ["/run/secrets/key", "/run/credentials/resync-hub.service/keys", "/etc/hub/..2026_11_25/key"]
        {
            assert!(is_handed_over(Path::new(path)), "{path}");
        }
        assert!(!is_handed_over(Path::new("/etc/resync-hub/hub.toml")));
    }
}
