//! Signatures that Python made are believed by the callback, in every method and with any secret; and none in which a bit is wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;

use resync_core::websub::key::TopicUrl;
use resync_judge::{Signed, signatures_of_python};
use resync_subscriber_kit::receive::{Callback, CallbackOptions};
use resync_subscriber_kit::state::Subscriptions;
use url::Url;

use crate::callback::mount_in_hyper;
use crate::support::post;

const METHODS: [&str; 4] = ["sha1", "sha256", "sha384", "sha512"];
/// As a form carries them: letters of two to four bytes, what a form has to escape, and what nobody can see.
const SECRETS: [&str; 3] =
    ["Gr%C3%BC%C3%9Fe+%E7%A7%98%F0%9F%94%91", "a%2Bb%26c%3Dd%25e%20f", "%00%09%0A%7F%C2%85"];

#[tokio::test]
async fn w148_w165_w167_w168_w170_w171_the_callback_believes_what_python_signed_and_nothing_with_a_wrong_bit()
{
    for written in SECRETS {
        let query = format!("secret={written}");
        let secret = url::form_urlencoded::parse(query.as_bytes()).next().unwrap().1.into_owned();
        let folder = tempfile::tempdir().unwrap();
        let (address, path) = at_callback_with(folder.path(), &secret).await;
        let body: Vec<u8> = (0..=255).collect();
        let mut wrong_body = body.clone();
        wrong_body[200] ^= 1;
        let asked = METHODS.map(|method| Signed { method, secret: written, body: &body });
        let others = METHODS.map(|method| Signed { method, secret: "another", body: &body });
        let answer = async |signature: &str, body: &[u8]| {
            post(address, &path, &[("X-Hub-Signature", signature)], body).await.status()
        };
        for (signature, other) in signatures_of_python(&asked).iter().zip(signatures_of_python(&others)) {
            assert_eq!(answer(signature, &body).await, 204, "{written}: {signature}");
            assert_eq!(answer(signature, &wrong_body).await, 403, "{written}: {signature}");
            assert_eq!(answer(&other, &body).await, 403, "{written}: signed with another secret");
            for wrong in with_a_wrong_bit(signature) {
                assert_eq!(answer(&wrong, &body).await, 403, "{written}: {wrong} instead of {signature}");
            }
        }
    }
}

/// A bit of each digit is wrong, in one after the other.
fn with_a_wrong_bit(signature: &str) -> impl Iterator<Item = String> {
    let digits = signature.find('=').unwrap() + 1;
    (digits..signature.len()).map(move |at| {
        let digit = u8::from_str_radix(&signature[at..=at], 16).unwrap() ^ (1 << (at % 4));
        format!("{}{digit:x}{}", &signature[..at], &signature[at + 1..])
    })
}

/// A callback whose only subscription has this secret: its saved state says so. Where it is mounted, and its path.
async fn at_callback_with(folder: &Path, secret: &str) -> (std::net::SocketAddr, String) {
    let topic = TopicUrl::parse("http://source.example/topic").unwrap();
    let hub = Url::parse("http://hub.example/websub/").unwrap();
    let subscriptions = Subscriptions::open(folder).unwrap();
    subscriptions.add(&topic, &hub).await.unwrap();
    drop(subscriptions);
    let file = folder.join("state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let record = &mut state["subscriptions"][0];
    let path = format!("/{}", record["token"].as_str().unwrap());
    record["secret"] = secret.into();
    fs::write(&file, state.to_string()).unwrap();

    let (callback, mut deliveries) =
        Callback::new(&Subscriptions::open(folder).unwrap(), CallbackOptions::default());
    tokio::spawn(async move {
        while let Some(delivery) = deliveries.next().await {
            delivery.done().await.unwrap();
        }
    });
    (mount_in_hyper(callback).await, path)
}
