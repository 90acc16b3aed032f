//! A scenario out of its text, or every mistake in it.

use std::time::Duration;

use resync_common::config::{Keys, Mistake, Source, plain, whole as count};
use toml::de::DeValue;

use super::reader::{Amounts as _, duration, size};
use super::{
    Audience, Behaviour, By, Churn, Expect, Fault, FaultKind, Pace, Pattern, Publishing, Receivers, Scenario,
    Spell, When,
};

const MOST_SUBSCRIBERS: u64 = 2_000_000;
const MOST_HOSTS: u64 = 60_000;
const MOST_RATE: f64 = 1e6;
/// A notification names its run, number and moment.
const LEAST_PAYLOAD: u64 = 64;
const MOST_PAYLOAD: u64 = 1 << 20;

pub(super) fn scenario(name: &str, text: &str) -> Result<Scenario, Vec<Mistake>> {
    let source = Source::new(text);
    let read = source.parse().and_then(|table| read(name, Keys::new(&source, &table)));
    let mistakes = source.mistakes();
    match read {
        Some(scenario) if mistakes.is_empty() => Ok(scenario),
        _ => Err(mistakes),
    }
}

fn read(name: &str, keys: Keys<'_, '_>) -> Option<Scenario> {
    let about = keys.text("about");
    let about = keys.required("about", about, "say in a line what the scenario is for");
    let (seed, duration) = (keys.count("seed", 0, u64::MAX), keys.duration("duration"));
    let duration = keys.required("duration", duration, "say how long is published, such as \"30s\"");
    let (warmup, patience) = (keys.duration("warmup"), keys.duration("patience"));
    let audience = keys.section("audience").map(audience);
    let audience = keys.required("audience", audience, "write [audience] with topics and subscribers");
    let publish = keys.section("publish").map(publishing);
    let publish = keys.required("publish", publish, "write [publish] with a pattern");
    let receivers: Vec<_> = keys.sections("receivers").into_iter().map(receivers).collect();
    let shares: f64 = receivers.iter().flatten().map(|one| one.share).sum();
    if shares > 1.000_001 {
        keys.wrong("receivers", format!("the shares of all receivers come to {shares:.3}: at most 1"));
    }
    let churn = keys.section("churn").map_or_else(Churn::default, churn);
    let hub = keys.section("hub").map(|keys| hub(&keys)).unwrap_or_default();
    let faults: Vec<_> = keys.sections("fault").into_iter().map(fault).collect();
    if let Some(Some(audience)) = &audience {
        let needs_names =
            |fault: &Fault| matches!(fault.kind, FaultKind::ResolverFails | FaultKind::ResolverSilent);
        if !audience.named && faults.iter().flatten().any(needs_names) {
            keys.wrong(
                "fault",
                "a fault of the resolver needs callbacks with names: set audience.named = true",
            );
        }
    }
    let expect = keys.section("expect").map(Expect::read).unwrap_or_default();
    keys.finish();
    Some(Scenario {
        name: name.to_owned(),
        about: about?,
        seed: seed.unwrap_or(1),
        duration: duration?,
        warmup: warmup.unwrap_or(Duration::ZERO),
        patience: patience.unwrap_or(Duration::from_secs(10)),
        audience: audience??,
        publish: publish??,
        receivers: receivers.into_iter().collect::<Option<_>>()?,
        churn,
        hub,
        faults: faults.into_iter().collect::<Option<_>>()?,
        expect,
    })
}

fn audience(keys: Keys<'_, '_>) -> Option<Audience> {
    let topics = whole(keys.count("topics", 1, 1_000_000)).unwrap_or(1);
    let what = format!("a whole number from 1 to {MOST_SUBSCRIBERS}, or a list of such numbers (a ladder)");
    let subscribers = keys.read("subscribers", &what, |value| {
        let one =
            |value: &DeValue<'_>| whole(count(value).filter(|count| (1..=MOST_SUBSCRIBERS).contains(count)));
        match value.as_array() {
            Some(all) if !all.is_empty() => all.iter().map(|value| one(value.get_ref())).collect(),
            Some(_) => None,
            None => Some(vec![one(value)?]),
        }
    });
    let subscribers =
        keys.required("subscribers", subscribers, "say how many subscriptions there are in all");
    let hosts = whole(keys.count("hosts", 1, MOST_HOSTS)).unwrap_or(100);
    let named = keys.flag("named").unwrap_or(false);
    keys.finish();
    Some(Audience { topics, subscribers: subscribers?, hosts, named })
}

fn publishing(keys: Keys<'_, '_>) -> Option<Publishing> {
    let by = keys.word("by", &[("content", By::Content), ("ping", By::Ping)]).unwrap_or(By::Content);
    let pace = pace(&keys);
    let what = "a size from 64 B to 1 MiB such as \"1 KiB\", or a list of the smallest and the largest";
    let payload = keys.read("payload", what, |value| {
        let one = |value| whole(size(value).filter(|size| (LEAST_PAYLOAD..=MOST_PAYLOAD).contains(size)));
        match value.as_array().map(|all| all.iter().map(toml::Spanned::get_ref).collect::<Vec<_>>()) {
            Some(all) => match all[..] {
                [from, to] => Some((one(from)?, one(to)?)).filter(|(from, to)| from <= to),
                _ => None,
            },
            None => one(value).map(|both| (both, both)),
        }
    });
    let connections = keys.count("connections", 1, 10_000).and_then(|count| usize::try_from(count).ok());
    keys.finish();
    Some(Publishing {
        by,
        pace: pace?,
        payload: payload.unwrap_or((1_000, 1_000)),
        connections: connections.unwrap_or(64),
    })
}

