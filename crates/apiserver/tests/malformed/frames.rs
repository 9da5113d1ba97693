//! HTTP/2 frames that break its rules.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A header block of literals that are not indexed: `GET` of a path.
fn request(method: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)] {
        literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    block.push(name.len() as u8);
    block.extend_from_slice(name);
    block.push(value.len() as u8);
    block.extend_from_slice(value);
}

/// A connection's worth of frames.
pub fn malformed(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    if random.u8(..20) == 0 {
        out[random.usize(..PREFACE.len())] ^= 1 << random.u8(..8);
    }
    if random.u8(..10) != 0 {
        frame(&mut out, SETTINGS, 0, 0, &[]);
    }
    for _ in 0..random.usize(1..4) {
        match random.u8(..16) {
            0 => noise(random, &mut out),
            1 => random_frames(random, &mut out),
            2 => settings(random, &mut out),
            3 => wrong_streams(random, &mut out),
            4 => continuations(random, &mut out),
            5 => windows(random, &mut out),
            6 => rapid_resets(random, &mut out),
            7 => many_streams(random, &mut out),
            8 => header_blocks(random, &mut out),
            9 => pseudo_headers(random, &mut out),
            10 => pings(random, &mut out),
            11 => data(random, &mut out),
            12 => huge_headers(random, &mut out),
            13 => padding(random, &mut out),
            14 => out.truncate(random.usize(..=out.len())),
            _ => frame(&mut out, GOAWAY, 0, 0, &[0; 8][..random.usize(..9)]),
        }
    }
    out
}

fn noise(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    out.extend((0..random.usize(..3000)).map(|_| random.u8(..)));
}

fn random_frames(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    for _ in 0..random.usize(1..60) {
        let payload: Vec<u8> = (0..random.usize(..64)).map(|_| random.u8(..)).collect();
        frame(out, random.u8(..14), random.u8(..), random.u32(..6), &payload);
    }
}

fn settings(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    for _ in 0..random.usize(1..400) {
        let mut payload = Vec::new();
        for _ in 0..random.usize(..6) {
            payload.extend_from_slice(&random.u16(..9).to_be_bytes());
            payload.extend_from_slice(&random.u32(..).to_be_bytes());
        }
        payload.truncate(payload.len() - payload.len().min(random.usize(..8) / 6));
        frame(out, SETTINGS, random.u8(..2), random.u32(..20) / 19, &payload);
    }
}

fn wrong_streams(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let stream = [0, 2, 1, 1, u32::MAX, 0x7fff_ffff][random.usize(..6)];
    frame(out, HEADERS, END_HEADERS | END_STREAM, stream, &request("GET", "/api"));
    let kind = [DATA, HEADERS, PRIORITY, RST, PUSH, CONTINUATION, WINDOW][random.usize(..7)];
    frame(out, kind, random.u8(..), [0, 1, 2, 3, 99][random.usize(..5)], &[0, 0, 0, 1, 0][..random.usize(..6)]);
}

/// Header blocks that go on and on.
fn continuations(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    frame(out, HEADERS, 0, 1, &request("GET", "/api"));
    let mut block = Vec::new();
    literal(&mut block, b"x-more", &[b'y'; 100]);
    let size = random.usize(1..40);
    for _ in 0..random.usize(1..2000) {
        frame(out, CONTINUATION, 0, 1, &block.repeat(size));
    }
}

fn windows(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    for _ in 0..random.usize(1..50) {
        let increment = [0, 1, 0x7fff_ffff, u32::MAX][random.usize(..4)];
        frame(out, WINDOW, 0, random.u32(..3), &increment.to_be_bytes());
    }
}

/// Requests that are taken back at once.
fn rapid_resets(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let paths = ["/api/v1/namespaces", "/openapi/v2", "/api/v1/configmaps?watch=true", "/apis"];
    let path = paths[random.usize(..paths.len())];
    for index in 0..random.u32(100..3000) {
        frame(out, HEADERS, END_HEADERS | END_STREAM, 2 * index + 1, &request("GET", path));
        frame(out, RST, 0, 2 * index + 1, &8u32.to_be_bytes());
    }
}

/// More requests at once than are allowed, whose bodies never come.
fn many_streams(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    for index in 0..random.u32(50..600) {
        let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
        frame(out, HEADERS, END_HEADERS, 2 * index + 1, &request("POST", path));
    }
}

/// Header blocks that HPACK forbids.
fn header_blocks(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let blocks: [&[u8]; 9] = [
        &[0x80],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0x3f, 0xff, 0xff, 0xff, 0x7f],
        &[0x00, 0x85, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, b'x'],
        &[0x00, 0x7f, 0xff, 0xff, 0xff, 0x07],
        &[0x40, 0x01],
        &[0xbe],
        &[0x00, 0x00, 0x00],
        &[],
    ];
    let mut block = if random.bool() { request("GET", "/api") } else { Vec::new() };
    block.extend_from_slice(blocks[random.usize(..blocks.len())]);
    frame(out, HEADERS, END_HEADERS | END_STREAM, 1, &block);
}

fn pseudo_headers(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let mut block = request(
        ["GET", "", "get", "G T", "CONNECT"][random.usize(..5)],
        ["/api", "", "*", "api", "/%"][random.usize(..5)],
    );
    let odd: [(&[u8], &[u8]); 9] = [
        (b":path", b"/again"),
        (b":status", b"200"),
        (b":unknown", b"x"),
        (b"Upper", b"x"),
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"te", b"gzip"),
        (b"x", b"a\r\nb: c"),
        (b"content-length", b"-5"),
    ];
    let (name, value) = odd[random.usize(..odd.len())];
    literal(&mut block, name, value);
    frame(out, HEADERS, END_HEADERS | END_STREAM, 1, &block);
}

fn pings(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let length = [8, 8, 8, 0, 9][random.usize(..5)];
    for _ in 0..random.usize(1..3000) {
        frame(out, PING, 0, 0, &[7; 9][..length]);
    }
}

/// More or less than the length that was announced, and more than the window.
fn data(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let mut block = request("POST", "/api/v1/namespaces/default/configmaps?dryRun=All");
    literal(&mut block, b"content-type", b"application/json");
    literal(&mut block, b"content-length", [&b"25"[..], b"3", b"99999"][random.usize(..3)]);
    frame(out, HEADERS, END_HEADERS, 1, &block);
    let size = [25, 16_384, 16_385, 100_000][random.usize(..4)];
    for _ in 0..random.usize(1..40) {
        frame(out, DATA, 0, 1, &vec![b' '; size]);
    }
    frame(out, DATA, END_STREAM, 1, b"{}");
}

fn huge_headers(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let mut block = request("GET", "/api");
    for _ in 0..random.usize(50..130) {
        literal(&mut block, b"x-large", &[b'y'; 120]);
    }
    frame(out, HEADERS, END_HEADERS | END_STREAM, 1, &block);
}

/// Padding that is longer than its frame; priorities of a stream on itself.
fn padding(random: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let mut block = vec![random.u8(..)];
    block.extend_from_slice(&request("GET", "/api"));
    frame(out, HEADERS, END_HEADERS | END_STREAM | 8, 1, &block);
    frame(out, PRIORITY, 0, 3, &[0, 0, 0, 3, 255]);
}
