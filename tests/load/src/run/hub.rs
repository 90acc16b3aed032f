//! The hub that is measured: ours in a process of its own, or any other at a URL.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use resync_common::locks::lock;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use url::Url;

use crate::Failure;
use crate::wire::{Answer, exchange};

/// A hub's endpoint, with connections that are kept.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    address: SocketAddr,
    idle: Mutex<Vec<TcpStream>>,
    permits: Semaphore,
}

impl Endpoint {
    /// With at most so many connections at once.
    pub(super) fn new(url: &str, connections: usize) -> Result<Arc<Self>, Failure> {
        let url = Url::parse(url).map_err(|error| format!("{url} is no URL: {error}"))?;
        if url.scheme() != "http" {
            return Err(format!("{url}: this tool speaks http only; put the hub's own port here").into());
        }
        let host = url.host_str().ok_or_else(|| format!("{url} names no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let address =
            (host, port).to_socket_addrs()?.next().ok_or_else(|| format!("{host} has no address"))?;
        Ok(Arc::new(Self { url, address, idle: Mutex::default(), permits: Semaphore::new(connections) }))
    }

    /// A request to it: header fields, each with its line end, and a body.
    pub(super) async fn post(&self, fields: &str, body: &[u8]) -> io::Result<Answer> {
        let _permit = self.permits.acquire().await.map_err(io::Error::other)?;
        let (path, authority) = (&self.url[url::Position::BeforePath..], self.url.authority());
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\n{fields}Content-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        let mut stream = match self.kept() {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        let answer = exchange(&mut stream, &request).await?;
        if answer.again {
            self.idle().push(stream);
        }
        Ok(answer)
    }

    /// A form to it.
    pub(super) async fn form(&self, parameters: &[(&str, &str)]) -> io::Result<Answer> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        self.post("Content-Type: application/x-www-form-urlencoded\r\n", body.as_bytes()).await
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection that the hub has not closed meanwhile.
    fn kept(&self) -> Option<TcpStream> {
        let mut idle = self.idle();
        while let Some(stream) = idle.pop() {
            let alive = stream.try_read(&mut [0; 1]);
            if alive.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Some(stream);
            }
        }
        None
    }

    fn idle(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        lock(&self.idle)
    }
}

/// What is known of a hub's process while it runs; shared with whoever measures it.
#[derive(Clone, Debug, Default)]
pub(super) struct Body(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    pid: Option<i32>,
    data: Option<PathBuf>,
    doing: String,
}

impl Body {
    /// Its process number; `None`: it is down, or somewhere else.
    pub(super) fn pid(&self) -> Option<i32> {
        self.lock().pid
    }

    pub(super) fn set_pid(&self, pid: Option<i32>) {
        self.lock().pid = pid;
    }

    /// Where its data is.
    pub(super) fn data(&self) -> Option<PathBuf> {
        self.lock().data.clone()
    }

    pub(super) fn set_data(&self, data: PathBuf) {
        self.lock().data = Some(data);
    }

    /// What is done to it at the moment, for people.
    pub(super) fn doing(&self) -> String {
        self.lock().doing.clone()
    }

    pub(super) fn set_doing(&self, doing: &str) {
        doing.clone_into(&mut self.lock().doing);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }
}
