//! Bodies on the wire: whole, in bad chunks, of another length, with other headers, late or without an end.

use std::{
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::HostileRequest;

/// The time for which an endless body is sent.
const ENDLESS: Duration = Duration::from_millis(500);

/// Sends an answer; `None` ends the connection.
pub fn send(
    stream: &mut TcpStream,
    random: &mut Rng,
    request: &HostileRequest,
    status: u16,
    body: Vec<u8>,
) -> Option<()> {
    if request.target.contains("/exec") && random.u8(..4) > 0 {
        return switch_protocols(stream, random);
    }
    let status = if random.u8(..12) == 0 { broken_status(random) } else { status };
    let mut head = format!("HTTP/1.1 {status} Status\r\nContent-Type: {}\r\n", content_type(random));
    if random.u8(..30) == 0 {
        head += &odd_headers(random);
    }
    match random.u8(..40) {
        0 => chunks(stream, random, &head, &body, true),
        1..4 => chunks(stream, random, &head, &body, false),
        4 => write(
            stream,
            &format!("{head}Content-Length: {}\r\n\r\n", body.len() + 1 + random.usize(..999)),
            &body,
            true,
        ),
        5 => write(stream, &format!("{head}Content-Length: {}\r\n\r\n", body.len() / 2), &body, true),
        6 => write(stream, &format!("{head}\r\n"), &body, true),
        7 => write(stream, &format!("{head}Content-Length: 99999999999999999999\r\n\r\n"), &body, true),
        8 => write(stream, &head[..random.usize(..head.len())], &[], true),
        9 => None,
        10 if random.u8(..4) == 0 => {
            write(stream, &format!("{head}Content-Length: {}\r\n\r\n", body.len() + 1), &body, false)?;
            thread::sleep(ENDLESS);
            None
        }
        11 if random.bool() => endless(stream, random, &head, &body),
        12 => write(stream, "\x16\x03\x01 not HTTP\r\n\r\n", &body, true),
        _ => write(stream, &format!("{head}Content-Length: {}\r\n\r\n", body.len()), &body, false),
    }
}

fn write(stream: &mut TcpStream, head: &str, body: &[u8], close: bool) -> Option<()> {
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok().filter(|()| !close)
}

fn broken_status(random: &mut Rng) -> u16 {
    let all = [101, 199, 204, 206, 301, 304, 400, 401, 403, 404, 405, 409, 410, 415, 422, 429, 500, 503, 504, 599, 999];
    all[random.usize(..all.len())]
}

fn content_type(random: &mut Rng) -> &'static str {
    if random.u8(..8) > 0 {
        return "application/json";
    }
    let all =
        ["text/html", "application/vnd.kubernetes.protobuf", "application/yaml", "", ";;;", "text/plain; charset=x"];
    all[random.usize(..all.len())]
}

fn odd_headers(random: &mut Rng) -> String {
    match random.u8(..6) {
        0 => "X-A: b\r\n".repeat(1 << random.u32(..10)),
        1 => format!("X-Long: {}\r\n", "a".repeat(1 << random.u32(..20))),
        2 => "Warning: 299 - \"\\\r\nWarning: 299\r\nWarning: 299 - \"a\\\"b\" \"c\"\r\n".to_owned(),
        3 => "Retry-After: 0\r\nRetry-After: -1\r\n".to_owned(),
        4 => "Content-Encoding: gzip\r\n".to_owned(),
        _ => "Location: http://127.0.0.1:1/\r\nConnection: close\r\n".to_owned(),
    }
}

/// Chunks of random sizes; broken ones have a wrong size line or no end.
fn chunks(stream: &mut TcpStream, random: &mut Rng, head: &str, body: &[u8], broken: bool) -> Option<()> {
    let mut out = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, next) = rest.split_at(random.usize(1..=rest.len()));
        if broken && random.u8(..4) == 0 {
            let sizes = ["ffffffffffffffff", "-1", "zz", "", "10000000000000000000000", "7fffffff"];
            out.extend_from_slice(sizes[random.usize(..sizes.len())].as_bytes());
        } else {
            out.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = next;
    }
    if broken {
        return write(stream, "", &out, true);
    }
    out.extend_from_slice(b"0\r\n\r\n");
    write(stream, "", &out, false)
}

/// Sends parts of a body until the client goes away.
fn endless(stream: &mut TcpStream, random: &mut Rng, head: &str, body: &[u8]) -> Option<()> {
    let part = match random.u8(..5) {
        0 => vec![b'a'; 1 << 16],
        1 => vec![b' '; 1 << 16],
        2 => b"{\"a\":".repeat(1 << 12),
        3 => b"[".repeat(1 << 16),
        _ => [body, b"\n"].concat(),
    };
    write(stream, &format!("{head}\r\n"), &[], false)?;
    let start = Instant::now();
    while start.elapsed() < ENDLESS {
        stream.write_all(&part).ok()?;
        thread::sleep(Duration::from_micros(500));
    }
    None
}

/// Switches to WebSocket or to something else, and sends frames that are random or end in the middle.
fn switch_protocols(stream: &mut TcpStream, random: &mut Rng) -> Option<()> {
    let protocol = ["v5.channel.k8s.io", "v4.channel.k8s.io", "x"][random.usize(..3)];
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: \
         {protocol}\r\nX-Stream-Protocol-Version: {protocol}\r\n\r\n"
    );
    let mut out = Vec::new();
    for _ in 0..random.usize(..6) {
        let length = random.u8(..126);
        let claimed = if random.u8(..4) == 0 { random.u8(..) } else { length };
        out.extend_from_slice(&[[0x82, 0x81, 0x88, 0x89, 0xff][random.usize(..5)], claimed]);
        out.push(random.u8(..6));
        out.extend((1..length).map(|_| random.u8(..)));
    }
    let status: &[u8] = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}"#;
    if random.bool() {
        out.extend_from_slice(&[0x82, status.len() as u8 + 1, 3]);
        out.extend_from_slice(status);
    }
    write(stream, &head, &out, true)
}
