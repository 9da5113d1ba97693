//! The formats of texts that custom resources may have. A format that is not known says nothing.

use std::{net::Ipv6Addr, sync::LazyLock};

use api::schema::interned;
use base64::{Engine, prelude::BASE64_STANDARD};
use regex::Regex;

/// Whether a text is of a format.
type Test = fn(&str) -> bool;

/// By name without dashes.
const FORMATS: &[(&str, Test)] = &[
    ("bsonobjectid", |text| matches(&BSON, text)),
    ("uri", is_uri),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", is_ipv4),
    ("ipv6", |text| text.parse::<Ipv6Addr>().is_ok()),
    ("cidr", is_cidr),
    ("mac", |text| matches(&MAC, text)),
    ("uuid", |text| matches(&UUID, text)),
    ("uuid3", |text| matches(&UUID3, text)),
    ("uuid4", |text| matches(&UUID4, text)),
    ("uuid5", |text| matches(&UUID5, text)),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |text| matches(&SSN, text)),
    ("hexcolor", |text| matches(&HEX_COLOR, text)),
    ("rgbcolor", |text| matches(&RGB_COLOR, text)),
    ("byte", |text| !text.is_empty() && BASE64_STANDARD.decode(text).is_ok()),
    ("password", |_| true),
    ("date", is_date),
    ("duration", is_duration),
    ("datetime", is_date_time),
    ("k8sshortname", |text| api::validate::names::label(text).is_empty()),
    ("k8slongname", |text| api::validate::names::subdomain(text).is_empty()),
];

macro_rules! patterns {
    ($($name:ident = $text:literal;)*) => {
        $(static $name: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new($text).ok());)*
    };
}

patterns! {
    BSON = "^[0-9a-fA-F]{24}$";
    HOSTNAME = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    MAC = "^([0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}|[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){7}|[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){19}|[0-9a-fA-F]{4}(\\.[0-9a-fA-F]{4}){2}|[0-9a-fA-F]{4}(\\.[0-9a-fA-F]{4}){3}|[0-9a-fA-F]{4}(\\.[0-9a-fA-F]{4}){9})$";
    UUID = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID3 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    CREDIT_CARD = "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$";
    SSN = "^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    HEX_COLOR = "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$";
    TIME = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    WORDS = r"([0-9]+)\s*(nanoseconds?|nanos?|ns|microseconds?|micros?|us|µs|milliseconds?|millis?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d|weeks?|w)";
}

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// A format that is looked at for values of a type; empty for any other.
pub fn supported(ty: &str, format: &str) -> &'static str {
    let known = match ty {
        "" | "string" => find(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if known { interned(format) } else { "" }
}

fn find(format: &str) -> Option<Test> {
    let name = format.replace('-', "");
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, test)| *test)
}

/// Whether a text is of a format, if that is one of texts.
pub(super) fn is_valid(format: &str, text: &str) -> bool {
    format.is_empty() || find(format).is_none_or(|test| test(text))
}

/// An absolute path or an absolute URI, as requests have them.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return valid_escapes(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        && !rest.is_empty()
        && valid_escapes(rest)
}

fn valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once('<') {
        Some((_, rest)) => rest.trim_end().strip_suffix('>').unwrap_or_default(),
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let dotted = |text: &str| text.split('.').all(|part| !part.is_empty() && part.chars().all(atom));
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || dotted(local)) && (literal || dotted(domain))
}

fn is_hostname(text: &str) -> bool {
    matches(&HOSTNAME, text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

/// Leading zeros are allowed.
fn is_ipv4(text: &str) -> bool {
    let plain = text.strip_prefix("::ffff:").unwrap_or(text);
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u64>().is_ok_and(|n| n < 256)
    };
    plain.split('.').count() == 4 && plain.split('.').all(part)
        || text.contains('.') && text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = if is_ipv4(address) && !address.contains(':') {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) && length.parse::<u32>().is_ok_and(|n| n <= most)
}

fn digits(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = digits(text).to_uppercase();
    let value = |(at, c): (usize, char)| match c {
        'X' if at == 9 => Some(10),
        c => c.to_digit(10),
    };
    let values: Option<Vec<u32>> = text.chars().enumerate().map(value).collect();
    values.is_some_and(|values| {
        values.len() == 10 && values.iter().zip(1..).map(|(value, weight)| value * weight).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    let values: Option<Vec<u32>> = digits(text).chars().map(|c| c.to_digit(10)).collect();
    values.is_some_and(|values| {
        let weighted = values.iter().zip([1, 3].into_iter().cycle()).map(|(value, weight)| value * weight);
        values.len() == 13 && weighted.sum::<u32>() % 10 == 0
    })
}

fn is_credit_card(text: &str) -> bool {
    let plain: String = text.chars().filter(char::is_ascii_digit).collect();
    if !matches(&CREDIT_CARD, &plain) {
        return false;
    }
    let doubled = |(at, digit): (usize, u32)| match digit * 2 {
        _ if at % 2 == 0 => digit,
        double if double > 9 => double - 9,
        double => double,
    };
    plain.chars().rev().filter_map(|c| c.to_digit(10)).enumerate().map(doubled).sum::<u32>() % 10 == 0
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok() && text.as_bytes()[4] == b'-'
}

fn is_date_time(text: &str) -> bool {
    if text.len() < 4 {
        return false;
    }
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let in_time = time.get(..8).is_some_and(|time| &time[..2] <= "23" && &time[3..5] <= "59" && &time[6..] <= "59");
    is_date(date) && matches(&TIME, time) && in_time
}

/// As Go writes durations, or with words as Scala does.
fn is_duration(text: &str) -> bool {
    api::duration::parse(text).is_some() || matches(&WORDS, &text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_formats() {
        for (format, good, bad) in [
            ("date-time", "2020-01-01T00:00:00Z", "2020-01-01"),
            ("date", "2020-02-29", "2020-02-30"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid4", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "f47ac10b-58cc-3372-a567-0e02b2c3d479"),
            ("uri", "https://example.com/a%20b", "example"),
            ("email", "A <a@b.c>", "a.b.c"),
            ("hostname", "example.com", "-a"),
            ("mac", "00:11:22:33:44:55", "00:11"),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("duration", "1h30m", "soon"),
            ("duration", "22 ns", "x"),
            ("byte", "aGk=", "a"),
            ("k8s-short-name", "a-b", "a.b"),
        ] {
            assert!(is_valid(format, good), "{format} {good}");
            assert!(!is_valid(format, bad), "{format} {bad}");
        }
        assert_eq!(supported("string", "nope"), "");
        assert_eq!(supported("integer", "int32"), "int32");
    }
}
