//! Clients that send a byte a second: half of them drip headers, half bodies.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::close;
use super::siege::{Siege, count};
use crate::wire::connect;

const NET: u8 = 1;
/// Between two bytes: none of the hub's limits for bytes ends it, only those for time do.
const DRIP: Duration = Duration::from_secs(1);

/// So many, each from an address of its own.
pub(super) fn begin(siege: &Arc<Siege>, clients: usize, attackers: &mut JoinSet<()>) {
    for number in 0..clients {
        let siege = Arc::clone(siege);
        attackers.spawn(async move { come_again_and_again(&siege, number).await });
    }
}

/// It comes again when it is thrown out.
async fn come_again_and_again(siege: &Siege, number: usize) {
    let head: &[u8] = if number.is_multiple_of(2) {
        b"POST /websub/ HTTP/1.1\r\nHost: h\r\nX-Slow: "
    } else {
        b"POST /websub/ HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 60000\r\n\r\n"
    };
    sleep(DRIP.mul_f64(fastrand::f64())).await;
    loop {
        if let Ok(mut stream) = connect(close(NET, number), siege.hub).await {
            count(&siege.counts.slow_open);
            let _ = drip(&mut stream, head).await;
            siege.counts.slow_open.fetch_sub(1, Ordering::Relaxed);
            count(&siege.counts.slow_closed);
        }
        sleep(DRIP.mul_f64(fastrand::f64() / 10.0)).await;
    }
}

async fn drip(stream: &mut TcpStream, head: &[u8]) -> io::Result<()> {
    stream.write_all(head).await?;
    let mut answer = [0; 512];
    // An answer, or the end: in both cases the hub has had enough.
    while timeout(DRIP, stream.read(&mut answer)).await.is_err() {
        stream.write_all(b"x").await?;
    }
    Ok(())
}
