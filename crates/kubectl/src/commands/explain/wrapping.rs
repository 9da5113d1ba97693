//! Wrapping of descriptions: by characters for OpenAPI v3, by words and paragraphs for v2.

/// Breaks lines at spaces so that they have at most `limit` characters.
pub fn wrap_words(text: &str, limit: usize) -> String {
    let (mut out, mut word, mut spaces) = (String::new(), String::new(), String::new());
    let mut column = 0;
    let count = |text: &str| text.chars().count();
    for character in text.chars() {
        if character == '\n' {
            if !word.is_empty() || column + count(&spaces) <= limit {
                out.push_str(&spaces);
            }
            out.push_str(&word);
            spaces.clear();
            word.clear();
            out.push('\n');
            column = 0;
        } else if character.is_whitespace() && character != '\u{a0}' {
            if spaces.is_empty() || !word.is_empty() {
                column += count(&spaces) + count(&word);
                out.push_str(&spaces);
                out.push_str(&word);
                spaces.clear();
                word.clear();
            }
            spaces.push(character);
        } else {
            word.push(character);
            let length = count(&word);
            if column + length + count(&spaces) > limit && length < limit {
                out.push('\n');
                column = 0;
                spaces.clear();
            }
        }
    }
    if !word.is_empty() || column + count(&spaces) <= limit {
        out.push_str(&spaces);
    }
    out.push_str(&word);
    out
}

/// Indents all lines.
pub fn indent(text: &str, amount: usize) -> String {
    let pad = " ".repeat(amount);
    format!("{pad}{}", text.replace('\n', &format!("\n{pad}")))
}

/// The lines of a text that is filled anew; lists, code and empty lines stay.
pub fn fill_paragraphs(text: &str, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line: Vec<&str> = Vec::new();
    let mut last_word = "";
    for source in text.split('\n') {
        if source.starts_with("    ") {
            flush(&mut line, &mut lines);
            last_word = "";
            lines.push(source.to_owned());
            continue;
        }
        if !lines.is_empty() && source.trim().is_empty() {
            flush(&mut line, &mut lines);
            last_word = "";
            lines.push(String::new());
            continue;
        }
        if (last_word.ends_with(':') || starts_new_line(source)) && !line.is_empty() {
            flush(&mut line, &mut lines);
        }
        for word in source.split_whitespace() {
            last_word = word;
            let length: usize = line.iter().map(|word| word.len() + 1).sum::<usize>() + word.len();
            if !line.is_empty() && length > limit {
                flush(&mut line, &mut lines);
            }
            line.push(word);
        }
    }
    flush(&mut line, &mut lines);
    lines
}

fn flush(line: &mut Vec<&str>, lines: &mut Vec<String>) {
    if !line.is_empty() {
        lines.push(line.join(" "));
        line.clear();
    }
}

/// Whether a line is empty or begins an item of a list.
fn starts_new_line(text: &str) -> bool {
    let text = text.trim();
    let Some((first, _)) = text.split_once(char::is_whitespace) else { return text.is_empty() };
    let number = first.strip_suffix('.').unwrap_or(first);
    first == "-" || first == "*" || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_at_the_limit() {
        assert_eq!(wrap_words("one two three", 7), "one two\nthree");
        assert_eq!(wrap_words("a-very-long-word b", 5), "a-very-long-word\nb");
        assert_eq!(wrap_words("ends\n", 10), "ends\n");
    }

    #[test]
    fn paragraphs_are_filled_and_lists_kept() {
        assert_eq!(fill_paragraphs("one\ntwo three\n\n- item", 9), ["one two", "three", "", "- item"]);
    }
}
