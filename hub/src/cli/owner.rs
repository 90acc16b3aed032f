//! Whose the data folder is: what another user writes into it the hub's user cannot read, and neither hub nor subscribers would know why.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use resync_common::words::quoted;
use resync_hub::config::Config;
use resync_hub::store;

use super::Failure;

/// What to do where only root may read.
pub(super) const AS_ROOT: &str = "if the hub runs as a service, put sudo before the command";
/// Where systemd keeps the folders of services with a dynamic user.
const STATES: &str = "/var/lib/private";

/// Nothing may be written into the data folder by this user unless it is its own.
///
/// # Errors
/// With the command line that runs this command as the owner.
pub(super) fn is_ours(config: &Config) -> Result<(), Failure> {
    owned(config, &env::args().skip(1).collect::<Vec<_>>(), "", "")
}

/// As above, for a command whose output the shell should write, since the owner may write nowhere else.
pub(super) fn is_ours_or_is_passed_on(config: &Config, file: &Path) -> Result<(), Failure> {
    owned(config, &with_dash(file), "", &format!(" > {}", quoted(&file.display().to_string())))
}

/// As above, for a command that reads a file which only root may read: the owner gets it from `cat`.
pub(super) fn is_ours_or_is_piped(config: &Config, file: &Path) -> Result<(), Failure> {
    if file == Path::new("-") {
        return is_ours(config);
    }
    owned(config, &with_dash(file), &format!("sudo cat {} | ", quoted(&file.display().to_string())), "")
}

/// The arguments of this command, with - for the file.
fn with_dash(file: &Path) -> Vec<String> {
    let file = file.display().to_string();
    env::args().skip(1).map(|word| if word == file { "-".to_owned() } else { word }).collect()
}

fn owned(config: &Config, arguments: &[String], before: &str, behind: &str) -> Result<(), Failure> {
    let folder = &config.data_dir;
    // A volume of a container is often root's, and open to the group of a hub that is not.
    let owner = fs::metadata(folder.join(store::MARK)).or_else(|_| fs::metadata(folder));
    let owner = owner.map_err(|error| refused(folder, &error))?.uid();
    if rustix::process::geteuid().as_raw() == owner {
        return Ok(());
    }
    let program = env::current_exe().map_or("resync-hub".into(), |path| path.display().to_string());
    let words: Vec<_> = [&program].into_iter().chain(arguments).map(|word| quoted(word)).collect();
    let state = folder.canonicalize().ok().and_then(|folder| state(&folder));
    Err(Failure::new(format_args!(
        "{} belongs to another user (number {owner}), who could not read what is written here: run this command as that user,\n  {before}{} {}{behind}",
        folder.display(),
        prefix(state.as_deref(), owner, config.secrets.credential()),
        words.join(" "),
    )))
}

/// What runs a command as the owner: for a service of systemd's own user with what its unit gives it, the keys of secrets too where they
/// are handed over.
fn prefix(state: Option<&str>, owner: u32, credential: Option<&str>) -> String {
    let Some(state) = state else { return format!("sudo -u '#{owner}'") };
    let keys =
        credential.map_or_else(String::new, |name| format!(" -p LoadCredential={name}:/etc/{state}/{name}"));
    format!(
        "sudo systemd-run --pipe --wait --quiet -p DynamicUser=yes -p User={state} -p StateDirectory={state} \
         -p StateDirectoryMode=0700 -p EnvironmentFile=-/etc/{state}/environment{keys}"
    )
}

/// The service that owns the folder, after all links are followed.
fn state(folder: &Path) -> Option<String> {
    let mut parts = folder.strip_prefix(STATES).ok()?.components();
    let name = parts.next()?.as_os_str().to_str()?.to_owned();
    parts.next().is_none().then_some(name)
}

/// A file of the hub that cannot be used.
pub(super) fn refused(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    if error.kind() == io::ErrorKind::PermissionDenied {
        Failure::new(format_args!("{path} cannot be used: {error}; {AS_ROOT}"))
    } else {
        Failure::new(format_args!("{path} cannot be used: {error}; name the hub with --config or --data-dir"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_service_whose_user_comes_and_goes_is_known_by_its_place() {
        assert_eq!(state(Path::new("/var/lib/private/resync-hub")).as_deref(), Some("resync-hub"));
        let others =
            ["/var/lib/resync-hub", "/var/lib/private/resync-hub/data", "/srv/hub", "/var/lib/private"];
        for other in others {
            assert_eq!(state(Path::new(other)), None, "{other}");
        }
        let without_keys = prefix(Some("our-hub"), 61_000, None);
        assert!(without_keys.contains("-p User=our-hub -p StateDirectory=our-hub"), "{without_keys}");
        let with_keys = prefix(Some("our-hub"), 61_000, Some("keys"));
        assert_eq!(with_keys, without_keys + " -p LoadCredential=keys:/etc/our-hub/keys");
        assert_eq!(prefix(None, 61_000, Some("keys")), "sudo -u '#61000'");
    }
}
