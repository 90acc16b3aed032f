//! Tests of [`Request`].

use proptest::prelude::*;

use super::*;

const GOOD: &str =
    "hub.mode=subscribe&hub.topic=https%3A%2F%2Fs.example%2Ft&hub.callback=https%3A%2F%2Fd.example%2Fcb";

fn subscribe(extra: &str) -> Result<Subscribe, FormError> {
    match Request::parse(format!("{GOOD}{extra}").as_bytes())? {
        Request::Subscribe(subscribe) => Ok(subscribe),
        other => panic!("{other:?}"),
    }
}

fn unsubscribe(extra: &str) -> Result<Request, FormError> {
    Request::parse(format!("{}{extra}", GOOD.replace("subscribe", "unsubscribe")).as_bytes())
}

fn publish(parameters: &str) -> Result<Vec<String>, FormError> {
    match Request::parse(format!("hub.mode=publish{parameters}").as_bytes())? {
        Request::Publish(ping) => Ok(ping.topics.iter().map(ToString::to_string).collect()),
        other => panic!("{other:?}"),
    }
}

fn refusal(body: &str) -> String {
    Request::parse(body.as_bytes()).unwrap_err().to_string()
}

#[test]
fn w041_the_form_content_type_may_have_parameters_and_any_letter_case() {
    for form in [FORM_CONTENT_TYPE, "Application/X-WWW-Form-Urlencoded ; charset=UTF-8"] {
        assert!(is_form(form), "{form}");
    }
    for other in ["", "application/json", "multipart/form-data", "application/x-www-form-urlencoded2"] {
        assert!(!is_form(other), "{other}");
    }
}

#[test]
fn w010_callback_mode_and_topic_are_enough() {
    let asked = subscribe("").unwrap();
    assert_eq!(asked.callback.as_str(), "https://d.example/cb");
    assert_eq!(asked.topic.as_str(), "https://s.example/t");
    assert_eq!((asked.lease, asked.secret), (None, None));
}

#[test]
fn w011_w049_secret_and_lease_are_read() {
    let asked = subscribe("&hub.lease_seconds=86400&hub.secret=s%C3%A9cret+%2B").unwrap();
    assert_eq!(asked.lease, Some(86_400));
    assert_eq!(asked.secret.unwrap().as_bytes(), "sécret +".as_bytes());
}

#[test]
fn b06_a_topic_arrives_as_it_was_written() {
    let body = "hub.mode=unsubscribe&hub.callback=http%3A%2F%2Fd.example%2F\
                &hub.topic=http%3A%2F%2Fs.example%2F%25%C3%BC%257E%3Fa%3D1%26b%3D2%23";
    let Ok(Request::Unsubscribe(asked)) = Request::parse(body.as_bytes()) else { panic!() };
    assert_eq!(asked.topic.as_str(), "http://s.example/%ü%7E?a=1&b=2#");
}

#[test]
fn b02_w044_w046_w047_every_missing_parameter_is_named_with_what_it_must_be() {
    for empty in ["", "&&&", "{\"hub.mode\": \"subscribe\"}", "mode=subscribe", "hub.mode=", "hub.mode"] {
        assert_eq!(
            refusal(empty),
            "hub.mode is missing: it must be subscribe, unsubscribe or publish, \
             in the body of the request and not in the hub URL's query",
        );
    }
    for mode in ["subscribe", "unsubscribe"] {
        assert_eq!(
            refusal(&format!("hub.mode={mode}&hub.topic=http://s.example/")),
            "hub.callback is missing: it must be the URL to which the hub delivers"
        );
        assert_eq!(
            refusal(&format!("hub.mode={mode}&hub.callback=http://d.example/&hub.topic=")),
            "hub.topic is missing: it must be the URL that the publisher advertises with rel=\"self\""
        );
    }
    assert_eq!(
        refusal("hub.mode=publish&hub.url="),
        "hub.url is missing: it must be the URL of the topic that has new content, once for each topic"
    );
}

