//! The signals that ask a program to stop.

use std::io;

/// Ready once SIGINT or SIGTERM comes. Both are caught from this call on, which needs a runtime.
#[cfg(unix)]
pub fn stop() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    })
}

/// Ready once the program is interrupted.
#[cfg(not(unix))]
pub fn stop() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
