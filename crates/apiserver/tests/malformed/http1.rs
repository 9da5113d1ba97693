//! HTTP/1.1 as text: requests written out, and text that is no request.

use crate::request::{self, Ask};

/// A request as text, whatever is in it.
pub fn text(ask: &Ask) -> Vec<u8> {
    let mut text =
        format!("{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", ask.method, ask.path).into_bytes();
    for (name, value) in &ask.headers {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(format!("Content-Length: {}\r\n\r\n", ask.body.len()).as_bytes());
    text.extend_from_slice(&ask.body);
    text
}

/// Something that is nearly a request.
pub fn malformed(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(..16) {
        0 => line(random).into_bytes(),
        1 | 2 => headers(random),
        3..6 => lengths(random),
        6..8 => chunks(random),
        8 => flood(random),
        9 => truncated(random),
        10 => mutated(random),
        11 => pipelined(random),
        12 => upgrades(random),
        13 => (0..random.usize(1..3000)).map(|_| random.u8(..)).collect(),
        14 => "GET /api HTTP/1.1\nHost: x\nConnection: close\n\n".into(),
        _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec(),
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const POST: &str = "POST /api/v1/namespaces/default/configmaps?dryRun=All HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                    Content-Type: application/json\r\n";
const BODY: &str = r#"{"metadata":{"name":"x"}}"#;

fn line(random: &mut fastrand::Rng) -> String {
    let lines = [
        "GET\r\n\r\n",
        "GET /api\r\n\r\n",
        "GET /api HTTP/1.2\r\nHost: x\r\n\r\n",
        "GET /api HTTP/3.0\r\nHost: x\r\n\r\n",
        "GET /api HTTP/1.1 extra\r\nHost: x\r\n\r\n",
        "GET  /api  HTTP/1.1\r\nHost: x\r\n\r\n",
        "get /api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "BREW /api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "G\u{0}T /api HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET http://example.com/api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /api?%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /%2e%2e/%2e%2e/etc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /\u{e9}\u{fffd} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /api HTTP/1.0\r\n\r\n",
        "GET /api HTTP/1.1\r\n\r\n",
        "\r\n\r\n\r\nGET /api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ];
    lines[random.usize(..lines.len())].to_owned()
}

fn headers(random: &mut fastrand::Rng) -> Vec<u8> {
    let odd: [&[u8]; 12] = [
        b"Host: y\r\n",
        b"no colon\r\n",
        b": no name\r\n",
        b"Sp ace: x\r\n",
        b"Accept : */*\r\n",
        b" folded: x\r\n",
        b"X: a\r\n b\r\n",
        b"X: \x00\x01\x7f\r\n",
        b"X: \xff\xfe\r\n",
        b"Connection: upgrade, close, keep-alive, x\r\n",
        b"Host:\r\n",
        b"X: a\rb\r\n",
    ];
    let mut text = b"GET /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".to_vec();
    for _ in 0..random.usize(1..4) {
        text.extend_from_slice(odd[random.usize(..odd.len())]);
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn lengths(random: &mut fastrand::Rng) -> Vec<u8> {
    let lengths = [
        "Content-Length: -1\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Content-Length: 1e3\r\n",
        "Content-Length: +25\r\n",
        "Content-Length: 25, 25\r\n",
        "Content-Length: 25\r\nContent-Length: 26\r\n",
        "Content-Length: 25\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 1000\r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: 10000000\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n",
        "",
        "Expect: 100-continue\r\nContent-Length: 25\r\n",
        "Expect: the-unexpected\r\nContent-Length: 25\r\n",
    ];
    format!("{POST}{}\r\n{BODY}", lengths[random.usize(..lengths.len())]).into()
}

fn chunks(random: &mut fastrand::Rng) -> Vec<u8> {
    let chunks = [
        "19\r\n{\"metadata\":{\"name\":\"x\"}}\r\n0\r\n\r\n",
        "zz\r\nabc\r\n0\r\n\r\n",
        "-1\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "3\r\nab",
        "3;ext=\"unclosed\r\nabc\r\n0\r\n\r\n",
        "3\nabc\n0\n\n",
        "\r\n\r\n",
        "0\r\nX: y\r\nContent-Length: 5\r\n\r\n",
        "0\r\n",
        "19\r\n{\"metadata\":{\"name\":\"x\"}}\r\n",
        "1\r\n{\r\n1\r\n}\r\n0\r\nbroken trailer\r\n\r\n",
    ];
    let text = format!("{POST}Transfer-Encoding: chunked\r\n\r\n{}", chunks[random.usize(..chunks.len())]);
    if random.u8(..8) == 0 {
        // An extension that never ends.
        return format!("{POST}Transfer-Encoding: chunked\r\n\r\n3;{}", "x".repeat(random.usize(1..200_000))).into();
    }
    text.into()
}

/// Too many headers, or too long ones.
fn flood(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut text = b"GET /api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".to_vec();
    match random.u8(..3) {
        0 => (0..random.usize(50..30_000)).for_each(|i| text.extend_from_slice(format!("X-{i}: y\r\n").as_bytes())),
        1 => text.extend_from_slice(format!("X: {}\r\n", "y".repeat(random.usize(1000..2_000_000))).as_bytes()),
        _ => text = format!("GET /{} HTTP/1.1\r\nHost: x\r\n", "a".repeat(random.usize(1000..2_000_000))).into(),
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn truncated(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut whole = text(&request::ask(random));
    whole.truncate(random.usize(..=whole.len().min(5000)));
    whole
}

fn mutated(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut whole = format!("GET {MAPS} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nConnection: close\r\n\r\n").into_bytes();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..whole.len());
        whole[at] = random.u8(..);
    }
    whole
}

fn pipelined(random: &mut fastrand::Rng) -> Vec<u8> {
    "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".repeat(random.usize(2..300)).into()
}

/// Requests to speak something else.
fn upgrades(random: &mut fastrand::Rng) -> Vec<u8> {
    let protocol = ["websocket", "SPDY/3.1", "h2c", "TLS/1.0", "", "websocket, SPDY/3.1"][random.usize(..6)];
    let path = [
        "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1",
        "/api",
        "/api/v1/namespaces/default/pods/p/exec?command=sh&stdin=true",
    ];
    let path = path[random.usize(..path.len())];
    let key = ["dGhlIHNhbXBsZSBub25jZQ==", "short", "", "\u{1}"][random.usize(..4)];
    let version = ["13", "8", "x", ""][random.usize(..4)];
    let offered = ["v5.channel.k8s.io", "v1.channel.k8s.io", "nobody.knows", ""][random.usize(..4)];
    let noise: Vec<u8> = (0..random.usize(..100)).map(|_| random.u8(..)).collect();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Version: {version}\r\nSec-WebSocket-Protocol: {offered}\r\n\r\n"
    );
    [head.as_bytes(), &noise].concat()
}
