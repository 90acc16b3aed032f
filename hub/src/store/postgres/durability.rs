//! Whether the database keeps what it acknowledges: by its settings whenever a connection is made, and by what standbys have.

use super::session::State;
use crate::config::Durability;
use crate::store::{KnownDurability, Result, StoreError};

/// Whether a standby on which commits wait has what was written up to there, and of how many this role may not see that.
pub(super) const PROOF: &str = "
SELECT bool_or(r.flush_lsn >= $1::text::pg_lsn) FILTER (WHERE r.sync_state IN ('sync', 'quorum')) AS has_it,
    count(*) FILTER (WHERE r.sync_state IS NULL) AS hidden
FROM pg_stat_replication r";

/// Why one cannot be used whose commits wait for none.
pub(super) const NO_STANDBY: &str = "its commits wait for no standby, so it loses acknowledged notifications with its disk: set \
     synchronous_standby_names (Patroni: synchronous_mode and synchronous_mode_strict), or [store] durability = \"declared\" where its \
     storage is shared by all servers, so that a failover loses nothing";

/// What the settings of a server promise.
///
/// # Errors
/// [`StoreError::NotDurable`], which says what to change.
pub(super) fn check(state: State, expected: Durability) -> Result<()> {
    let lacks = if !state.syncs {
        "fsync is off, so a power cut can lose everything: switch it on"
    } else if !state.whole_pages {
        "full_page_writes is off, so a power cut can damage it: switch it on"
    } else if expected == Durability::Proven && !state.names_standbys {
        NO_STANDBY
    } else {
        return Ok(());
    };
    Err(StoreError::NotDurable(lacks.to_owned()))
}

/// What the standbys of a server prove.
///
/// # Errors
/// As [`check`].
pub(super) fn judge(has_it: Option<bool>, hidden: i64) -> Result<()> {
    let lacks = match has_it {
        Some(true) => return Ok(()),
        Some(false) => "no synchronous standby has what it acknowledged: look at pg_stat_replication",
        None if hidden > 0 => {
            "the hub may not see what its standbys have: GRANT pg_monitor to the hub's role"
        }
        None => "no synchronous standby is connected to it: look at pg_stat_replication",
    };
    Err(StoreError::NotDurable(lacks.to_owned()))
}

/// How it is known by now, after the last look (`health`).
pub(super) fn known(expected: Durability, health: &Result<()>) -> KnownDurability {
    match (expected, health) {
        (_, Err(StoreError::NotDurable(_))) => KnownDurability::Missing,
        (Durability::Proven, _) => KnownDurability::Proven,
        (Durability::Declared, _) => KnownDurability::Declared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(syncs: bool, whole_pages: bool, names_standbys: bool) -> State {
        State { syncs, whole_pages, names_standbys, ..State::unknown() }
    }

    #[test]
    fn a_server_is_refused_for_what_it_can_lose_unless_that_is_declared() {
        use Durability::{Declared, Proven};
        for (state, expected, word) in [
            (settings(true, true, true), Proven, None),
            (settings(true, true, false), Declared, None),
            (settings(true, true, false), Proven, Some("synchronous_standby_names")),
            (settings(false, true, true), Declared, Some("fsync")),
            (settings(true, false, true), Declared, Some("full_page_writes")),
        ] {
            let told = check(state, expected).err().as_ref().map(ToString::to_string);
            assert_eq!(told.is_some(), word.is_some(), "{told:?}");
            assert!(told.unwrap_or_default().contains(word.unwrap_or_default()));
        }
    }

    #[test]
    fn what_is_found_to_be_missing_counts_more_than_what_was_proven_or_is_declared() {
        let away = || Err(StoreError::Away("gone".to_owned()));
        let missing = || Err(StoreError::NotDurable("no standby".to_owned()));
        for (expected, health, found) in [
            (Durability::Proven, Ok(()), KnownDurability::Proven),
            (Durability::Proven, away(), KnownDurability::Proven),
            (Durability::Proven, missing(), KnownDurability::Missing),
            (Durability::Declared, Ok(()), KnownDurability::Declared),
            (Durability::Declared, missing(), KnownDurability::Missing),
        ] {
            assert_eq!(known(expected, &health), found, "{health:?}");
        }
    }

    #[test]
    fn a_standby_proves_it_by_having_it() {
        assert!(judge(Some(true), 0).is_ok());
        for (has_it, hidden, word) in
            [(Some(false), 0, "acknowledged"), (None, 1, "pg_monitor"), (None, 0, "connected")]
        {
            let told = judge(has_it, hidden).unwrap_err().to_string();
            assert!(told.contains(word), "{told}");
        }
    }
}
