//! What other hubs have accepted.

use super::*;
use crate::store::PingId;

/// What comes from other hubs: these pings, in these shards.
fn pings(shards: &[Shard]) -> mpsc::UnboundedReceiver<(Shard, Accepted)> {
    let (sender, accepted) = mpsc::unbounded_channel();
    for (shard, id) in shards.iter().zip(1..) {
        sender.send((*shard, Accepted::Ping(PingId(id)))).unwrap();
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_other_hubs_have_accepted_in_a_shard_is_read_once_for_all_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let noted = Arc::new(Noted::default());
    let delivery = owner_of_all(&store, &noted).await.unwrap();
    let owner = delivery.owner();
    assert_eq!(owner.let_go(Shard(5)).await, Ok(LetGo::Saved));
    let shards = [Shard(4), Shard(3), Shard(4), Shard(5), Shard(4)];
    owner.take_up_accepted(pings(&shards)).await;
    assert_eq!(*noted.accepted.lock().unwrap(), [Shard(3), Shard(4)]);
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_other_hubs_have_accepted_and_cannot_be_read_is_read_until_that_has_succeeded() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let noted = Arc::new(Noted { failures: Mutex::new(3), ..Noted::default() });
    let delivery = owner_of_all(&store, &noted).await.unwrap();
    let (owner, (sender, accepted)) = (delivery.owner(), mpsc::unbounded_channel());
    let follows = tokio::spawn(async move { owner.take_up_accepted(accepted).await });
    sender.send((Shard(3), Accepted::Ping(PingId(1)))).unwrap();
    until(|| *noted.accepted.lock().unwrap() == [Shard(3)]).await;
    assert_eq!(*noted.failures.lock().unwrap(), 0);
    drop(sender);
    follows.await.unwrap();
    delivery.stop().await;
}
