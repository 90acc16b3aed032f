//! The tables of a store, and the functions of this version.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use tokio_postgres::Row;

use super::rows::{Fields, the_only};
use super::session::{Session, words};
use crate::store::encoding::layout::Encryption;
use crate::store::{KeyId, Keyring, Result, StoreError};

/// The version of the tables that this code writes and reads.
const FORMAT: i16 = 5;
/// Shards of a new store: enough for many hubs of many cores.
pub(super) const SHARDS: u16 = 64;
/// For all that is made and looked up at an opening: others may be making it.
const DEADLINE: Duration = Duration::from_secs(30);

const TABLES: &str = include_str!("schema.sql");
/// Each file makes or replaces functions, those that others use in their own language first.
const FUNCTIONS: [&str; 10] = [
    include_str!("lines.sql"),
    include_str!("log.sql"),
    include_str!("retention.sql"),
    include_str!("progress.sql"),
    include_str!("subscriptions.sql"),
    include_str!("requests.sql"),
    include_str!("fetches.sql"),
    include_str!("admin.sql"),
    include_str!("orders.sql"),
    include_str!("registry.sql"),
];
const FOUND: &str = "SELECT hub.found_1($1, $2, $3, $4)";
const LOOK: &str = "SELECT s.format, s.shards, s.secret_keys, s.plain_secrets, s.unfinished FROM hub.store s";
/// Nobody else makes or replaces anything until the transaction has ended.
const ALONE: &str = "SELECT pg_advisory_xact_lock(1752523264, 1)";
const FUNCTIONS_OF: &str = "SELECT s.functions FROM hub.store s";
const NOTE_FUNCTIONS: &str = "UPDATE hub.store SET functions = $1";
const IS_MADE: &str = "SELECT to_regclass('hub.store') IS NOT NULL AS is_made";

/// What was decided when the store was made, and the keys that its secrets need.
#[derive(Debug)]
pub(super) struct Foundation {
    pub(super) shards: u16,
    pub(super) encryption: Encryption,
}

/// Makes the store where there is none, and brings its functions up to this version: all of it or nothing.
///
/// # Errors
/// [`StoreError::Format`] when another version made it, [`StoreError::Unfinished`] when a restore did not finish.
pub(super) async fn prepare(session: &Session, keys: &Keyring) -> Result<Foundation> {
    let late = |_| StoreError::Away(format!("the store was not made within {DEADLINE:?}"));
    timeout(DEADLINE, prepare_at_once(session, keys)).await.map_err(late)?
}

async fn prepare_at_once(session: &Session, keys: &Keyring) -> Result<Foundation> {
    session.client().batch_execute("BEGIN").await.map_err(unmade)?;
    let prepared = prepare_in_transaction(session, keys).await;
    let end = if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" };
    session.client().batch_execute(end).await.map_err(unmade)?;
    prepared
}

async fn prepare_in_transaction(session: &Session, keys: &Keyring) -> Result<Foundation> {
    session.client().batch_execute(ALONE).await.map_err(unmade)?;
    let rows = ask(session, IS_MADE).await?;
    if Fields::of("store", the_only(&rows)?).flag("is_made")? {
        // Functions of this version may not fit the tables of another.
        look(session).await?;
        let rows = ask(session, FUNCTIONS_OF).await?;
        let made = Fields::of("store", the_only(&rows)?).maybe_bytes("functions")?;
        if made.as_deref() != Some(digest().as_slice()) {
            replace_functions(session).await?;
            note_functions(session).await?;
        }
    } else {
        make(session, SHARDS, keys).await?;
    }
    session.client().batch_execute("SELECT hub.make_parts_1()").await.map_err(unmade)?;
    look(session).await
}

/// Makes an empty store, in a transaction that the caller has begun.
pub(super) async fn make(session: &Session, shards: u16, keys: &Keyring) -> Result<()> {
    session.client().batch_execute(TABLES).await.map_err(unmade)?;
    replace_functions(session).await?;
    let Encryption { keys, plain } = Encryption::wholly(keys);
    let keys: Vec<_> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    let shards = i16::try_from(shards).map_err(|error| StoreError::Write(error.to_string()))?;
    session.client().query(FOUND, &[&FORMAT, &shards, &keys, &plain]).await.map_err(unmade)?;
    note_functions(session).await
}

/// What was made.
pub(super) async fn look(session: &Session) -> Result<Foundation> {
    let rows = ask(session, LOOK).await?;
    let fields = Fields::of("store", the_only(&rows)?);
    let format: i16 = fields.small("format")?;
    let path = "the database".to_owned();
    if format != FORMAT {
        let (found, supported) = (format.unsigned_abs(), FORMAT.unsigned_abs());
        return Err(StoreError::Format { path, found, supported });
    }
    if fields.flag("unfinished")? {
        return Err(StoreError::Unfinished { path });
    }
    Ok(Foundation { shards: fields.small("shards")?, encryption: encryption(fields)? })
}

/// Under which keys secrets are stored: the columns `secret_keys, plain_secrets`.
pub(super) fn encryption(fields: Fields<'_>) -> Result<Encryption> {
    let keys = fields.get::<Vec<Vec<u8>>>("secret_keys")?;
    let keys = keys.iter().map(|key| KeyId::from_bytes(key)).collect::<Option<_>>();
    let keys = keys.ok_or_else(|| fields.damaged("secret_keys", "the name of a key has the wrong length"))?;
    Ok(Encryption { keys, plain: fields.flag("plain_secrets")? })
}

async fn replace_functions(session: &Session) -> Result<()> {
    for functions in FUNCTIONS {
        session.client().batch_execute(functions).await.map_err(unmade)?;
    }
    Ok(())
}

async fn note_functions(session: &Session) -> Result<()> {
    session.client().execute(NOTE_FUNCTIONS, &[&digest()]).await.map(drop).map_err(unmade)
}

/// What tells the functions of one version from those of another.
fn digest() -> Vec<u8> {
    let mut hasher = Sha256::new();
    for functions in FUNCTIONS {
        hasher.update(functions);
    }
    hasher.finalize().to_vec()
}

async fn ask(session: &Session, statement: &'static str) -> Result<Vec<Row>> {
    session.query(statement, &[], DEADLINE).await.map_err(|failure| StoreError::Away(failure.told()))
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn unmade(error: tokio_postgres::Error) -> StoreError {
    StoreError::Away(format!("the store cannot be made: {}", words(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the tables of [`FORMAT`], without comments.
    const DIGEST: &str = "8fd56e8ca7587c5bbea48b44846963aa4d9331c528ab24ea6ec03ee64572bf64";

    #[test]
    fn tables_that_change_have_a_new_format() {
        let mut hasher = Sha256::new();
        for line in TABLES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")) {
            hasher.update(line);
            hasher.update("\n");
        }
        let digest = hex::encode(hasher.finalize());
        assert_eq!(
            (FORMAT, digest.as_str()),
            (5, DIGEST),
            "the tables changed: count FORMAT up, and put the new digest here"
        );
    }
}
