//! `printf`: Go's formatting verbs.

use api::Value;

use super::value_text::print_value;

/// A verb with its flags, width and precision.
#[derive(Default)]
struct FormatVerb {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// Widths and precisions beyond this are cut.
const MAX_WIDTH: usize = 1_000_000;

/// Formats a template with arguments.
pub fn format_text(template: &str, arguments: &[Option<Value>]) -> String {
    let mut out = String::new();
    let mut characters = template.chars().peekable();
    let (mut next_argument, mut any_reordered) = (0, false);
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut verb = FormatVerb::default();
        while let Some(flag) = characters.peek().copied() {
            match flag {
                '-' => verb.minus = true,
                '+' => verb.plus = true,
                '#' => verb.sharp = true,
                ' ' => verb.space = true,
                '0' => verb.zero = true,
                _ => break,
            }
            characters.next();
        }
        let mut reordered = take_index(&mut characters, arguments.len(), &mut next_argument);
        let mut faults = String::new();
        if characters.peek() == Some(&'*') {
            characters.next();
            match take_integer(arguments, &mut next_argument) {
                Some(width) => {
                    verb.minus |= width < 0;
                    verb.width = Some((width.unsigned_abs() as usize).min(MAX_WIDTH));
                }
                None => faults.push_str("%!(BADWIDTH)"),
            }
            reordered |= take_index(&mut characters, arguments.len(), &mut next_argument);
        } else {
            verb.width = take_number(&mut characters);
        }
        if characters.peek() == Some(&'.') {
            characters.next();
            reordered |= take_index(&mut characters, arguments.len(), &mut next_argument);
            if characters.peek() == Some(&'*') {
                characters.next();
                match take_integer(arguments, &mut next_argument) {
                    Some(precision) => verb.precision = usize::try_from(precision).ok().map(|n| n.min(MAX_WIDTH)),
                    None => faults.push_str("%!(BADPREC)"),
                }
            } else {
                verb.precision = Some(take_number(&mut characters).unwrap_or(0));
            }
        }
        reordered |= take_index(&mut characters, arguments.len(), &mut next_argument);
        any_reordered |= reordered;
        out.push_str(&faults);
        match characters.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(letter) => match arguments.get(next_argument) {
                None if reordered => out.push_str(&format!("%!{letter}(BADINDEX)")),
                None => out.push_str(&format!("%!{letter}(MISSING)")),
                Some(argument) => {
                    next_argument += 1;
                    out.push_str(&format_argument(&verb, letter, argument.as_ref()));
                }
            },
        }
    }
    if next_argument < arguments.len() && !any_reordered {
        let rest: Vec<String> = arguments[next_argument..].iter().map(|value| typed_text(value.as_ref())).collect();
        out.push_str(&format!("%!(EXTRA {})", rest.join(", ")));
    }
    out
}

/// Takes `[n]`, the number of the argument that comes next; whether there was one.
fn take_index(characters: &mut std::iter::Peekable<std::str::Chars>, count: usize, next: &mut usize) -> bool {
    if characters.peek() != Some(&'[') {
        return false;
    }
    characters.next();
    let number = take_number(characters);
    let closed = characters.find(|character| *character == ']').is_some();
    *next = match number {
        Some(number) if closed && (1..=count).contains(&number) => number - 1,
        _ => count,
    };
    true
}

/// Takes an argument that is a width or a precision.
fn take_integer(arguments: &[Option<Value>], next: &mut usize) -> Option<i64> {
    let number = arguments.get(*next).and_then(Option::as_ref).and_then(Value::as_i64);
    *next += usize::from(*next < arguments.len());
    number.filter(|number| number.unsigned_abs() <= MAX_WIDTH as u64)
}

fn take_number(characters: &mut std::iter::Peekable<std::str::Chars>) -> Option<usize> {
    let mut number: Option<usize> = None;
    while let Some(digit) = characters.peek().and_then(|c| c.to_digit(10)) {
        number = Some((number.unwrap_or(0) * 10 + digit as usize).min(MAX_WIDTH));
        characters.next();
    }
    number
}