#[test]
fn b02_w046_an_unknown_mode_is_named() {
    for mode in ["Subscribe", "retrieve", "denied", "subscribe+"] {
        assert!(matches!(
            Request::parse(format!("hub.mode={mode}").as_bytes()),
            Err(FormError::Mode { found }) if found == mode.replace('+', " ")
        ));
    }
    assert_eq!(
        refusal("hub.mode=Subscribe"),
        "hub.mode is \"Subscribe\": it must be subscribe, unsubscribe or publish, in lower case"
    );
}

#[test]
fn b02_w070_what_is_no_web_address_is_refused() {
    assert_eq!(
        refusal("hub.mode=subscribe&hub.topic=http://s.example/&hub.callback=ftp://d.example/"),
        "hub.callback: the URL's scheme is \"ftp\": it must be http or https"
    );
    assert_eq!(
        refusal("hub.mode=subscribe&hub.topic=feed&hub.callback=http://d.example/"),
        "hub.topic \"feed\": the URL is not absolute: it must begin with http:// or https://"
    );
    assert_eq!(
        refusal("hub.mode=publish&hub.url=http://s.example/&hub.url=s.example"),
        "hub.url \"s.example\": the URL is not absolute: it must begin with http:// or https://"
    );
}

#[test]
fn w195_a_refused_callback_is_not_repeated() {
    for callback in ["unguessable", "http://d.example/unguessable%00", "http://d.example:x/unguessable"] {
        let body = format!("hub.mode=subscribe&hub.topic=http://s.example/&hub.callback={callback}");
        let error = Request::parse(body.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("unguessable"), "{error}");
    }
}

#[test]
fn b02_w042_invalid_utf8_is_refused_and_its_parameter_named() {
    for (extra, parameter) in [
        (&b"&hub.secret=%FF"[..], "hub.secret"),
        (b"&hub.secret=\xff", "hub.secret"),
        (b"&hub.topic=%C3", "hub.topic"),
        (b"&foo=%ED%A0%80", "foo"),
        (b"&b%E4r=1", "b\u{fffd}r"),
        (b"&a=%C3&%BC=1", "a"),
    ] {
        let error = Request::parse(&[GOOD.as_bytes(), extra].concat()).unwrap_err();
        assert_eq!(error, FormError::NotUtf8 { parameter: parameter.to_owned() });
    }
    assert!(subscribe("&foo=%zz%").is_ok(), "a percent sign without digits is text");
}

#[test]
fn w059_parameters_that_are_not_understood_are_ignored() {
    let extra = "&foo=bar&hub.foo=hub.bar&hub.verify=sync&hub.verify=async&HUB.MODE=publish&=&x";
    assert_eq!(subscribe(extra), subscribe(""));
}

#[test]
fn c02_the_token_of_older_subscribers_is_kept_unless_it_is_too_long() {
    let token = |extra: &str| subscribe(extra).map(|read| read.verify_token.map(|it| it.as_str().to_owned()));
    assert_eq!(token("&hub.verify_token=a%2Bb%3D"), Ok(Some("a+b=".to_owned())));
    assert_eq!(token("&hub.verify_token="), Ok(None));
    let long = token(&format!("&hub.verify_token={}", "t".repeat(513))).unwrap_err();
    assert_eq!(long.to_string(), "hub.verify_token: a token has 1 to 512 bytes, not 513");
}

#[test]
fn d04_w049_a_malformed_lease_is_refused_with_what_would_be_right() {
    for lease in ["0", "000", "-1", "1.5", "abc", "1e3", "0x10", "%2B5", "+5", "5+", "%D9%A1"] {
        let error = subscribe(&format!("&hub.lease_seconds={lease}")).unwrap_err();
        assert!(matches!(error, FormError::Lease { .. }), "{lease}: {error}");
    }
    assert_eq!(
        subscribe("&hub.lease_seconds=10d").unwrap_err().to_string(),
        "hub.lease_seconds is \"10d\": it must be a whole number of seconds, 1 or more, such as 864000; \
         leave it out for the hub's default"
    );
}

