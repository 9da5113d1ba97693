//! The `format`s of OpenAPI schemas: `date-time`, `ipv4`, `uuid`, …, validated as upstream's library does.

use std::{net::Ipv6Addr, sync::LazyLock};

use jiff::civil::Date;
use regex::Regex;

use crate::{duration, go_regexp, net, url::Url};

/// Whether a string conforms to a format; `None` for an unknown format.
pub fn matches_format(name: &str, text: &str) -> Option<bool> {
    let name = name.replace('-', "");
    if let Some((_, pattern)) = PATTERNS.iter().find(|(known, _)| *known == name) {
        return Some(pattern.is_match(text));
    }
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, right)| right(text))
}

/// Whether a format is known for a schema type; an empty type means `string`.
pub fn is_known_format(ty: &str, name: &str) -> bool {
    match ty {
        "" | "string" => matches_format(name, "").is_some(),
        "integer" => matches!(name, "int32" | "int64"),
        "number" => matches!(name, "float" | "double"),
        _ => false,
    }
}

type FormatCheck = fn(&str) -> bool;

/// Formats validated by a function, by name without dashes.
const FORMATS: &[(&str, FormatCheck)] = &[
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|c| c.is_ascii_hexdigit())),
    ("uri", |text| Url::parse(text).is_ok()),
    ("email", is_email),
    ("hostname", |text| {
        text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && is_lazy_match(&HOSTNAME, text)
    }),
    ("ipv4", |text| text.contains('.') && net::lenient_ip(text).is_some()),
    ("ipv6", |text| text.parse::<Ipv6Addr>().is_ok()),
    ("cidr", |text| net::lenient_cidr(text).is_some()),
    ("mac", is_mac),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |text| text.len() == 11 && is_lazy_match(&SSN, text)),
    ("password", |_| true),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", |text| duration::parse_lenient(text).is_some()),
    ("k8sshortname", |text| text.len() <= 63 && is_hostname_label(text)),
    ("k8slongname", |text| text.len() <= 253 && text.split('.').all(is_hostname_label)),
];

/// Formats validated by a regular expression.
static PATTERNS: LazyLock<[(&str, Regex); 7]> = LazyLock::new(|| {
    let hex = "[0-9a-fA-F]";
    let uuid = |version: &str, variant: &str| {
        let rest = if version.is_empty() { "{4}" } else { "{3}" };
        let last = if variant.is_empty() { "{4}" } else { "{3}" };
        compile_regex(&format!("^{hex}{{8}}-?{hex}{{4}}-?{version}{hex}{rest}-?{variant}{hex}{last}-?{hex}{{12}}$"))
    };
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    [
        ("uuid", uuid("", "")),
        ("uuid3", uuid("3", "")),
        ("uuid4", uuid("4", "[89abAB]")),
        ("uuid5", uuid("5", "[89abAB]")),
        ("hexcolor", compile_regex(&format!("^#?({hex}{{3}}|{hex}{{6}})$"))),
        ("rgbcolor", compile_regex(&format!(r"^rgb\({part},{part},{part}\)$"))),
        ("byte", compile_regex("^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")),
    ]
});

/// Hostname pattern; label lengths are checked separately.
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let sign = r"a-zA-Z0-9\p{S}\p{L}";
    let single = format!("[{sign}](-?[{sign}]*)?");
    let domain = format!(r"([{sign}]([{sign}-]*[{sign}])?\.)+[a-zA-Z\p{{L}}][a-zA-Z\p{{L}}]+");
    compile_regex(&format!("^({single}|{domain})$"))
});
static SSN: LazyLock<Regex> = LazyLock::new(|| compile_regex(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static CARD: LazyLock<Regex> = LazyLock::new(|| {
    compile_regex(concat!(
        "^(4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|",
        "3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35[0-9]{3})[0-9]{11})$"
    ))
});
static CLOCK: LazyLock<Regex> =
    LazyLock::new(|| compile_regex("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$"));

fn compile_regex(text: &str) -> Regex {
    go_regexp::compile_regexp(text).expect("the patterns here are such")
}

fn is_lazy_match(pattern: &LazyLock<Regex>, text: &str) -> bool {
    pattern.is_match(text)
}

fn is_hostname_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(inner)
}

/// Whether the text is a date such as `2006-01-02`.
fn is_date(text: &str) -> bool {
    let part = |from: usize, to: usize| {
        text.get(from..to).filter(|part| part.bytes().all(|c| c.is_ascii_digit())).and_then(|part| part.parse().ok())
    };
    let date = || Date::new(part(0, 4)?, part(5, 7)? as i8, part(8, 10)? as i8).ok();
    let marks = |at: usize| text.as_bytes().get(at) == Some(&b'-');
    text.len() == 10 && marks(4) && marks(7) && date().is_some()
}

/// Whether the text is a date and a time after the first `t`; hours, minutes and seconds are bounded by string
/// comparison.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(clock)) = (parts.next(), parts.next()) else { return false };
    let captures = CLOCK.captures(clock).filter(|_| is_date(date));
    captures.is_some_and(|captures| &captures[1] <= "23" && &captures[2] <= "59" && &captures[3] <= "59")
}

