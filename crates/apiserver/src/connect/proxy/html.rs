//! Rewrites links in HTML tags of proxied responses.
//!
//! Compressed pages and pages above a size limit are unchanged.

use apiserver_core::{Body, BodyError, body::full_body};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Frame;

use super::rewrite::LinkRewriter;

/// Maximum size of a rewritten page.
const MAX_PAGE: usize = 8 << 20;

/// The link attributes by tag.
const ATTRIBUTES: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Rewrites the links of an HTML response; other responses are unchanged.
pub async fn rewrite_response(answer: Response<Body>, links: &LinkRewriter) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    if !is_html(&head.headers) {
        return Response::from_parts(head, body);
    }
    match read_page(body).await {
        Ok(page) => {
            let page = rewrite_page(&page, links);
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(page.len()));
            Response::from_parts(head, full_body(page))
        }
        Err(body) => Response::from_parts(head, body),
    }
}

fn is_html(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let media = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    media == "text/html" && text(header::CONTENT_ENCODING).is_empty()
}

/// Reads a whole page. `Err` is the equivalent body, if the page is too large or fails.
async fn read_page(body: Body) -> Result<Bytes, Body> {
    let mut stream = BodyStream::new(body);
    let mut page = BytesMut::new();
    loop {
        match stream.next().await {
            None => return Ok(page.freeze()),
            Some(Ok(frame)) => {
                page.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
                if page.len() > MAX_PAGE {
                    return Err(resume_body(page.freeze(), Box::pin(stream)));
                }
            }
            Some(Err(error)) => {
                let broken = futures::stream::once(async move { Err(error) });
                return Err(resume_body(page.freeze(), Box::pin(broken)));
            }
        }
    }
}

fn resume_body(start: Bytes, rest: futures::stream::BoxStream<'static, Result<Frame<Bytes>, BodyError>>) -> Body {
    let start = futures::stream::once(async move { Ok(Frame::data(start)) });
    StreamBody::new(start.chain(rest)).boxed_unsync()
}

/// Rewrites the links of a page. Other bytes are copied, whatever their encoding.
fn rewrite_page(page: &[u8], links: &LinkRewriter) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() + page.len() / 8);
    let mut at = 0;
    while let Some(found) = find_bytes(page, at, b"<") {
        out.extend_from_slice(&page[at..found]);
        let rest = &page[found..];
        let length = if rest.starts_with(b"<!--") {
            find_bytes(rest, 4, b"-->").map_or(rest.len(), |end| end + 3)
        } else if rest.get(1).is_some_and(u8::is_ascii_alphabetic) {
            let tag = HtmlTag::parse(rest);
            tag.write_to(rest, links, &mut out);
            at = found + tag.length;
            let text = raw_text_end(page, at, tag.name(rest));
            out.extend_from_slice(&page[at..text]);
            at = text;
            continue;
        } else {
            1
        };
        out.extend_from_slice(&rest[..length]);
        at = found + length;
    }
    out.extend_from_slice(&page[at..]);
    out
}

/// The end of a raw text element such as `script`; `at` for other elements.
fn raw_text_end(page: &[u8], at: usize, name: &[u8]) -> usize {
    const RAW: [&[u8]; 4] = [b"script", b"style", b"textarea", b"title"];
    let Some(raw) = RAW.into_iter().find(|raw| name.eq_ignore_ascii_case(raw)) else { return at };
    let mut from = at;
    while let Some(found) = find_bytes(page, from, b"</") {
        let end = page.get(found + 2..found + 2 + raw.len());
        if end.is_some_and(|end| end.eq_ignore_ascii_case(raw)) {
            return found;
        }
        from = found + 2;
    }
    page.len()
}

/// A tag as offsets in the text that starts with it.
struct HtmlTag {
    name_end: usize,
    /// Start and end of each name and value.
    attributes: Vec<[usize; 4]>,
    length: usize,
}

