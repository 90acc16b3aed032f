//! The bound: the client that the hub uses, in a loop on every core, with signatures, without a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use resync_core::websub::{Secret, SignatureMethod, SigningKey};
use tokio::runtime;

use super::receiver::Receiver;
use super::{Failure, Rate};

/// What the loop sends.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    pub(super) requests: u64,
    pub(super) subscribers: usize,
    pub(super) hosts: usize,
    /// Requests under way at once, over all cores.
    pub(super) at_once: usize,
    pub(super) body: Bytes,
}

/// Sends all of them, and returns when the last answer has come.
pub(super) fn run(plan: &Bare, receiver: &Receiver) -> Result<Rate, Failure> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let urls: Arc<[String]> = (0..plan.subscribers).map(|one| receiver.url(one, plan.hosts)).collect();
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let threads: Vec<_> = (0..cores)
        .map(|_| {
            let (plan, urls, next) = (plan.clone(), Arc::clone(&urls), Arc::clone(&next));
            thread::spawn(move || -> Result<(), Failure> {
                let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(send(&plan, &urls, &next, plan.at_once.div_ceil(cores)))
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread of the bare loop has panicked")??;
    }
    Ok(Rate::new(plan.requests, began.elapsed()))
}

async fn send(plan: &Bare, urls: &[String], next: &AtomicU64, at_once: usize) -> Result<(), Failure> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let one = || async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.requests {
                return Ok::<_, Failure>(());
            }
            let subscriber = usize::try_from(number)? % urls.len();
            let secret = Secret::new(format!("secret of subscriber {subscriber}"))?;
            let signature = SigningKey::new(SignatureMethod::Sha256, &secret).sign(&plan.body);
            let request = Request::post(&urls[subscriber])
                .header("content-type", "application/xml")
                .header("x-hub-signature", signature.to_string())
                .header("webhook-id", format!("0000000000000001.{number}"))
                .body(Full::new(plan.body.clone()))?;
            client.request(request).await?.into_body().collect().await?;
        }
    };
    join_all((0..at_once).map(|_| one())).await.into_iter().collect()
}