fn pace(keys: &Keys<'_, '_>) -> Option<Pace> {
    let words = [("steady", 0), ("poisson", 1), ("burst", 2)];
    let word = keys.word("pattern", &words);
    let word = keys.required("pattern", word, "\"steady\", \"poisson\" or \"burst\"")?;
    if word == 2 {
        let (size, every) = (whole(keys.count("size", 1, 10_000_000)), keys.duration("every"));
        let size = keys.required("size", size, "say how many notifications are due at once");
        let every = every.filter(|every| !every.is_zero()).unwrap_or(Duration::MAX);
        return size.map(|size| Pace::Given(Pattern::Burst { size, every }));
    }
    let (rate, share) = (keys.number("rate", 0.001, MOST_RATE), keys.number("share", 0.01, 1.0));
    if keys.has("share") {
        if keys.has("rate") || word != 0 {
            keys.wrong(
                "share",
                "publish.share stands in place of publish.rate, and with pattern = \"steady\" only",
            );
        }
        return share.map(Pace::Share);
    }
    let what = "say how many notifications a second are due over all topics, or, where they are steady, share = 0.7 of what the hub can do";
    let rate = keys.required("rate", rate, what);
    rate.map(|rate| Pace::Given(if word == 0 { Pattern::Steady(rate) } else { Pattern::Poisson(rate) }))
}

#[derive(Clone, Copy)]
enum Manner {
    Well,
    Slow,
    Drip,
    Hang,
    Status(u16, u16),
    Busy,
    Flapping,
    Gone,
    Redirect,
}

const MANNERS: [(&str, Manner); 10] = [
    ("ok", Manner::Well),
    ("slow", Manner::Slow),
    ("drip", Manner::Drip),
    ("hang", Manner::Hang),
    ("4xx", Manner::Status(400, 403)),
    ("5xx", Manner::Status(500, 503)),
    ("429", Manner::Busy),
    ("flapping", Manner::Flapping),
    ("410", Manner::Gone),
    ("redirect", Manner::Redirect),
];

fn receivers(keys: Keys<'_, '_>) -> Option<Receivers> {
    let share = keys.number("share", 0.0, 1.0);
    let share = keys.required("share", share, "say which part of the hosts is so, from 0 to 1");
    let manner = keys.word("behaviour", &MANNERS);
    let manner = keys.required("behaviour", manner, "say how they answer, such as \"slow\" or \"hang\"");
    let fraction = |usual| keys.number("fraction", 0.0, 1.0).unwrap_or(usual);
    let time = |key, usual| keys.duration(key).unwrap_or(usual);
    let behaviour = manner.map(|manner| match manner {
        Manner::Well => Behaviour::Well,
        Manner::Slow => Behaviour::Slow(spell(&keys)),
        Manner::Drip => Behaviour::Drip(time("time", Duration::from_secs(2))),
        Manner::Hang => Behaviour::Hang,
        Manner::Status(class, usual) => {
            let status = keys.count("status", class.into(), u64::from(class) + 99);
            let status = status.and_then(|status| u16::try_from(status).ok()).unwrap_or(usual);
            Behaviour::Status { status, fraction: fraction(1.0) }
        }
        Manner::Busy => Behaviour::Busy {
            retry_after: time("retry_after", Duration::from_secs(1)),
            fraction: fraction(0.5),
        },
        Manner::Flapping => Behaviour::Flapping {
            up: time("up", Duration::from_secs(5)),
            down: time("down", Duration::from_secs(1)),
        },
        Manner::Gone => Behaviour::Gone,
        Manner::Redirect => Behaviour::Redirect,
    });
    keys.finish();
    Some(Receivers { share: share?, behaviour: behaviour? })
}

fn spell(keys: &Keys<'_, '_>) -> Spell {
    let what = "a time, a list of the shortest and the longest, or { mean = \"200ms\" }";
    let spell = keys.read("time", what, |value| {
        if let Some(one) = duration(value) {
            return Some(Spell::Uniform(one, one));
        }
        if let Some(table) = value.as_table() {
            return Some(Spell::Mean(duration(table.get("mean")?.get_ref())?)).filter(|_| table.len() == 1);
        }
        let all: Vec<_> = value.as_array()?.iter().filter_map(|one| duration(one.get_ref())).collect();
        match all[..] {
            [from, to] if from <= to => Some(Spell::Uniform(from, to)),
            _ => None,
        }
    });
    spell.unwrap_or(Spell::Mean(Duration::from_millis(200)))
}

