//! Callbacks and secrets of the real Destination are what the system's random bytes make them: whoever knows the time, the process or
//! any number of them knows nothing of the next (W-045, W-054, W-074, W-183).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;

use resync_harness::{Process, Randomness, Receiver, Reply, Seen};
use tempfile::TempDir;
use url::Url;

/// The bits of a version 4 UUID that are always the same: four of its seventh byte, two of its ninth.
fn without_fixed_bits(mut bytes: Vec<u8>) -> Vec<u8> {
    for id in bytes.chunks_exact_mut(16) {
        id[6] &= 0x0f;
        id[8] &= 0x3f;
    }
    bytes
}

/// Whether these 32 bytes are two pieces of what the system gave, but for their 12 fixed bits.
fn are_of_the_system(bytes: &[u8], given: &[u8]) -> bool {
    bytes.len() == 32
        && bytes.chunks_exact(16).all(|id| {
            let wanted = without_fixed_bits(id.to_vec());
            // They are read as a number, so their order is that of the processor.
            let is_it = |piece: &[u8]| {
                let reversed = piece.iter().rev().copied().collect();
                [piece.to_vec(), reversed].into_iter().any(|bytes| without_fixed_bits(bytes) == wanted)
            };
            given.windows(16).any(is_it)
        })
}

#[tokio::test]
async fn w045_w054_w074_w183_callbacks_and_secrets_are_random_bytes_of_the_system() {
    let hub = Receiver::start().await;
    let own = hub.url("/hub");
    let origin = hub.url("");
    hub.behave(move |seen: &Seen| match seen.path() {
        "/hub" => Reply::Status(202, String::new()),
        topic => Reply::With(200, "Link", format!("<{own}>; rel=\"hub\", <{origin}{topic}>; rel=\"self\"")),
    });
    let folder = TempDir::new().unwrap();
    let randomness = Randomness::new(folder.path());
    let state = folder.path().join("state").display().to_string();
    let topics = ["/one", "/two", "/three"].map(|path| hub.url(path));
    let arguments: Vec<&str> = [&["subscribe"], &topics.each_ref().map(String::as_str)[..]]
        .concat()
        .into_iter()
        .chain(["--state", &state, "--listen", "127.0.0.1:0"])
        .collect();
    let environment: HashMap<_, _> = randomness.environment().into();
    let _destination = Process::start("resync-destination", &arguments, &environment);
    let requests = |seen: &[Seen]| seen.iter().filter(|one| one.path() == "/hub").count();
    let asked = hub.until("a request for each topic", |seen| requests(seen) >= 3).await;
    let mut told = Vec::new();
    for request in asked.iter().filter(|one| one.path() == "/hub").take(3) {
        let field = |name: &str| {
            let mut pairs = url::form_urlencoded::parse(&request.body);
            pairs.find(|(found, _)| found == name).unwrap().1.into_owned()
        };
        let callback = Url::parse(&field("hub.callback")).unwrap();
        told.push(callback.path().rsplit('/').next().unwrap().to_owned());
        told.push(field("hub.secret"));
    }
    let given = randomness.given();
    for one in &told {
        let bytes = hex::decode(one).unwrap_or_else(|_| panic!("{one} is not hexadecimal"));
        assert!(are_of_the_system(&bytes, &given), "{one} did not come from the system");
        assert_eq!(told.iter().filter(|other| *other == one).count(), 1, "{one} twice");
    }
}
