//! A least pace for clients, and a connection that is closed if its client reads too slowly, unless the answer allows more time. It is
//! below TLS, which would buffer what is not read.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How slowly a body may come in, or an answer be read.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Nothing may move for so long in all.
    pub patience: Duration,
    /// The time that has passed is earned back at so many bytes a second.
    pub bytes_per_second: u64,
}

impl Pace {
    /// By when more must have come, after so many bytes: at most `patience` from now, so that a client which sent much at once cannot keep
    /// it here for long.
    #[must_use]
    pub fn extend(self, deadline: Instant, bytes: usize) -> Instant {
        (deadline + self.earned(bytes)).min(self.latest())
    }

    /// By when the first bytes must have come.
    pub fn latest(self) -> Instant {
        Instant::now() + self.patience
    }

    /// How much time so many bytes are worth.
    fn earned(self, bytes: usize) -> Duration {
        Duration::from_millis((bytes as u64).saturating_mul(1_000) / self.bytes_per_second.max(1))
    }
}

/// Lets an answer allow its client longer pauses from then on, however slowly it reads in between.
#[derive(Clone, Debug, Default)]
pub struct Leeway(Arc<OnceLock<Duration>>);

impl Leeway {
    /// The first call counts.
    pub fn give(&self, patience: Duration) {
        self.0.get_or_init(|| patience);
    }
}

/// A stream on which writing may wait for the reader as long as the pace allows; written bytes add time.
///
/// Written is what the system has taken into its send buffer, and not what the client has read. Linux takes nothing into a full buffer
/// before about a third of it is free. So a client has to read that third within the patience, though the pace may ask for less: of a
/// buffer that has grown to 2.5 MB some 800 kB.
#[derive(Debug)]
pub struct Paced<S> {
    stream: S,
    pace: Pace,
    leeway: Leeway,
    /// How much longer writing may wait.
    left: Duration,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    end: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    /// A stream that has the whole patience of its pace at first.
    pub fn new(stream: S, pace: Pace, leeway: Leeway) -> Self {
        Self { stream, pace, leeway, left: pace.patience, waiting: None }
    }

    /// Counts the time that passed until this result of a write.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(result) => {
                if let Some(waiting) = self.waiting.take() {
                    self.left = self.left.saturating_sub(waiting.since.elapsed());
                }
                let bytes = *result.as_ref().unwrap_or(&0);
                self.left = (self.left + self.pace.earned(bytes)).min(self.pace.patience);
                Poll::Ready(result)
            }
            Poll::Pending => {
                let left = self.leeway.0.get().copied().unwrap_or(self.left);
                let waiting = self.waiting.get_or_insert_with(|| {
                    let since = Instant::now();
                    Waiting { since, end: Box::pin(sleep_until(since + left)) }
                });
                ready!(waiting.end.as_mut().poll(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly")))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    const PACE: Pace = Pace { patience: Duration::from_secs(10), bytes_per_second: 1_000 };

    /// Reads so many bytes after every pause, until the other side is gone.
    fn reader(mut stream: DuplexStream, bytes: usize, pause: Duration) {
        tokio::spawn(async move {
            loop {
                sleep(pause).await;
                if stream.read_exact(&mut vec![0; bytes]).await.is_err() {
                    return;
                }
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_at_a_decent_pace_gets_an_answer_that_takes_longer_than_the_patience() {
        let (server, client) = duplex(100);
        reader(client, 100, Duration::from_millis(100));
        let begun = Instant::now();
        Paced::new(server, PACE, Leeway::default()).write_all(&vec![0; 100_000]).await.unwrap();
        assert!(begun.elapsed() > 5 * PACE.patience);
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_a_byte_now_and_then_is_cut_off_also_between_answers() {
        let (server, client) = duplex(100);
        reader(client, 1, Duration::from_secs(1));
        let (begun, mut server) = (Instant::now(), Paced::new(server, PACE, Leeway::default()));
        let mut answered = Ok(());
        while answered.is_ok() {
            answered = server.write_all(b"answer").await.and(server.flush().await);
        }
        let error = answered.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_between_answers_costs_nothing() {
        let (server, mut client) = duplex(100);
        let mut server = Paced::new(server, PACE, Leeway::default());
        for _ in 0..5 {
            server.write_all(&[0; 100]).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            client.read_exact(&mut [0; 100]).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn with_leeway_each_pause_may_be_so_long_and_none_longer() {
        let (server, mut client) = duplex(100);
        let leeway = Leeway::default();
        leeway.give(10 * PACE.patience);
        let mut server = Paced::new(server, PACE, leeway);
        let writing = tokio::spawn(async move { server.write_all(&[0; 1_000]).await });
        for _ in 0..5 {
            sleep(9 * PACE.patience).await;
            client.read_exact(&mut [0; 100]).await.unwrap();
        }
        let begun = Instant::now();
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() <= 10 * PACE.patience, "{:?}", begun.elapsed());
    }
}
