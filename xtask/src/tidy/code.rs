//! Rust text without its comments and literals, so that rules look only at code. Lines keep their numbers.

/// A file without comments and literals.
pub struct StrippedCode(String);

impl StrippedCode {
    pub fn of(text: &str) -> Self {
        let mut code = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end = skipped(rest, code.chars().next_back()).unwrap_or(0);
            let (gone, after) = rest.split_at(end);
            code.extend(gone.chars().filter(|c| *c == '\n'));
            rest = after;
            if end == 0 {
                code.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        Self(code)
    }

    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.lines().map(str::to_owned)
    }
}

/// The length of the comment or literal that `text` begins with; `None` if it begins with code.
fn skipped(text: &str, before: Option<char>) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(block_comment(text));
    }
    if text.starts_with('"') {
        return Some(quoted(text, '"'));
    }
    if let Some(after_quote) = text.strip_prefix('\'') {
        // A lifetime has no closing quote after one character.
        let is_character = after_quote.starts_with('\\') || after_quote.chars().nth(1) == Some('\'');
        return is_character.then(|| quoted(text, '\''));
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if in_word { None } else { raw_string(text) }
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        (depth, at) = match rest {
            [b'/', b'*', ..] => (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth - 1, at + 2),
            _ => (depth, at + 1),
        };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn quoted(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return at + 1;
        }
    }
    text.len()
}

/// `r"…"`, `r#"…"#`, `br#"…"#` and so on.
fn raw_string(text: &str) -> Option<usize> {
    let after_r = text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = after_r.len() - after_r.trim_start_matches('#').len();
    let body = after_r[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&closing).map_or(body.len(), |end| end + closing.len());
    Some(text.len() - body.len() + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        let check = |text: &str, expected: &str| assert_eq!(StrippedCode::of(text).0, expected, "{text}");
        check("a // b\nc", "a \nc");
        check("a /* b /* c\n */ d */ e", "a \n e");
        check(r#"a("b\"c", 'd', '\'', 'e')"#, "a(, , , )");
        check("fn f<'a>(x: &'a str) -> char { '\"' }", "fn f<'a>(x: &'a str) -> char {  }");
        check("r#\"a \" b\n\"# + br\"c\" + for\"d\"", "\n +  + for");
        check("r#type, \"ü\", 'ü', x", "r#type, , , x");
    }
}
