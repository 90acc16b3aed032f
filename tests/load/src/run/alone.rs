//! The receiver by itself, and beside it a bare hyper server, so that another tool can say what each takes.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::sink::Sink;
use super::world::address;
use crate::Failure;
use crate::scenario::{Pattern, Plan, Scenario};
use crate::stamp::Stamp;

/// The run that bodies must name.
const RUN: u32 = 1;

/// One subscriber and one notification.
const SCENARIO: &str = "about = \"alone\"\nduration = \"1s\"\n[audience]\nsubscribers = 1\n[publish]\npattern = \"burst\"\nsize = 1\n";

/// A server that another tool drives, until it is dropped.
#[derive(Debug)]
pub struct Alone {
    /// Where it takes deliveries.
    pub url: String,
    /// A body that it takes for a delivery.
    pub body: String,
    _sink: Option<Sink>,
}

/// The receiver of runs: it reads, checks and writes down each delivery. Needs a runtime around it.
///
/// # Errors
/// When there is no port.
pub fn receiver_alone(bytes: u32) -> Result<Alone, Failure> {
    let mut scenario = Scenario::parse("alone", SCENARIO).map_err(|mistakes| format!("{mistakes:?}"))?;
    scenario.publish.payload = (bytes, bytes);
    let plan = Plan::new(&scenario, Pattern::Burst { size: 1, every: Duration::MAX }, 1);
    let sink = Sink::start(RUN, 1, Duration::ZERO, &plan, 1, false)?;
    sink.world.link_to("http://hub/", sink.port, false, std::iter::once("http://topic/".to_owned()));
    sink.world.begin();
    let url = format!("http://{}:{}/0", address(sink.world.host_of(0)), sink.port);
    Ok(Alone { url, body: body(bytes), _sink: Some(sink) })
}

/// A server out of hyper that reads each body and answers the same, and does nothing else.
///
/// # Errors
/// When there is no port.
pub async fn hyper_alone(bytes: u32) -> Result<Alone, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/0", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(done));
                // A peer that goes away ends its connection, nothing else.
                let _ = connection.await;
            });
        }
    });
    Ok(Alone { url, body: body(bytes), _sink: None })
}

fn body(bytes: u32) -> String {
    let body = Stamp { run: RUN, post: 0, due: Duration::ZERO }.body(bytes);
    String::from_utf8_lossy(&body).into_owned()
}

async fn done(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let whole = request.into_body().collect().await;
    let mut response = Response::new(Empty::new());
    *response.status_mut() = if whole.is_ok() { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
    Ok(response)
}
