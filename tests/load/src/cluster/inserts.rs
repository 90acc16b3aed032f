//! The bound of posts: bare INSERTs of bodies as long into the same database, each a commit of its own.

use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, try_join_all};
use tokio::task::JoinSet;
use tokio_postgres::{Error, Statement};

use super::database::{Database, Session};
use crate::{Failure, Rate};

const MAKE: &str = "
CREATE TABLE IF NOT EXISTS public.resync_load (id bigserial PRIMARY KEY, body bytea NOT NULL);
ALTER TABLE public.resync_load ALTER body SET STORAGE EXTERNAL";
const INSERT: &str = "INSERT INTO public.resync_load (body) VALUES ($1)";
const REMOVE: &str = "DROP TABLE IF EXISTS public.resync_load";

/// Makes the table that they go into.
pub(super) async fn make_table(database: &Database) -> Result<(), Failure> {
    Ok(database.connect().await?.client().batch_execute(MAKE).await?)
}

/// Removes it with what is in it.
pub(super) async fn remove_table(database: &Database) -> Result<(), Failure> {
    Ok(database.connect().await?.client().batch_execute(REMOVE).await?)
}

/// A connection that inserts.
pub(super) struct Inserting {
    session: Session,
    statement: Statement,
    body: Vec<u8>,
}

impl Inserting {
    /// Bodies of so many bytes.
    pub(super) async fn connect(database: &Database, bytes: u32) -> Result<Self, Failure> {
        let session = database.connect().await?;
        let preparing: BoxFuture<'_, Result<Statement, Error>> = Box::pin(session.client().prepare(INSERT));
        let statement = preparing.await?;
        Ok(Self { session, statement, body: vec![b'x'; bytes as usize] })
    }

    /// One more row; returns once it is committed.
    pub(super) async fn insert(&self) -> Result<(), Failure> {
        let body = self.body.as_slice();
        let inserting: BoxFuture<'_, Result<u64, Error>> =
            Box::pin(async move { self.session.client().execute(&self.statement, &[&body]).await });
        inserting.await?;
        Ok(())
    }
}

/// So many connections at once for so long: what was committed, and how long each commit took.
pub(super) async fn together(
    database: &Database,
    connections: usize,
    time: Duration,
    bytes: u32,
) -> Result<(Rate, Vec<Duration>), Failure> {
    let connected = try_join_all((0..connections).map(|_| Inserting::connect(database, bytes))).await?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    for inserting in connected {
        running.spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < time {
                let before = Instant::now();
                inserting.insert().await?;
                times.push(before.elapsed());
            }
            Ok::<_, Failure>(times)
        });
    }
    let mut times = Vec::new();
    for finished in running.join_all().await {
        times.extend(finished?);
    }
    Ok((Rate::new(times.len() as u64, began.elapsed()), times))
}
