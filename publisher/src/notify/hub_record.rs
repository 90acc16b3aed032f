//! What the state records of a hub: what it accepted, why it failed, what was omitted for it, and when it is given up.

use std::{ops::Range, path::Path};

use resync_core::{datetime::DateTime, document::Capability};

use super::{HubUpdate, LEAVING, Outcome, Posted};
use crate::{
    error::{Action, Error},
    helpers::files,
    outbox,
    settings::HubUrl,
    state::{self, Acknowledgement, HubRecord, Lock, State, Trouble, lock_hub},
};

/// Records why a hub cannot be notified, for `status`.
pub(super) fn record_trouble(lock: &Lock, hub: &HubUrl, error: &Error) {
    let reason = error.to_string();
    let recorded = State::load(lock.out()).and_then(|mut state| {
        let Some(record) = state.hubs.get_mut(hub) else { return Ok(()) };
        if record.trouble.as_ref().is_some_and(|trouble| trouble.reason == reason) {
            return Ok(());
        }
        let refused = record.trouble.as_ref().and_then(|trouble| trouble.refused);
        record.trouble = Some(Trouble { refused, ..Trouble::after(record.trouble.as_ref(), reason) });
        state.save(lock)
    });
    if let Err(error) = recorded {
        tracing::debug!(%error, %hub, "cannot save why a hub was not notified");
    }
}

/// Records how the notification of a hub ended, in the state as it is by now: builds may have changed it meanwhile.
pub(super) fn settle(
    out: &Path,
    update: &HubUpdate,
    posted: &Posted,
    outcome: &Outcome,
) -> Result<(), Error> {
    if update.message.is_none() && update.waiting.is_empty() {
        return Ok(());
    }
    let lock = Lock::acquire(out)?;
    let mut state = State::load(out)?;
    let newest = state.outbox;
    let Some(record) = state.hubs.get_mut(&update.hub).filter(|record| record.topic == update.topic) else {
        return Ok(());
    };
    settle_changes(out, record, newest, update, posted, outcome);
    let given_up = match (outcome, &update.message) {
        (Outcome::NothingChanged, _) | (_, None) => false,
        (Outcome::Accepted { status }, Some(message)) => {
            record.acknowledged.clone_from(&update.documents);
            record.unconfirmed.clear();
            let key = message.key.clone();
            record.last = Some(Acknowledgement { at: DateTime::now(), status: *status, key });
            if is_newest(&state, update) {
                let path = state::notification_path(out);
                files::replace(&path, &message.body).map_err(Error::cannot(Action::Write, &path))?;
                state.notified_on = Some(message.topic.clone());
            }
            false
        }
        (Outcome::Failed(error), _) => {
            if !error.is_unanswered() {
                record.unconfirmed.clone_from(&update.unconfirmed_before);
            }
            record.removed.is_some_and(|removed| removed.duration_until(DateTime::now()) > LEAVING)
        }
    };
    if given_up {
        tracing::warn!(hub = %update.hub, "gave up notifying a former hub; its subscribers do not learn that the site no longer uses it");
    }
    if given_up || knows_of_removal(&state, &update.hub) {
        state.hubs.remove(&update.hub);
    }
    save_and_sweep(lock, state)
}