#[test]
fn d04_an_empty_lease_is_absent_and_a_huge_one_saturates() {
    assert_eq!(subscribe("&hub.lease_seconds=").unwrap().lease, None);
    assert_eq!(subscribe("&hub.lease_seconds=007").unwrap().lease, Some(7));
    assert_eq!(subscribe("&hub.lease_seconds=18446744073709551615").unwrap().lease, Some(u64::MAX));
    assert_eq!(subscribe("&hub.lease_seconds=18446744073709551616").unwrap().lease, Some(u64::MAX));
    assert_eq!(subscribe(&format!("&hub.lease_seconds={}", "9".repeat(5000))).unwrap().lease, Some(u64::MAX));
}

#[test]
fn w053_b17_an_unsubscribe_ignores_lease_and_secret_whatever_they_are() {
    let plain = unsubscribe("").unwrap();
    let too_long = "x".repeat(300);
    for extra in [
        "&hub.lease_seconds=abc".to_owned(),
        "&hub.lease_seconds=1&hub.lease_seconds=2".to_owned(),
        format!("&hub.secret={too_long}"),
    ] {
        assert_eq!(unsubscribe(&extra).unwrap(), plain, "{extra}");
    }
}

#[test]
fn d05_repeated_singletons_are_refused() {
    for (parameter, value) in [
        ("hub.mode", "subscribe"),
        ("hub.topic", "https://s.example/t"),
        ("hub.callback", "https://d.example/cb"),
        ("hub.lease_seconds", "5"),
        ("hub.secret", "x"),
    ] {
        let twice = format!("&{parameter}={value}&{parameter}={value}");
        let count = if GOOD.contains(parameter) { 3 } else { 2 };
        assert_eq!(subscribe(&twice), Err(FormError::Repeated { parameter, count }));
    }
    assert_eq!(
        subscribe("&hub.secret=&hub.secret=x").unwrap_err().to_string(),
        "hub.secret is given 2 times: give it once"
    );
}

#[test]
fn d05_an_empty_secret_is_absent() {
    assert_eq!(subscribe("&hub.secret=").unwrap().secret, None);
    assert_eq!(subscribe("&hub.secret").unwrap().secret, None);
}

#[test]
fn w057_b03_a_secret_of_199_bytes_is_read_and_one_of_200_refused() {
    assert!(subscribe(&format!("&hub.secret={}", "k".repeat(199))).unwrap().secret.is_some());
    assert!(subscribe(&format!("&hub.secret={}", "%41".repeat(199))).unwrap().secret.is_some());
    for long in ["k".repeat(200), "%C3%BC".repeat(100)] {
        assert_eq!(
            subscribe(&format!("&hub.secret={long}")).unwrap_err().to_string(),
            "hub.secret: the secret has 200 bytes: it may have at most 199, counted in UTF-8"
        );
    }
}

#[test]
fn c04_c05_topics_of_both_names_are_united_and_each_is_named_once() {
    assert_eq!(publish("&hub.url=http://s.example/1").unwrap(), ["http://s.example/1"]);
    assert_eq!(publish("&hub.topic=http://s.example/1").unwrap(), ["http://s.example/1"]);
    assert_eq!(
        publish(
            "&hub.topic=http://s.example/2&hub.url=http://s.example/~1&hub.url=http://s.example/%257E1\
             &hub.url=&hub.topic=http://s.example/~1&hub.url=http://s.example/3&hub.callback=nonsense"
        )
        .unwrap(),
        ["http://s.example/2", "http://s.example/~1", "http://s.example/3"]
    );
}

#[test]
fn a_form_has_at_most_1000_parameters() {
    let fill = |count: usize| "&x=1".repeat(count - 3);
    assert!(subscribe(&fill(MAX_PARAMETERS)).is_ok());
    assert_eq!(subscribe(&fill(1001)), Err(FormError::TooManyParameters { found: 1001 }));
}

