//! The documents and the log of commands that hubs of one store share.

use super::{Place, on_every_engine};
use crate::store::Document;

on_every_engine!(
    documents_are_changed_one_after_the_other_and_found_again_after_reopening,
    the_log_only_grows_until_it_is_shortened,
);

const TOKENS: Document = Document::PublisherTokens;

async fn documents_are_changed_one_after_the_other_and_found_again_after_reopening(place: Place) {
    let store = place.open().await;
    let (registry, other) = (store.registry(), store.registry());
    assert_eq!((registry.version(TOKENS), registry.read(TOKENS).unwrap()), (None, None));
    for text in ["{}", "{\"a\":1}", "{\"b\":1}"] {
        let before = registry.version(TOKENS);
        other.change(TOKENS, &mut |_: Option<Vec<u8>>| Some(text.as_bytes().to_vec())).unwrap();
        assert!(other.version(TOKENS) != before, "who has changed it knows so");
        assert_eq!(other.read(TOKENS).unwrap().as_deref(), Some(text.as_bytes()));
    }
    let mut seen = None;
    registry
        .change(TOKENS, &mut |kept: Option<Vec<u8>>| {
            seen = kept;
            None
        })
        .unwrap();
    assert_eq!(seen.as_deref(), Some(b"{\"b\":1}".as_slice()), "it is the newest that is changed");
    for of in [Document::TokenUses, Document::TicketKey, Document::PageAddresses, Document::EndedSessions] {
        assert_eq!(registry.read(of).unwrap(), None, "they do not mix");
    }
    let store = place.reopen(store).await;
    assert_eq!(store.registry().read(TOKENS).unwrap(), seen);
}

async fn the_log_only_grows_until_it_is_shortened(place: Place) {
    let store = place.open().await;
    store.registry().open_log().unwrap();
    assert!(store.registry().read_log().unwrap().is_empty());
    let lines = ["{\"number\":1}\n", "{\"number\":2}\n", "{\"number\":3}\n", "{\"number\":4}\n"];
    for line in lines {
        store.registry().append_to_log(line.as_bytes()).unwrap();
    }
    let store = place.reopen(store).await;
    let registry = store.registry();
    registry.open_log().unwrap();
    assert_eq!(registry.read_log().unwrap(), lines.concat().as_bytes());
    registry.shorten_log(1_000).unwrap();
    assert_eq!(registry.read_log().unwrap(), lines.concat().as_bytes(), "it is short enough");
    registry.shorten_log(10).unwrap();
    let left = registry.read_log().unwrap();
    assert!(!left.is_empty() && left.len() < lines.concat().len());
    assert!(lines.concat().as_bytes().ends_with(&left), "the newest are left");
    registry.append_to_log(b"{}\n").unwrap();
    assert_eq!(registry.read_log().unwrap(), [left.as_slice(), b"{}\n"].concat());
}
