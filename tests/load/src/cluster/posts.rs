//! `cluster posts`: notifications that a hub makes durable in PostgreSQL, against bare INSERTs on the same server.

use serde::Serialize;

use super::hubs::Laboratory;
use super::{Cluster, inserts};
use crate::measure::Spread;
use crate::publish::{middle, ratio, together};
use crate::{Failure, Rate};

/// Publishers, and the connections of bare INSERTs that they are compared with.
const LEVELS: [(usize, usize); 3] = [(1, 1), (16, 16), (256, 48)];
/// Rounds, of which each goes to the hub and to the database, one after the other; the middle one counts.
const ROUNDS: u32 = 3;
const BYTES: u32 = 1_000;

/// By number of publishers.
#[derive(Clone, Debug, Serialize)]
pub struct PostsReport {
    /// Of 1, 16 and 256 publishers.
    pub publishers: Vec<Posting>,
}

/// So many publishers at once.
#[derive(Clone, Debug, Serialize)]
pub struct Posting {
    /// How many.
    pub publishers: usize,
    /// What the hub acknowledged, in its middle round.
    pub posts: Rate,
    /// In that round, from the beginning of a post to its answer; each publisher waits for it before the next.
    pub acknowledged: Spread,
    /// Connections of bare INSERTs.
    pub connections: usize,
    /// Bare INSERTs of bodies as long, each a commit of its own, in their middle round.
    pub inserts: Rate,
    /// In that round, how long each of them took.
    pub insert: Spread,
    /// Posts by INSERTs, in the middle one of all rounds.
    pub ratio: f64,
}

/// Measures one hub, or those of others in turn.
pub(super) async fn measure(laboratory: &Laboratory, plan: &Cluster) -> Result<PostsReport, Failure> {
    let hubs = laboratory.hubs_or_theirs(1).await?;
    let (database, urls) = (&laboratory.database, hubs.urls());
    inserts::make_table(database).await?;
    let turns = 2 * ROUNDS * u32::try_from(LEVELS.len())?;
    let time = plan.time() / turns;
    let mut publishers = Vec::new();
    for (count, connections) in LEVELS {
        let (mut posted, mut inserted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            posted.push(together(&urls, count, time, BYTES).await?);
            inserted.push(inserts::together(database, connections, time, BYTES).await?);
        }
        let ratio = ratio(&posted, &inserted);
        let ((posts, answers), (inserts, commits)) = (middle(posted), middle(inserted));
        let (acknowledged, insert) = (Spread::of(answers)?, Spread::of(commits)?);
        publishers.push(Posting {
            publishers: count,
            posts,
            acknowledged,
            connections,
            inserts,
            insert,
            ratio,
        });
    }
    inserts::remove_table(database).await?;
    hubs.end().await;
    Ok(PostsReport { publishers })
}