fn typed_text(value: Option<&Value>) -> String {
    match value {
        None => "<nil>".to_owned(),
        Some(value) => format!("{}={}", type_name(value), print_value(value)),
    }
}

/// The Go type of a value: constants of templates are `int`, numbers of JSON `float64`.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int",
        other => api::json::go_type(other),
    }
}

fn format_argument(verb: &FormatVerb, letter: char, value: Option<&Value>) -> String {
    let Some(value) = value else {
        return if letter == 'v' { pad(verb, "<nil>".into(), false) } else { format!("%!{letter}(<nil>)") };
    };
    let bad = || format!("%!{letter}({})", typed_text(Some(value)));
    let text = match (letter, value) {
        ('v', value) => {
            let numeric = value.is_number();
            return pad(verb, print_value(value), numeric);
        }
        ('s', Value::String(text)) => match verb.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.clone(),
        },
        ('s', Value::Array(_) | Value::Object(_)) => print_value(value),
        ('q', Value::String(text)) => api::json::go_quote(text),
        ('x', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ('X', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
        ('t', Value::Bool(flag)) => flag.to_string(),
        ('T', value) => type_name(value).to_owned(),
        (_, Value::Number(number)) => match format_number(verb, letter, number) {
            Some(text) => return pad(verb, text, true),
            None => return bad(),
        },
        _ => return bad(),
    };
    pad(verb, text, false)
}

fn format_number(verb: &FormatVerb, letter: char, number: &serde_json::Number) -> Option<String> {
    let precision = verb.precision.unwrap_or(6).min(1000);
    if let Some(integer) = number.as_i64() {
        let magnitude = integer.unsigned_abs();
        let text = match letter {
            'd' => magnitude.to_string(),
            'x' => format!("{magnitude:x}"),
            'X' => format!("{magnitude:X}"),
            'o' => format!("{magnitude:o}"),
            'b' => format!("{magnitude:b}"),
            'U' => return Some(format!("U+{magnitude:04X}")),
            'c' => return char::from_u32(u32::try_from(integer).ok()?).map(String::from),
            // Numbers of JSON are floats in Go.
            'f' | 'F' | 'e' | 'g' => return format_float(verb, letter, integer as f64, precision),
            _ => return None,
        };
        return Some(sign(verb, integer < 0, text));
    }
    format_float(verb, letter, number.as_f64()?, precision)
}

fn format_float(verb: &FormatVerb, letter: char, value: f64, precision: usize) -> Option<String> {
    let text = match letter {
        'f' | 'F' => format!("{:.precision$}", value.abs()),
        'e' => {
            let text = format!("{:.precision$e}", value.abs());
            let (mantissa, exponent) = text.split_once('e')?;
            let exponent: i32 = exponent.parse().ok()?;
            format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        'g' => api::json::go_float(value.abs()),
        _ => return None,
    };
    Some(sign(verb, value < 0.0, text))
}

fn sign(verb: &FormatVerb, negative: bool, text: String) -> String {
    match (negative, verb.plus, verb.space) {
        (true, ..) => format!("-{text}"),
        (false, true, _) => format!("+{text}"),
        (false, false, true) => format!(" {text}"),
        _ => text,
    }
}

fn pad(verb: &FormatVerb, text: String, numeric: bool) -> String {
    let missing = verb.width.unwrap_or(0).saturating_sub(text.chars().count());
    if missing == 0 {
        return text;
    }
    if verb.minus {
        return format!("{text}{}", " ".repeat(missing));
    }
    if verb.zero && (numeric || !verb.minus) {
        let (sign, digits) = match text.strip_prefix(['-', '+']).filter(|_| numeric) {
            Some(digits) => (&text[..1], digits),
            None => ("", text.as_str()),
        };
        return format!("{sign}{}{digits}", "0".repeat(missing));
    }
    format!("{}{text}", " ".repeat(missing))
}
