//! Writes the head and body of a small request in one piece, which costs the kernel less than a list of two.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

/// Up to so many bytes are copied together: copying takes less time than the list.
const SMALL: usize = 2 * 1024;

/// A stream to a peer.
#[derive(Debug)]
pub(super) struct Coalesced<S>(pub(super) S);

impl<S: Read + Unpin> Read for Coalesced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: Write + Unpin> Write for Coalesced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    /// Pieces are worth having apart also where the stream below takes one after the other.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.0);
        if pieces.iter().map(|piece| piece.len()).sum::<usize>() > SMALL {
            return stream.poll_write_vectored(cx, pieces);
        }
        let mut coalesced = [0; SMALL];
        let mut length = 0;
        for piece in pieces {
            coalesced[length..length + piece.len()].copy_from_slice(piece);
            length += piece.len();
        }
        stream.poll_write(cx, &coalesced[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what comes in one go, of which it takes so many bytes at most.
    #[derive(Default)]
    struct Paper {
        most: usize,
        written: Vec<Vec<u8>>,
        as_pieces: usize,
    }

    impl Paper {
        fn take(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = &bytes[..bytes.len().min(self.most)];
            self.written.push(taken.to_vec());
            Poll::Ready(Ok(taken.len()))
        }
    }

    impl Write for Paper {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.take(bytes)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.as_pieces += 1;
            let together: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            self.take(&together)
        }
    }

    fn write(most: usize, pieces: &[&[u8]]) -> (usize, Paper) {
        let mut stream = Coalesced(Paper { most, ..Paper::default() });
        let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let written = Pin::new(&mut stream)
            .poll_write_vectored(&mut Context::from_waker(std::task::Waker::noop()), &pieces);
        let Poll::Ready(Ok(written)) = written else { panic!("{written:?}") };
        (written, stream.0)
    }

    #[test]
    fn what_is_small_goes_out_in_one_piece_and_what_is_large_is_not_copied() {
        let head = b"POST /cb HTTP/1.1\r\n\r\n".as_slice();
        for (body, as_pieces) in [(SMALL - head.len(), 0), (SMALL - head.len() + 1, 1), (4 * SMALL, 1)] {
            let body = vec![7; body];
            let (written, paper) = write(usize::MAX, &[head, &body]);
            assert_eq!((written, paper.as_pieces), (head.len() + body.len(), as_pieces));
            assert_eq!(paper.written, [[head, &body].concat()]);
        }
    }

    #[test]
    fn a_stream_that_takes_a_part_is_told_of_no_more() {
        let (written, paper) = write(5, &[b"abc", b"", b"defg"]);
        assert_eq!((written, paper.written), (5, vec![b"abcde".to_vec()]));
    }
}