fn churn(keys: Keys<'_, '_>) -> Churn {
    let rate = |key| keys.number(key, 0.0, 10_000.0).unwrap_or(0.0);
    let (lease, renewals, comers) = (keys.duration("lease"), rate("renewals"), rate("comers"));
    let stay = keys.duration("stay").unwrap_or(Duration::from_secs(5));
    keys.finish();
    Churn { lease, renewals, comers, stay }
}

/// Dotted names become those of environment variables.
fn hub(keys: &Keys<'_, '_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (key, value) in keys.all() {
        match variable(value) {
            Some(text) => found.push((key.replace('.', "_").to_uppercase(), text)),
            None => keys.wrong(key, format!(
                "hub.{key}: write dotted keys in quotes, such as \"delivery.schedule\" = [\"1s\"]; values are text, \
                 numbers, true, false, or lists of text"
            )),
        }
    }
    found
}

fn variable(value: &DeValue<'_>) -> Option<String> {
    let Some(list) = value.as_array() else { return plain(value) };
    let items: Option<Vec<_>> = list
        .iter()
        .map(|item| {
            item.get_ref().as_str().map(|text| format!("\"{text}\"")).or_else(|| plain(item.get_ref()))
        })
        .collect();
    Some(format!("[{}]", items?.join(", ")))
}

/// A fault of which only the kind is known.
#[derive(Clone, Copy)]
enum Named {
    Whole(FaultKind),
    Share(fn(f64) -> FaultKind, f64),
    Jump,
    Poison,
}

const FAULTS: [(&str, Named); 11] = [
    ("kill", Named::Whole(FaultKind::Kill)),
    ("pause", Named::Whole(FaultKind::Pause)),
    ("full-disk", Named::Whole(FaultKind::FullDisk)),
    ("failing-writes", Named::Share(FaultKind::FailingWrites, 0.2)),
    ("clock-jump", Named::Jump),
    ("outage", Named::Share(FaultKind::Outage, 0.1)),
    ("mass-renewal", Named::Whole(FaultKind::MassRenewal)),
    ("poison", Named::Poison),
    ("resolver-fails", Named::Whole(FaultKind::ResolverFails)),
    ("resolver-silent", Named::Whole(FaultKind::ResolverSilent)),
    ("failover", Named::Whole(FaultKind::Failover)),
];

fn fault(keys: Keys<'_, '_>) -> Option<Fault> {
    let named = keys.word("kind", &FAULTS);
    let named = keys.required("kind", named, "say what happens, such as \"kill\" or \"outage\"");
    let kind = match named {
        Some(Named::Whole(kind)) => Some(kind),
        Some(Named::Share(kind, usual)) => Some(kind(keys.number("share", 0.0, 1.0).unwrap_or(usual))),
        Some(Named::Jump) => {
            let by = keys.read("by", "a time such as \"1h\" or \"-1h\"", jump);
            keys.required("by", by, "say by how much, such as \"1h\" or \"-1h\"").map(FaultKind::ClockJump)
        }
        Some(Named::Poison) => {
            let status = keys.count("status", 300, 599).and_then(|status| u16::try_from(status).ok());
            Some(FaultKind::Poison(status.unwrap_or(400)))
        }
        None => None,
    };
    let lasting = keys.duration("for").unwrap_or(Duration::ZERO);
    let when = when(&keys);
    keys.finish();
    Some(Fault { kind: kind?, when: when?, lasting })
}

fn when(keys: &Keys<'_, '_>) -> Option<When> {
    let at = keys.read("at", "a time such as \"3s\", or a list of times", |value| match value.as_array() {
        Some(all) => all.iter().map(|one| duration(one.get_ref())).collect(),
        None => Some(vec![duration(value)?]),
    });
    let times = whole(keys.count("times", 1, 10_000));
    let between = keys.read("between", "a list of two times such as [\"1s\", \"9s\"]", |value| {
        let all: Option<Vec<_>> = value.as_array()?.iter().map(|one| duration(one.get_ref())).collect();
        match all?[..] {
            [from, to] if from <= to => Some((from, to)),
            _ => None,
        }
    });
    match (at, times, between) {
        (Some(at), None, None) => Some(When::At(at)),
        (None, Some(times), Some((from, to))) => Some(When::Random { times, from, to }),
        _ => {
            if !["at", "times", "between"].iter().any(|key| keys.has(key))
                || keys.has("at") && keys.has("times")
            {
                keys.wrong("at", "say when: either at = \"3s\", or times = 5 and between = [\"1s\", \"9s\"]");
            } else if keys.has("times") != keys.has("between") {
                keys.wrong(
                    "times",
                    "times and between belong together: times = 5, between = [\"1s\", \"9s\"]",
                );
            }
            None
        }
    }
}

fn jump(value: &DeValue<'_>) -> Option<i64> {
    let text = value.as_str()?;
    let (sign, time) = text.strip_prefix('-').map_or((1, text), |time| (-1, time));
    Some(sign * i64::try_from(humantime::parse_duration(time).ok()?.as_secs()).ok()?)
}

fn whole(count: Option<u64>) -> Option<u32> {
    count.and_then(|count| u32::try_from(count).ok())
}
