//! Begins all attacks at once.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::siege::Siege;
use super::subscribers::Subscribers;
use super::{
    Attack, bad_requests, heavy_links, large_bodies, late_callbacks, shared_origin, slow_connections,
    status_queries, superseding, waiting_requests,
};
use crate::Failure;

/// The attacks last as long as the returned tasks. `pending` names the callbacks whose requests are pending.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    plan: &Attack,
    honest: &Subscribers,
    pending: mpsc::UnboundedReceiver<String>,
) -> Result<JoinSet<()>, Failure> {
    let mut attackers = JoinSet::new();
    slow_connections::begin(siege, plan.slow, &mut attackers);
    bad_requests::begin(siege, plan.flood, &mut attackers);
    heavy_links::begin(siege, plan.links, &mut attackers).await?;
    large_bodies::begin(siege, plan.bodies, &mut attackers).await?;
    late_callbacks::begin(siege, plan.late, &mut attackers).await?;
    shared_origin::begin(siege, plan.refusing, honest, &mut attackers);
    waiting_requests::begin(siege, plan.waiting, &mut attackers).await?;
    superseding::begin(siege, plan.superseding, pending, &mut attackers);
    status_queries::begin(siege, plan.queries, &mut attackers);
    Ok(attackers)
}
