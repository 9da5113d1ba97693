//! A loopback API server whose answers are broken as a seed says.

mod answers;
mod framing;
mod mutation;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use fastrand::Rng;

/// The server.
pub struct HostileServer {
    /// The port on loopback.
    pub port: u16,
    /// Determines how answers are broken.
    pub seed: AtomicU64,
}

/// The head of a request.
pub struct HostileRequest {
    pub method: String,
    pub target: String,
    pub accept: String,
}

impl HostileServer {
    /// Starts a server that lives as long as the process.
    pub fn start() -> &'static Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let server: &'static Self = Box::leak(Box::new(Self { port, seed: AtomicU64::new(0) }));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    /// Answers until the client goes away or an answer breaks the connection.
    fn serve(&self, stream: TcpStream) {
        let limit = Some(Duration::from_secs(2));
        let _ = (stream.set_nodelay(true), stream.set_read_timeout(limit), stream.set_write_timeout(limit));
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut writer = stream;
        while let Some(request) = read_request(&mut reader) {
            let path = request.target.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
            let seed = self.seed.load(Ordering::SeqCst);
            let mut random = Rng::with_seed(seed ^ path << 20);
            let (status, body) = answers::answer(&request, &mut random, seed.is_multiple_of(5));
            if framing::send(&mut writer, &mut random, &request, status, body).is_none() || writer.flush().is_err() {
                return;
            }
        }
    }
}

/// Reads a request with its body.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<HostileRequest> {
    let mut line = String::new();
    let mut next = || {
        line.clear();
        reader.read_line(&mut line).ok().filter(|count| *count > 0).map(|_| line.trim_end().to_owned())
    };
    let first = next()?;
    let mut words = first.split(' ').map(str::to_owned);
    let mut request = HostileRequest { method: words.next()?, target: words.next()?, accept: String::new() };
    let mut length = 0;
    loop {
        let header = next()?.to_lowercase();
        match header.split_once(": ") {
            None => break,
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("accept", value)) => request.accept = value.to_owned(),
            Some(_) => {}
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    Some(request)
}
