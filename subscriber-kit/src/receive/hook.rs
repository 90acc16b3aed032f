//! A command of the user that is run for every notification.

use std::process::Stdio;
use std::time::Duration;

use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// A command line for the shell. It gets the body on standard input, and the environment variables `RESYNC_TOPIC`,
/// `RESYNC_CONTENT_TYPE` and, if the hub sends an id, `RESYNC_ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    command: String,
    limit: Option<Duration>,
}

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It could not be run.
    #[error("cannot run the command: {0}")]
    Run(#[from] std::io::Error),
    /// It reported a failure.
    #[error("the command ended with {0}")]
    Failed(std::process::ExitStatus),
    /// It took too long and was killed.
    #[error("the command took longer than {0:?} and was killed; increase --exec-timeout or make it faster")]
    TimedOut(Duration),
}

/// What a hook gets.
#[derive(Clone, Debug)]
pub(crate) struct Notification {
    pub(crate) id: Option<NotificationId>,
    pub(crate) topic: TopicUrl,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Hook {
    /// A hook of this command line.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), limit: None }
    }

    /// The time limit for one notification. Then the command is killed, and has failed.
    #[must_use]
    pub fn limit(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end. If this is dropped earlier, the command is killed.
    pub(crate) async fn run(&self, notification: &Notification) -> Result<(), HookError> {
        let Some(limit) = self.limit else { return self.run_unlimited(notification).await };
        let result = tokio::time::timeout(limit, self.run_unlimited(notification)).await;
        result.unwrap_or(Err(HookError::TimedOut(limit)))
    }

    async fn run_unlimited(&self, notification: &Notification) -> Result<(), HookError> {
        let mut command = shell();
        command.arg(&self.command).stdin(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        command.env("RESYNC_TOPIC", notification.topic.as_str());
        command.env("RESYNC_CONTENT_TYPE", notification.content_type.as_deref().unwrap_or_default());
        command.env("RESYNC_ID", notification.id.map(|id| id.to_string()).unwrap_or_default());
        let mut child = command.spawn()?;
        #[cfg(unix)]
        let group = ProcessGroup(child.id());
        let input = child.stdin.take();
        let write = async {
            if let Some(mut input) = input
                && let Err(error) = input.write_all(&notification.body).await
            {
                // It need not read its input.
                tracing::debug!(%error, "the command did not read its input");
            }
        };
        let (status, ()) = tokio::join!(child.wait(), write);
        #[cfg(unix)]
        group.ended();
        let status = status?;
        if status.success() { Ok(()) } else { Err(HookError::Failed(status)) }
    }
}

/// All processes of a command line, not just its shell. Kills them when dropped, unless it ended by itself.
#[cfg(unix)]
struct ProcessGroup(Option<u32>);

#[cfg(unix)]
impl ProcessGroup {
    fn ended(mut self) {
        self.0 = None;
    }
}

#[cfg(unix)]
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let leader = self.0.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(leader) = leader
            && let Err(error) = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL)
        {
            tracing::debug!(%error, "cannot kill the processes of the command");
        }
    }
}

#[cfg(unix)]
fn shell() -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c");
    command
}

#[cfg(not(unix))]
fn shell() -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C");
    command
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn notification() -> Notification {
        Notification {
            id: Some("000000000000000a.7".parse().unwrap()),
            topic: TopicUrl::parse("http://source.example/topic").unwrap(),
            content_type: Some("text/plain".to_owned()),
            body: b"hello".to_vec(),
        }
    }

    #[tokio::test]
    async fn what_it_began_is_killed_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let hook = Hook::new(format!("(echo begun; exec sleep 600) > {}; true", pipe.display()));
        let (tell, begun) = tokio::sync::oneshot::channel();
        let reading = tokio::task::spawn_blocking(move || {
            use std::io::Read as _;
            let mut pipe = std::fs::File::open(pipe).unwrap();
            pipe.read_exact(&mut [0; 6]).unwrap();
            tell.send(()).unwrap();
            // Until nobody can write into it any more.
            pipe.read_to_end(&mut Vec::new()).unwrap()
        });
        let notification = notification();
        tokio::select! {
            ended = hook.run(&notification) => panic!("{ended:?}"),
            told = begun => told.unwrap(),
        }
        let read = tokio::time::timeout(Duration::from_secs(20), reading).await;
        assert_eq!(read.expect("its child has ended").unwrap(), 0);
    }

    #[tokio::test]
    async fn it_gets_the_body_and_what_is_known_of_it_and_its_exit_code_counts() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let notification = notification();
        let command =
            format!("echo \"$RESYNC_TOPIC $RESYNC_ID $RESYNC_CONTENT_TYPE $(cat)\" > {}", out.display());
        Hook::new(command).run(&notification).await.unwrap();
        let said = std::fs::read_to_string(out).unwrap();
        assert_eq!(said, "http://source.example/topic 000000000000000a.7 text/plain hello\n");
        assert!(matches!(Hook::new("exit 3").run(&notification).await, Err(HookError::Failed(_))));
        let long = Notification { body: vec![b'x'; 1 << 20], ..notification };
        Hook::new("true").run(&long).await.expect("it need not read");
        let hook = Hook::new("exec sleep 600").limit(Some(Duration::from_millis(50)));
        assert!(matches!(hook.run(&long).await, Err(HookError::TimedOut(_))));
    }
}
