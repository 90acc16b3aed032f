//! Any bytes as a request to a hub: no panic, and what a kit would send for it is read as the same request.

use resync_core::websub::{MAX_URL, Request};

/// Runs the target over one input.
pub fn run(body: &[u8]) {
    let Ok(request) = Request::parse(body) else { return };
    let form = match &request {
        Request::Subscribe(subscribe) => {
            assert!(
                subscribe.callback.as_str().len() <= MAX_URL && subscribe.topic.as_str().len() <= MAX_URL
            );
            assert!(!format!("{:?}", subscribe.callback).contains('?'), "a log would show the callback");
            subscribe.to_form()
        }
        Request::Unsubscribe(unsubscribe) => unsubscribe.to_form(),
        Request::Publish(publish) => publish.to_form(),
    };
    assert_eq!(Request::parse(form.as_bytes()).as_ref(), Ok(&request), "{form}");
}