/// Records which Change Notifications were accepted or omitted, and why others were not accepted.
fn settle_changes(
    out: &Path,
    record: &mut HubRecord,
    newest: u64,
    update: &HubUpdate,
    posted: &Posted,
    outcome: &Outcome,
) {
    let refused = posted.failed.as_ref().filter(|error| error.is_final());
    let failed = match outcome {
        Outcome::Failed(error) => refused.or(Some(error)),
        _ => posted.failed.as_ref(),
    };
    let broken = posted.broken.as_ref().map(ToString::to_string);
    let reason = broken.or_else(|| failed.map(ToString::to_string));
    let Range { start: next, end } = update.still_waiting(posted);
    // A build may have omitted some meanwhile.
    let first = next.max(record.sent + 1);
    let kept = match reason {
        Some(_) => outbox::first_to_keep(out, first..end),
        None => first,
    };
    if !update.leaving {
        record.sent = record.sent.max(kept - 1);
    }
    let is_behind = record.sent < newest;
    record.trouble = if let Some(reason) = reason {
        let mut trouble = Trouble::after(record.trouble.as_ref(), reason);
        trouble.refused = refused.map(|_| next).filter(|number| *number >= kept);
        trouble.left_out += kept - first;
        Some(trouble)
    } else {
        // It accepts them, and more were omitted because it is slow.
        let before = record.trouble.take().filter(|before| is_behind && before.left_out > 0);
        before.map(|before| Trouble { reason: outbox::BEHIND.to_owned(), refused: None, ..before })
    };
}

/// Saves the state and removes the Change Notifications that every hub has accepted by then, in steps between which others may change the site.
fn save_and_sweep(mut lock: Lock, mut state: State) -> Result<(), Error> {
    let out = lock.out().to_owned();
    loop {
        let swept = outbox::sweep(&out, &state);
        if let Ok(swept) = &swept {
            swept.record(&mut state);
        }
        state.save(&lock)?;
        if swept.map_err(Error::cannot(Action::Write, &out))?.is_complete {
            return Ok(());
        }
        drop(lock);
        lock = Lock::acquire(&out)?;
        state = State::load(&out)?;
    }
}

/// Records that a hub accepted a Change Notification, before the next one is posted.
pub(super) fn record_sent(
    out: &Path,
    hub: &HubUrl,
    topic: &str,
    change_topic: String,
    number: u64,
    body: &[u8],
) -> Result<(), Error> {
    let lock = Lock::acquire(out)?;
    let mut state = State::load(out)?;
    let Some(record) = state.hubs.get_mut(hub).filter(|record| record.topic == topic) else { return Ok(()) };
    record.sent = record.sent.max(number);
    // Readers of the topic get the newest one, which another hub may have accepted long ago.
    if state.hubs.values().all(|record| record.sent <= number) {
        let path = state::change_notification_path(out);
        files::replace(&path, body).map_err(Error::cannot(Action::Write, &path))?;
        state.changes_on = Some(change_topic);
    }
    state.save(&lock)
}

/// Omits a Change Notification that hubs of the site in `out` have refused, so that those after it are posted; returns these hubs. Destinations see that
/// the next interval does not follow (CN-008), and read the Change List.
pub fn skip(out: &Path, number: u64) -> Result<Vec<HubUrl>, Error> {
    let has_refused =
        |record: &HubRecord| record.trouble.as_ref().is_some_and(|trouble| trouble.refused == Some(number));
    let hubs: Vec<_> = State::load(out)?.hubs.into_iter().filter(|(_, record)| has_refused(record)).collect();
    let mut skipped = Vec::new();
    for (hub, _) in hubs {
        let _of_hub = lock_hub(out, &hub)?;
        let lock = Lock::acquire(out)?;
        let mut state = State::load(out)?;
        if let Some(record) = state.hubs.get_mut(&hub).filter(|record| has_refused(record)) {
            record.sent = record.sent.max(number);
            record.trouble = None;
            save_and_sweep(lock, state)?;
            skipped.push(hub);
        }
    }
    Ok(skipped)
}

