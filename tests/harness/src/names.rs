//! A name server for tests: it says what it is told, and may say something else the next time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use crate::locks::lock;

/// Types of questions, and the class of the Internet.
const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

type Names = Arc<Mutex<Known>>;

#[derive(Debug, Default)]
struct Known {
    answers: HashMap<String, Answers>,
    trouble: Option<Trouble>,
    /// Questions that came while it was in trouble.
    troubled: u64,
}

/// What a name server in trouble does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It says that it has failed.
    Fails,
    /// It says nothing.
    Silent,
}

/// What a name has at its first lookup, at its second, and so on; the last for ever.
#[derive(Debug)]
struct Answers {
    addresses: Vec<Vec<IpAddr>>,
    /// Lookups so far, by the type of the question: one lookup asks for both.
    asked: HashMap<u16, usize>,
}

impl Answers {
    fn next(&mut self, kind: u16) -> &[IpAddr] {
        let asked = self.asked.entry(kind).or_default();
        let number = (*asked).min(self.addresses.len().saturating_sub(1));
        *asked += 1;
        self.addresses.get(number).map_or(&[], Vec::as_slice)
    }
}

/// A running name server; it stops when dropped. No answer may be remembered (its time to live is 0), and what it was not told
/// does not exist.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    names: Names,
    server: AbortHandle,
}

impl NameServer {
    /// One on 127.0.0.1.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a loopback port is free");
        let address = socket.local_addr().expect("a bound socket has an address");
        let names = Names::default();
        let server = tokio::spawn(serve(socket, Arc::clone(&names))).abort_handle();
        Self { address, names, server }
    }

    /// Its address as the hub's configuration wants it.
    pub fn configured(&self) -> String {
        format!("[\"{}\"]", self.address)
    }

    /// From now on the name has these addresses.
    ///
    /// # Panics
    /// When one of them is no address.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        self.set_in_turn(name, &[addresses]);
    }

    /// From now on the name has the first of these at its next lookup, the second at the one after it, and so on; then always
    /// the last.
    ///
    /// # Panics
    /// When one of them is no address.
    pub fn set_in_turn(&self, name: &str, lookups: &[&[&str]]) {
        let address = |address: &&str| address.parse().expect("tests give addresses");
        let addresses = lookups.iter().map(|addresses| addresses.iter().map(address).collect()).collect();
        let answers = Answers { addresses, asked: HashMap::new() };
        lock(&self.names).answers.insert(name.to_owned(), answers);
    }

    /// From now on it is in trouble; `None`: no longer.
    pub fn trouble(&self, trouble: Option<Trouble>) {
        lock(&self.names).trouble = trouble;
    }

    /// How many questions came while it was in trouble, so far.
    pub fn troubled(&self) -> u64 {
        lock(&self.names).troubled
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(socket: UdpSocket, names: Names) {
    let mut buffer = [0; 1_024];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
        if let Some(answer) = answer(&buffer[..length], &names) {
            // Whoever asked may be gone.
            let _ = socket.send_to(&answer, peer).await;
        }
    }
}

/// The answer to a question as RFC 1035, section 4, lays it out.
fn answer(question: &[u8], names: &Names) -> Option<Vec<u8>> {
    let (name, end) = read_name(question, 12)?;
    let kind = u16::from_be_bytes(question.get(end..end + 2)?.try_into().ok()?);
    let (known, trouble) = {
        let mut names = lock(names);
        let trouble = names.trouble;
        names.troubled += u64::from(trouble.is_some());
        let answers = names.answers.get_mut(&name).filter(|_| trouble.is_none());
        (answers.map(|answers| answers.next(kind).to_vec()), trouble)
    };
    let addresses = known.iter().flatten().filter_map(|address| data(address, kind));
    let records: Vec<Vec<u8>> = addresses.collect();

    let mut answer = question.get(..2)?.to_vec();
    // A response that recursion was wanted and had for; NXDOMAIN for what is not known, SERVFAIL in trouble.
    answer.extend_from_slice(match (&known, trouble) {
        (_, Some(Trouble::Silent)) => return None,
        (_, Some(Trouble::Fails)) => &[0x81, 0x82],
        (Some(_), None) => &[0x81, 0x80],
        (None, None) => &[0x81, 0x83],
    });
    for count in [1, u16::try_from(records.len()).ok()?, 0, 0] {
        answer.extend_from_slice(&count.to_be_bytes());
    }
    answer.extend_from_slice(question.get(12..end + 4)?);
    for data in records {
        // The name is that of the question, which stands at byte 12.
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&kind.to_be_bytes());
        answer.extend_from_slice(&INTERNET.to_be_bytes());
        answer.extend_from_slice(&0_u32.to_be_bytes());
        answer.extend_from_slice(&u16::try_from(data.len()).ok()?.to_be_bytes());
        answer.extend_from_slice(&data);
    }
    Some(answer)
}

fn data(address: &IpAddr, kind: u16) -> Option<Vec<u8>> {
    match (address, kind) {
        (IpAddr::V4(v4), A) => Some(v4.octets().to_vec()),
        (IpAddr::V6(v6), AAAA) => Some(v6.octets().to_vec()),
        _ => None,
    }
}

/// A name in lower case without the last dot, and where it ends.
fn read_name(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(bytes.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
}