impl HtmlTag {
    /// Parses `<name attribute="value" …>`; an unclosed tag ends with the text.
    fn parse(text: &[u8]) -> Self {
        let skip = |mut at: usize, while_: &dyn Fn(u8) -> bool| {
            while text.get(at).is_some_and(|byte| while_(*byte)) {
                at += 1;
            }
            at
        };
        let space = |byte: u8| byte.is_ascii_whitespace() || byte == b'/';
        let name_end = skip(1, &|byte| !space(byte) && byte != b'>');
        let (mut at, mut attributes) = (name_end, Vec::new());
        loop {
            at = skip(at, &space);
            match text.get(at) {
                None => return Self { name_end, attributes, length: text.len() },
                Some(b'>') => return Self { name_end, attributes, length: at + 1 },
                Some(_) => {}
            }
            // The first byte is always part of the name, so that every iteration advances.
            let end = skip(at + 1, &|byte| !space(byte) && byte != b'=' && byte != b'>');
            let after = skip(end, &|byte| byte.is_ascii_whitespace());
            if text.get(after) != Some(&b'=') {
                at = end;
                continue;
            }
            let start = skip(after + 1, &|byte| byte.is_ascii_whitespace());
            let (from, to, next) = match text.get(start) {
                Some(quote @ (b'"' | b'\'')) => {
                    let to = skip(start + 1, &|byte| byte != *quote);
                    (start + 1, to, (to + 1).min(text.len()))
                }
                _ => {
                    let to = skip(start, &|byte| !byte.is_ascii_whitespace() && byte != b'>');
                    (start, to, to)
                }
            };
            attributes.push([at, end, from, to]);
            at = next;
        }
    }

    fn name<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[1..self.name_end]
    }

    fn write_to(&self, text: &[u8], links: &LinkRewriter, out: &mut Vec<u8>) {
        let name = self.name(text);
        let known = ATTRIBUTES.iter().find(|(tag, _)| name.eq_ignore_ascii_case(tag.as_bytes()));
        let names = known.map_or(&[][..], |(_, names)| names);
        let mut at = 0;
        for [name, name_end, from, to] in &self.attributes {
            let name = &text[*name..*name_end];
            let is_link = names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            if let (true, Ok(value)) = (is_link, std::str::from_utf8(&text[*from..*to])) {
                out.extend_from_slice(&text[at..*from]);
                out.extend_from_slice(links.rewrite_link(value).as_bytes());
                at = *to;
            }
        }
        out.extend_from_slice(&text[at..self.length]);
    }
}

fn find_bytes(text: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    text.get(from..)?.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, want: &str) {
        let links = LinkRewriter { prefix: "/proxy".into(), ..Default::default() };
        assert_eq!(String::from_utf8_lossy(&rewrite_page(page.as_bytes(), &links)), want);
    }

    #[test]
    fn links_in_tags_are_rewritten() {
        check("<a class=x href=\"/y\">/z</a>", "<a class=x href=\"/proxy/y\">/z</a>");
        check("<IMG SRC='/i.png'/><p href=\"/no\">", "<IMG SRC='/proxy/i.png'/><p href=\"/no\">");
        check("<form action = /go method=post>", "<form action = /proxy/go method=post>");
        check("<!-- <a href=\"/x\"> --><a href=\"rel\">", "<!-- <a href=\"/x\"> --><a href=\"rel\">");
        check(
            "<script src=\"/s\">if (a<b) '<a href=\"/x\">'</script>",
            "<script src=\"/proxy/s\">if (a<b) '<a href=\"/x\">'</script>",
        );
    }

    #[test]
    fn malformed_html_is_unchanged() {
        for text in [
            "",
            "<",
            "a < b",
            "<a",
            "<a href",
            "<a href=",
            "<a href=\"",
            "<a =\"/x\">",
            "<a / = / >",
            "<script>",
            "<!--",
        ] {
            check(text, text);
        }
        check("<a href=\"/open", "<a href=\"/proxy/open");
    }
}
