//! The values of flags by type, with Go's error texts.

use api::json::go_quote;

/// Checks a value; the error is that of Go's parser.
pub fn check_value(kind: &str, value: &str) -> Result<(), FlagValueError> {
    let failure = match kind {
        "bool" if !is_bool(value) => syntax_error("ParseBool", value),
        "int" | "int64" => return parse_int(value, 64).map(|_| ()),
        "Level" => return parse_int(value, 32).map(|_| ()),
        "int32" => return parse_int(value, 32).map(|_| ()),
        "duration" => match api::duration::try_parse(value) {
            Ok(_) => return Ok(()),
            // The flag package of Go, whose flags are the logging ones, has its own words.
            Err(error) => error.to_string(),
        },
        "goDuration" if api::duration::try_parse(value).is_err() => "parse error".to_owned(),
        "tristate" if !is_bool(value) => syntax_error("ParseBool", value),
        "stringToString" if !value.is_empty() => match split_csv(value).into_iter().find(|pair| !pair.contains('=')) {
            Some(pair) => format!("{pair} must be formatted as key=value"),
            None => return Ok(()),
        },
        "mapStringString" => match value.split(',').find(|pair| !pair.is_empty() && !pair.contains('=')) {
            Some(_) => "malformed pair, expect string=string".to_owned(),
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(FlagValueError(failure))
}

/// A value that its flag does not accept.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FlagValueError(pub String);

fn is_bool(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True" | "0" | "f" | "F" | "FALSE" | "false" | "False")
}

fn syntax_error(function: &str, value: &str) -> String {
    format!("strconv.{function}: parsing {}: invalid syntax", go_quote(value))
}

/// Parses an integer as Go's `strconv.ParseInt(value, 0, bits)`.
pub fn parse_int(value: &str, bits: u32) -> Result<i64, FlagValueError> {
    let (negative, digits) = match value.as_bytes().first() {
        Some(b'-') => (true, &value[1..]),
        Some(b'+') => (false, &value[1..]),
        _ => (false, value),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_str() {
        text if text.starts_with("0x") => (16, text[2..].to_owned()),
        text if text.starts_with("0b") => (2, text[2..].to_owned()),
        text if text.starts_with("0o") => (8, text[2..].to_owned()),
        text if text.len() > 1 && text.starts_with('0') => (8, text[1..].to_owned()),
        text => (10, text.to_owned()),
    };
    let valid = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix) || digit == '_');
    if !valid {
        return Err(FlagValueError(syntax_error("ParseInt", value)));
    }
    let number = i128::from_str_radix(&digits.replace('_', ""), radix).unwrap_or(i128::MAX);
    let number = if negative { -number } else { number };
    let limit = 1i128 << (bits - 1);
    if number < -limit || number >= limit {
        let message = format!("strconv.ParseInt: parsing {}: value out of range", go_quote(value));
        return Err(FlagValueError(message));
    }
    Ok(number as i64)
}

/// Parses a number as Go's `strconv.ParseUint(value, 10, bits)`.
pub fn parse_decimal(value: &str, bits: u32) -> Result<u64, FlagValueError> {
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FlagValueError(syntax_error("ParseUint", value)));
    }
    match value.parse::<u64>() {
        Ok(number) if number.checked_shr(bits).unwrap_or(0) == 0 => Ok(number),
        _ => {
            let message = format!("strconv.ParseUint: parsing {}: value out of range", go_quote(value));
            Err(FlagValueError(message))
        }
    }
}

/// Splits a value at commas as Go's CSV reader does.
pub fn split_csv(value: &str) -> Vec<String> {
    if value.is_empty() {
        return Vec::new();
    }
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = value.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(field) = fields.last_mut() else { break };
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => fields.push(String::new()),
            other => field.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_gos_errors() {
        let check = |value: &str, bits, wanted: &str| {
            let got = parse_int(value, bits).map_or_else(|error| error.to_string(), |number| number.to_string());
            assert_eq!(got, wanted);
        };
        check("0x1F", 32, "31");
        check("-12", 32, "-12");
        check("abc", 32, "strconv.ParseInt: parsing \"abc\": invalid syntax");
        check("99999999999", 32, "strconv.ParseInt: parsing \"99999999999\": value out of range");
    }

    #[test]
    fn values_are_split_at_commas_outside_quotes() {
        assert_eq!(split_csv("a,b"), ["a", "b"]);
        assert_eq!(split_csv("\"a,b\",c"), ["a,b", "c"]);
    }
}
