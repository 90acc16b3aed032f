//! As much of PostgreSQL's protocol as it takes to say something to a server that trusts everybody: the judge shares no client with the hub.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::USER;

/// The version of the protocol.
const PROTOCOL: u32 = 196_608;

/// What a query gives: rows of texts, `None` where nothing is there.
pub type Rows = Vec<Vec<Option<String>>>;

/// Carries out statements at the server behind this socket.
pub(super) fn carry_out(
    socket: &Path,
    database: &str,
    statements: &str,
    patience: Duration,
) -> Result<Rows, String> {
    let stream = UnixStream::connect(socket).and_then(|stream| {
        stream.set_read_timeout(Some(patience))?;
        Ok(stream)
    });
    let mut session = Session(stream.map_err(|error| error.to_string())?);
    session.begin(database)?;
    session.carry_out(statements)
}

struct Session(UnixStream);

impl Session {
    fn begin(&mut self, database: &str) -> Result<(), String> {
        let parameters = format!("user\0{USER}\0database\0{database}\0\0");
        self.send(&[], &[&PROTOCOL.to_be_bytes(), parameters.as_bytes()].concat())?;
        self.until_ready().map(drop)
    }

    fn carry_out(&mut self, statements: &str) -> Result<Rows, String> {
        self.send(b"Q", &[statements.as_bytes(), &[0]].concat())?;
        self.until_ready()
    }

    fn send(&mut self, kind: &[u8], content: &[u8]) -> Result<(), String> {
        let length = u32::try_from(content.len() + 4).map_err(|error| error.to_string())?;
        let message = [kind, &length.to_be_bytes(), content].concat();
        self.0.write_all(&message).map_err(|error| error.to_string())
    }

    /// Everything that is said until the server waits for more.
    fn until_ready(&mut self) -> Result<Rows, String> {
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let message = self.message();
            // After some errors it hangs up.
            let (kind, content) = message.map_err(|error| failed.take().unwrap_or(error.to_string()))?;
            match kind {
                b'E' => failed = failed.or_else(|| Some(reason(&content))),
                b'D' => rows.push(row(&content).ok_or("a row is cut off")?),
                b'Z' => return failed.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length).saturating_sub(4);
        let mut content = vec![0; length as usize];
        self.0.read_exact(&mut content)?;
        Ok((kind, content))
    }
}

/// What an error says: of its parts that of the kind M.
fn reason(content: &[u8]) -> String {
    let parts = content.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut words = parts.filter_map(|part| part.strip_prefix('M').map(str::to_owned));
    words.next().unwrap_or_else(|| "an error without words".to_owned())
}

fn row(content: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = content.split_first_chunk()?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind;
        columns.push(match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (text, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Some(String::from_utf8_lossy(text).into_owned())
            }
            // Nothing is there.
            Err(_) => None,
        });
    }
    Some(columns)
}