/// Drops a hub of the site in `out` that the settings no longer name: what waits for it is discarded, and [`notify()`](super::notify()) notifies it once
/// more, so that its subscribers find the new hubs. Returns how many Change Notifications are discarded; `None` if the site has no such hub.
pub fn drop_hub(out: &Path, hub: &HubUrl) -> Result<Option<u64>, Error> {
    let unnamed = || -> Result<State, Error> {
        let state = State::load(out)?;
        if state.settings.hubs.contains(hub) {
            return Err(Error::StillNamed { hub: hub.to_string(), out: out.to_owned() });
        }
        Ok(state)
    };
    if !unnamed()?.hubs.contains_key(hub) {
        return Ok(None);
    }
    let _of_hub = lock_hub(out, hub)?;
    let lock = Lock::acquire(out)?;
    let mut state = unnamed()?;
    let Some(mut record) = state.hubs.remove(hub) else { return Ok(None) };
    let discarded = state.waiting_for(&record).count() as u64;
    record.removed.get_or_insert_with(DateTime::now);
    if record.notified().next().is_some() {
        state.hubs.insert(hub.clone(), record);
    }
    save_and_sweep(lock, state)?;
    Ok(Some(discarded))
}

/// Whether no other hub acknowledged a newer version of a document.
fn is_newest(state: &State, update: &HubUpdate) -> bool {
    let others =
        state.hubs.iter().filter(|(hub, record)| **hub != update.hub && record.topic == update.topic);
    others.into_iter().all(|(_, record)| {
        record
            .acknowledged
            .iter()
            .all(|(url, newest)| update.documents.get(url).is_none_or(|sent| sent.version >= newest.version))
    })
}

