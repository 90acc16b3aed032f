//! Once a second a hub renews its word that it is up, looks at the clock of the database, and whether that still keeps what it acknowledges.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use resync_common::backoff::Backoff;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};
use tokio_postgres::types::ToSql;

use super::durability::{self, PROOF};
use super::line::Open;
use super::rows::{Fields, micros, the_only};
use super::shared::Shared;
use super::word::{LASTS, Word};
use crate::config::Durability;
use crate::store::Result;

const EVERY: Duration = Duration::from_secs(1);
/// For an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the standbys are looked at.
const PROVE_EVERY: Duration = Duration::from_secs(10);
/// How often tables are made and dropped by the database's clock, and how soon again where that failed: they are made days and hours ahead.
const HOUSEKEEP_EVERY: Duration = Duration::from_secs(600);
const HOUSEKEEP_AGAIN: Duration = Duration::from_secs(60);
/// How often it is looked what the store holds, where others change that too.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// For what is over to be dropped: it is looked whether anything in it stays.
const DROPPING: Duration = Duration::from_secs(60);
/// Pauses while the database is away.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A computer's clock that is further from the database's is worth a word.
const SKEWED: i64 = 2_000;

const BEAT: &str =
    "SELECT now, lsn, has_others, era, beats FROM hub.beat_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const MAKE_PARTS: &str = "SELECT hub.make_parts_1()";
const HOUSEKEEP: &str = "SELECT part, only_empty FROM hub.housekeep_2($1, $2)";
const DROP_OVER: &str = "SELECT hub.drop_over_1($1, $2, $3, $4)";
const LEAVE: &str = "SELECT hub.leave_1($1, $2, $3)";

/// What has to be done next, and when.
#[derive(Debug)]
pub(super) struct Heartbeat {
    shared: Arc<Shared>,
    /// The connection that was used last.
    open: Option<Arc<Open>>,
    prove_at: Instant,
    /// By the database's clock, since this computer may have slept meanwhile.
    housekeep_at: Option<SystemTime>,
    refresh_at: Instant,
    is_skewed: bool,
    /// How far the database is, as it was begun last to be written down.
    saving: Option<JoinHandle<()>>,
}

