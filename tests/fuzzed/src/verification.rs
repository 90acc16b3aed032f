//! Any text as the query of a verification: no panic, and what a hub would send for it is read as the same, whatever
//! the callback brings along.

use std::sync::LazyLock;

use resync_core::websub::{CallbackUrl, MAX_CHALLENGE, Verification};

static CALLBACKS: LazyLock<[CallbackUrl; 2]> = LazyLock::new(|| {
    ["https://reader.example/callback", "https://reader.example/callback?of=7&&x"]
        .map(|url| CallbackUrl::parse(url).expect("it is a callback"))
});

/// Runs the target over one input.
pub fn run(query: &str) {
    let Ok(verification) = Verification::parse(query) else { return };
    if let Verification::Subscribe { challenge, .. } | Verification::Unsubscribe { challenge, .. } =
        &verification
    {
        assert!((1..=MAX_CHALLENGE).contains(&challenge.as_str().len()));
        assert!(challenge.as_str().bytes().all(|byte| byte.is_ascii_graphic() && byte != b'<'));
    }
    for callback in CALLBACKS.iter() {
        let url = verification.to_url(callback);
        let sent = url.split_once('?').map_or("", |(_, query)| query);
        assert_eq!(Verification::parse(sent).as_ref(), Ok(&verification), "{url}");
    }
}