/// Whether the text is a MAC address of six, eight or twenty bytes: separated by one character, by dots between pairs,
/// or without separators.
fn is_mac(text: &str) -> bool {
    let groups = |sign: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(sign).collect();
        let right = |part: &&str| part.len() == width && part.bytes().all(|c| c.is_ascii_hexdigit());
        counts.contains(&parts.len()) && parts.iter().all(right)
    };
    let plain = matches!(text.len(), 12 | 16 | 40) && text.bytes().all(|c| c.is_ascii_hexdigit());
    plain || groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

fn decimal_digits(text: &str) -> Vec<u32> {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').map(|c| c.to_digit(10).unwrap_or(u32::MAX)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let mut digits = decimal_digits(text);
    if digits.len() == 10 && text.trim_end().ends_with('X') {
        digits[9] = 10;
    }
    let valid = digits.len() == 10 && digits[..9].iter().all(|digit| *digit < 10) && digits[9] <= 10;
    valid && (1..).zip(&digits).map(|(place, digit): (u32, _)| place * digit).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = decimal_digits(text);
    let valid = digits.len() == 13 && digits.iter().all(|digit| *digit < 10);
    valid && digits.iter().zip([1, 3].iter().cycle()).map(|(digit, factor)| digit * factor).sum::<u32>() % 10 == 0
}

/// Whether the text is a credit card number with a valid check digit.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |(at, digit): (usize, u32)| if at % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 };
    let sum: u32 = digits.chars().rev().filter_map(|c| c.to_digit(10)).enumerate().map(doubled).sum();
    is_lazy_match(&CARD, &digits) && sum.is_multiple_of(10)
}

/// Whether the text is an email address: `name@domain`, or that in angle brackets after a display name.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(rest) => match rest.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    let atoms = |text: &str| text.split('.').all(atom);
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || atoms(local)) && (atoms(domain) || domain.starts_with('[') && domain.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::matches_format;

    #[test]
    fn strings_are_matched_against_formats() {
        let cases = [
            ("date", "2024-02-29", "2023-02-29"),
            ("date-time", "2024-01-02T03:04:05.5+01:00", "2024-01-02 03:04:05Z"),
            ("datetime", "2024-01-02t23:59:59z", "2024-01-02T24:00:00Z"),
            ("duration", "1h30m", "x"),
            ("duration", "3 days", "3 fortnights"),
            ("email", "a.b@example.com", "a@"),
            ("email", "Somebody <a@b>", "a b@c"),
            ("hostname", "a-b.example.com", "-a.example.com"),
            ("ipv4", "010.0.0.1", "::1"),
            ("ipv6", "::ffff:1.2.3.4", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("mac", "00:11:22:33:44:55", "00:11:22:33:44"),
            ("mac", "0011.2233.4455", "0011:2233:4455"),
            ("uuid", "123E4567e89b12d3a456426614174000", "123e4567"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("isbn", "0-306-40615-2", "0-306-40615-3"),
            ("isbn10", "080442957X", "X804429570"),
            ("isbn13", "978-0-306-40615-7", "978-0-306-40615-8"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("ssn", "111-22-3333", "111223333"),
            ("hexcolor", "#aB3", "#aB"),
            ("rgbcolor", "rgb(0, 10,255)", "rgb(0,10,256)"),
            ("byte", "YQ==", "YQ"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f1f77"),
            ("uri", "https://a/b?c", "a/b"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b", "a..b"),
        ];
        for (name, right, wrong) in cases {
            assert_eq!((matches_format(name, right), matches_format(name, wrong)), (Some(true), Some(false)), "{name}");
        }
        assert_eq!((matches_format("password", ""), matches_format("nonsense", "")), (Some(true), None));
    }
}