impl Heartbeat {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            open: None,
            prove_at: Instant::now(),
            housekeep_at: None,
            // Opening the store has looked.
            refresh_at: Instant::now() + REFRESH_EVERY,
            is_skewed: false,
            saving: None,
        }
    }

    /// Goes on until the store is closed; then others may have what was this hub's at once.
    pub(super) async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        let mut backoff = Backoff::new(FIRST_PAUSE, EVERY);
        while !*stop.borrow() {
            let beat = self.beat().await;
            self.shared.common.health.note(&beat);
            if beat.is_err() {
                self.shared.word.interrupt();
            }
            let pause = if beat.is_ok() {
                backoff.reset();
                EVERY
            } else {
                backoff.after_failure()
            };
            tokio::select! {
                () = sleep(pause) => {}
                changed = stop.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
            }
        }
        let leaving = self.shared.heartbeat.write_now(LEAVE, &[&self.shared.node], PATIENCE).await;
        if let Err(error) = leaving {
            tracing::debug!(%error, "the database was not told that this hub stops");
        }
        if let Some(saving) = self.saving.take() {
            // It has said itself what went wrong.
            let _ = saving.await;
        }
        self.shared.common.save_history().await;
    }

    /// Renews the word of this hub, and looks at what is due.
    pub(super) async fn beat(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let line = &shared.heartbeat;
        // Before the clock is looked at, and whatever is known of the database: this is who finds out.
        let open = line.open_now().await?;
        if let Err(error) = shared.common.history.heed() {
            // Another one finds out whether it has leaped.
            line.give_up(&open).await;
            return Err(error);
        }
        if self.open.as_ref().is_some_and(|known| !Arc::ptr_eq(known, &open)) {
            shared.word.interrupt();
        }
        self.open = Some(open);
        let (name, version) = (host_name(), env!("CARGO_PKG_VERSION"));
        let (before, began) = (SystemTime::now(), Word::begin());
        let (lasts, is_drained) = (micros(LASTS), shared.is_drained());
        let noted = shared.keys.noted();
        let keys: Vec<_> = shared.keys().ids().map(|key| key.as_bytes().to_vec()).collect();
        let (are_noted, folder) = (noted.is_some(), shared.common.history.folder());
        let word: [&(dyn ToSql + Sync); 8] =
            [&shared.node, &name, &version, &lasts, &is_drained, &keys, &are_noted, &folder];
        let beat = line.write_now(BEAT, &word, PATIENCE).await?;
        drop(noted);
        let after = SystemTime::now();
        shared.word.give(began);
        let fields = Fields::of("nodes", the_only(&beat)?);
        let theirs = fields.get("now")?;
        self.follow_clock(before, theirs, after);
        let has_others = fields.flag("has_others")?;
        shared.hints.set_others(has_others);
        self.refresh_usage(has_others);
        let lsn = fields.text("lsn")?;
        shared.common.history.note(fields.get("era")?, fields.get("beats")?);
        if Instant::now() >= self.prove_at {
            if shared.common.durability == Durability::Proven {
                let proof = line.read_now(PROOF, &[&lsn], PATIENCE).await?;
                let proof = Fields::of("standbys", the_only(&proof)?);
                durability::judge(proof.get("has_it")?, proof.get("hidden")?)?;
            }
            self.prove_at = Instant::now() + PROVE_EVERY;
            self.save_history();
        }
        self.housekeep(theirs).await;
        Ok(())
    }

    /// Remembers how far the database is. Beside the heartbeat: the disk of this computer may be slow.
    fn save_history(&mut self) {
        if self.saving.as_ref().is_none_or(JoinHandle::is_finished) {
            let common = Arc::clone(&self.shared.common);
            self.saving = Some(spawn_blocking(move || common.history.save()));
        }
    }

    /// Makes the tables that will be needed before anything else is written, where that is due. Those that are over are dropped beside it: that
    /// may take longer than the word of this hub lasts.
    async fn housekeep(&mut self, now: SystemTime) {
        // Opening the store has made them.
        let due = *self.housekeep_at.get_or_insert(now + HOUSEKEEP_EVERY);
        // It is later than it ever is where the clock was set back.
        if now < due && due <= now + HOUSEKEEP_EVERY {
            return;
        }
        let made = self.shared.heartbeat.read_now(MAKE_PARTS, &[], PATIENCE).await;
        if let Err(error) = &made {
            tracing::warn!(%error, "the tables of the days to come were not made");
        }
        self.housekeep_at = Some(now + if made.is_ok() { HOUSEKEEP_EVERY } else { HOUSEKEEP_AGAIN });
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(error) = drop_what_is_over(&shared).await {
                tracing::warn!(%error, "the tables of days that are over were not dropped");
            }
        });
    }

    /// Looks what the store holds where that is due, beside the heartbeat: of several hubs only the one that trims the log looks by itself.
    fn refresh_usage(&mut self, has_others: bool) {
        if !has_others || Instant::now() < self.refresh_at {
            return;
        }
        self.refresh_at = Instant::now() + REFRESH_EVERY;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(error) = shared.refresh_usage().await {
                tracing::debug!(%error, "what the store holds was not looked at");
            }
        });
    }

    fn follow_clock(&mut self, before: SystemTime, theirs: SystemTime, after: SystemTime) {
        let clock = &self.shared.clock;
        clock.follow(before, theirs, after);
        let ahead = clock.is_ahead_by();
        let is_skewed = ahead.abs() > SKEWED;
        if is_skewed && !self.is_skewed {
            tracing::warn!(
                milliseconds = ahead,
                "the database's clock is so far ahead of this computer's (below 0: behind); the hub goes by it"
            );
        }
        self.is_skewed = is_skewed;
    }
}

/// Drops the tables that are over, each by a command of its own: from a drop until its commit nobody writes or reads the whole.
async fn drop_what_is_over(shared: &Shared) -> Result<()> {
    for row in shared.retention.write(HOUSEKEEP, &[], DROPPING).await? {
        let fields = Fields::of("tables", &row);
        let (part, only_empty) = (fields.text("part")?, fields.flag("only_empty")?);
        let dropped = shared.retention.write(DROP_OVER, &[&part, &only_empty], DROPPING).await;
        // One that takes too long must not keep the others.
        if let Err(error) = dropped {
            tracing::warn!(%error, part, "a table that is over was not dropped");
        }
    }
    Ok(())
}

/// What people call this computer.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
