//! What one thread writes, as the body of an answer.

use std::io::{self, Write};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

/// Parts that wait for the client. The writer waits while there are more.
const AHEAD: usize = 4;
/// A part of the body.
const PART: usize = 256 * 1024;

/// A writer for a thread that may wait, and what it has written.
pub(super) fn pipe() -> (Pipe, mpsc::Receiver<Bytes>) {
    let (parts, receiver) = mpsc::channel(AHEAD);
    (Pipe { parts, gathered: BytesMut::new() }, receiver)
}

/// Passes on what is written in parts. What was not flushed is lost.
#[derive(Debug)]
pub(super) struct Pipe {
    parts: mpsc::Sender<Bytes>,
    gathered: BytesMut,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PART {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client hung up");
        self.parts.blocking_send(self.gathered.split().freeze()).map_err(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_comes_out_in_order_and_a_client_that_is_gone_ends_it() {
        let (mut pipe, mut parts) = pipe();
        let writing = tokio::task::spawn_blocking(move || {
            (0..10_u8).try_for_each(|number| pipe.write_all(&vec![number; 100_000]))?;
            pipe.flush()?;
            Ok::<_, io::Error>(pipe)
        });
        let mut all = Vec::new();
        while all.len() < 1_000_000 {
            all.extend_from_slice(&parts.recv().await.unwrap());
        }
        assert!(
            all.chunks(100_000).zip(0..10_u8).all(|(chunk, number)| chunk.iter().all(|byte| *byte == number))
        );
        let mut pipe = writing.await.unwrap().unwrap();
        drop(parts);
        let failed = tokio::task::spawn_blocking(move || pipe.write_all(&vec![0; 300_000])).await.unwrap();
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