#[test]
fn a_ping_of_too_many_topics_is_refused_before_any_of_them_is_read() {
    let ping = |count: usize| {
        let topics = "&hub.url=nonsense&hub.topic=ftp://s.example/".repeat(count);
        Request::parse_within(format!("hub.mode=publish&hub.url={topics}").as_bytes(), 4)
    };
    assert_eq!(ping(3), Err(FormError::TooManyTopics { found: 6, most: 4 }));
    assert!(matches!(ping(2), Err(FormError::Topic { parameter: "hub.url", .. })), "{:?}", ping(2));
    let subscribe = Request::parse_within(GOOD.as_bytes(), 0);
    assert!(matches!(subscribe, Ok(Request::Subscribe(_))), "it is about pings only: {subscribe:?}");
}

#[test]
fn a_secret_and_a_callback_are_not_in_debug() {
    let asked = subscribe("&hub.secret=s3cr3t").unwrap();
    let shown = format!("{:?}", Request::Subscribe(asked));
    assert!(!shown.contains("s3cr3t") && !shown.contains("/cb"), "{shown}");
}

#[test]
fn what_a_stranger_sent_is_shortened_and_escaped_in_an_error() {
    let error =
        Request::parse(format!("hub.mode=%1B%0A{}", "x".repeat(10_000)).as_bytes()).unwrap_err().to_string();
    assert!(error.len() < 250 && !error.contains(char::is_control), "{error}");
}

fn urls() -> impl Strategy<Value = String> {
    "https?://[a-z]{1,9}\\.example(:[1-9][0-9]{0,3})?(/[a-zA-Z0-9%~+&=;,üß€-]{0,12}){0,3}(\\?[a-z0-9&=+%ü]{0,20})?(#[a-z]{0,5})?"
}

fn topics() -> impl Strategy<Value = TopicUrl> {
    urls().prop_map(|text| TopicUrl::parse(&text).unwrap())
}

fn callbacks() -> impl Strategy<Value = CallbackUrl> {
    urls().prop_map(|text| CallbackUrl::parse(&text).unwrap())
}

fn secrets() -> impl Strategy<Value = Secret> {
    prop_oneof!["\\PC{1,49}", "[&=+% ]{1,199}"].prop_map(|text| Secret::new(text).unwrap())
}

proptest! {
    #[test]
    fn w042_printing_then_parsing_gives_the_same_subscribe(
        callback in callbacks(),
        topic in topics(),
        lease in prop::option::of(1..=u64::MAX),
        secret in prop::option::of(secrets()),
        token in prop::option::of("\\PC{1,100}"),
    ) {
        let verify_token = token.map(|text| VerifyToken::new(&text).unwrap());
        let sent = Subscribe { callback, topic, lease, secret, verify_token };
        let body = sent.to_form();
        prop_assert!(body.is_ascii());
        let Ok(Request::Subscribe(read)) = Request::parse(body.as_bytes()) else { panic!("{body}") };
        prop_assert_eq!(read.callback.as_str(), sent.callback.as_str());
        prop_assert_eq!(read.topic.as_str(), sent.topic.as_str());
        prop_assert_eq!(read, sent);
    }

    #[test]
    fn printing_then_parsing_gives_the_same_unsubscribe(callback in callbacks(), topic in topics()) {
        let sent = Unsubscribe { callback, topic, verify_token: None };
        prop_assert_eq!(Request::parse(sent.to_form().as_bytes()), Ok(Request::Unsubscribe(sent)));
    }

    #[test]
    fn c04_printing_then_parsing_gives_the_same_topics(topics in prop::collection::btree_set(topics(), 1..9)) {
        let sent = Publish { topics: topics.into_iter().collect() };
        prop_assert_eq!(Request::parse(sent.to_form().as_bytes()), Ok(Request::Publish(sent)));
    }

    #[test]
    fn no_bytes_make_parsing_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Request::parse(&body);
    }

    #[test]
    fn no_form_makes_parsing_panic_and_every_error_is_short(
        body in "(hub\\.(mode|topic|callback|url|secret|lease_seconds)=(subscribe|publish|https?://[a-z./%0-9]{0,9}|[0-9]{0,30}|%[0-9A-F]{2}|\\PC{0,300})&){0,9}",
    ) {
        if let Err(error) = Request::parse(body.as_bytes()) {
            prop_assert!(error.to_string().len() < 1000);
        }
    }
}