/// Whether a former hub acknowledged the present Capability List, which no longer names it.
fn knows_of_removal(state: &State, hub: &HubUrl) -> bool {
    let Some(record) = state.hubs.get(hub).filter(|record| record.removed.is_some()) else {
        return false;
    };
    match state.document(&Capability::CapabilityList) {
        Some(list) => record.acknowledged.get(&list.url).is_some_and(|known| known.version == list.version),
        // The set itself is retired, and with it its list.
        None if state.retired.is_some() => {
            record.notified().all(|(_, document)| document.capability != Capability::CapabilityList)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, time::Duration};

    use super::*;
    use crate::{
        notify::{PostError, message::Message},
        settings::{BaseUrl, Settings},
        state::{NotifiedDocument, Part, Totals},
    };

    const TOPIC: &str = "http://example.org/resync/framework/";

    fn hub() -> HubUrl {
        HubUrl::parse("http://hub.example.org/websub/").unwrap()
    }

    /// A site with this record of its hub, and this number of Change Notifications.
    fn save(out: &Path, record: HubRecord, outbox: u64) {
        let settings = Settings::new("/x", BaseUrl::parse("http://example.org/").unwrap());
        let mut state =
            State::new(settings, Totals::default(), Vec::new(), BTreeMap::from([(hub(), record)]));
        state.outbox = outbox;
        state.save(&Lock::acquire(out).unwrap()).unwrap();
    }

    fn update(waiting: Range<u64>) -> HubUpdate {
        HubUpdate {
            hub: hub(),
            authorization: None,
            leaving: false,
            changes: Vec::new(),
            topic: TOPIC.into(),
            waiting,
            change_topic: String::new(),
            change_links: String::new(),
            message: None,
            documents: BTreeMap::new(),
            unconfirmed_before: BTreeMap::new(),
        }
    }

    #[test]
    fn what_was_omitted_for_a_slow_hub_is_shown_until_it_has_caught_up() {
        let out = tempfile::tempdir().unwrap();
        let trouble = Trouble { left_out: 3, ..Trouble::after(None, "it was away".to_owned()) };
        save(out.path(), HubRecord { sent: 3, trouble: Some(trouble), ..HubRecord::new(TOPIC) }, 6);
        let after = |waiting: Range<u64>| {
            let posted = Posted { sent: 1, reached: waiting.end - 1, ..Posted::default() };
            settle(out.path(), &update(waiting), &posted, &Outcome::NothingChanged).unwrap();
            let state = State::load(out.path()).unwrap();
            state.hubs[&hub()].trouble.as_ref().map(|trouble| (trouble.left_out, trouble.reason.clone()))
        };
        assert_eq!(after(4..6), Some((3, outbox::BEHIND.to_owned())));
        assert_eq!(after(6..7), None);
    }

    #[test]
    fn what_a_build_omitted_while_a_hub_was_notified_is_not_counted_twice() {
        let out = tempfile::tempdir().unwrap();
        let trouble = Trouble { left_out: 4, ..Trouble::after(None, "it was away".to_owned()) };
        save(out.path(), HubRecord { sent: 7, trouble: Some(trouble), ..HubRecord::new(TOPIC) }, 9);
        fs::create_dir(out.path().join(".resync-source/outbox")).unwrap();
        for number in 8..10 {
            fs::write(outbox::path(out.path(), number), "").unwrap();
        }
        let refused = PostError::TooLong {
            status: http::StatusCode::PAYLOAD_TOO_LARGE,
            text: String::new(),
            length: 1,
        };
        let posted = Posted { failed: Some(refused.clone()), ..Posted::default() };
        settle(out.path(), &update(4..9), &posted, &Outcome::Failed(refused)).unwrap();
        let record = State::load(out.path()).unwrap().hubs[&hub()].clone();
        let trouble = record.trouble.unwrap();
        assert_eq!((record.sent, trouble.left_out, trouble.refused), (7, 4, None), "it refused number 4");
    }

    #[test]
    fn what_a_hub_may_have_accepted_stays_unconfirmed_and_what_it_has_refused_does_not() {
        let out = tempfile::tempdir().unwrap();
        let documents = |version| {
            let document =
                NotifiedDocument { capability: Capability::ResourceList, part: Part::Whole, version };
            BTreeMap::from([("http://example.org/resync/resourcelist.xml".to_owned(), document)])
        };
        let unconfirmed_after = |error: PostError| {
            save(out.path(), HubRecord { unconfirmed: documents(2), ..HubRecord::new(TOPIC) }, 0);
            let (links, key, body) = (String::new(), String::new(), Vec::new());
            let message = Some(Message { topic: TOPIC.into(), links, key, body });
            let update = HubUpdate { message, unconfirmed_before: documents(1), ..update(0..0) };
            settle(out.path(), &update, &Posted::default(), &Outcome::Failed(error)).unwrap();
            State::load(out.path()).unwrap().hubs[&hub()].unconfirmed.clone()
        };
        let refused = |status| PostError::Refused { status, text: String::new(), retry_after: None };
        assert_eq!(unconfirmed_after(PostError::NoAnswer { reason: "cut off".into() }), documents(2));
        assert_eq!(unconfirmed_after(refused(http::StatusCode::BAD_GATEWAY)), documents(2));
        assert_eq!(unconfirmed_after(refused(http::StatusCode::BAD_REQUEST)), documents(1));
        assert_eq!(unconfirmed_after(PostError::Unreachable { reason: "no route".into() }), documents(1));
    }

    #[test]
    fn a_former_hub_that_stays_unreachable_is_given_up_after_a_week_and_not_before() {
        let out = tempfile::tempdir().unwrap();
        let after = |removed: DateTime| {
            save(out.path(), HubRecord { removed: Some(removed), ..HubRecord::new(TOPIC) }, 0);
            let (links, key, body) = (String::new(), String::new(), Vec::new());
            let message = Some(Message { topic: TOPIC.into(), links, key, body });
            let update = HubUpdate { leaving: true, message, ..update(0..0) };
            let away = Outcome::Failed(PostError::Unreachable { reason: "no route".into() });
            settle(out.path(), &update, &Posted::default(), &away).unwrap();
            State::load(out.path()).unwrap().hubs.len()
        };
        let days_ago = |days: u32| {
            DateTime::from_system_time(
                std::time::SystemTime::now() - days * Duration::from_secs(24 * 60 * 60),
            )
        };
        assert_eq!(after(days_ago(6)), 1);
        assert_eq!(after(days_ago(8)), 0);
    }
}
