//! The query form of label selectors, read token by token: it accepts what upstream accepts and refuses in its words.

use std::collections::BTreeSet;

use super::{
    Error,
    label::{Operator, Requirement},
};
use crate::validate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Identifier,
    /// `in` and `notin`, which are also good names and values.
    Word,
    Symbol,
    Unknown,
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    kind: Kind,
    text: String,
}

impl Token {
    fn is(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    /// Whether it is a name or a value, where no operator is expected.
    fn names(&self) -> bool {
        matches!(self.kind, Kind::Identifier | Kind::Word)
    }

    fn instead_of(&self, expected: &str) -> Error {
        Error(format!("found '{}', expected: {expected}", self.text))
    }
}

const SYMBOLS: &[&str] = &["!", "!=", "=", "==", ">", "<", "(", ")", ","];

/// Reads `app=web,tier!=db,env in (a,b),!old`.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, Error> {
    let mut parser = Parser { rest: text };
    let mut requirements = Vec::new();
    loop {
        let next = parser.peek();
        if next.kind == Kind::End {
            return Ok(requirements);
        }
        if !next.names() && !next.is("!") {
            return Err(next.instead_of("!, identifier, or 'end of string'"));
        }
        let read = parser.requirement();
        requirements.push(read.map_err(|error| Error(format!("unable to parse requirement: {}", error.0)))?);
        let after = parser.take();
        if after.kind == Kind::End {
            return Ok(requirements);
        }
        if !after.is(",") {
            return Err(after.instead_of("',' or 'end of string'"));
        }
        let next = parser.peek();
        if !next.names() && !next.is("!") {
            return Err(next.instead_of("identifier after ','"));
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token {
        Parser { rest: self.rest }.take()
    }

    fn take(&mut self) -> Token {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let is_symbol = |c: char| "!=<>(),".contains(c);
        let ends = |c: char| is_symbol(c) || matches!(c, ' ' | '\t' | '\r' | '\n');
        match self.rest.chars().next() {
            None => Token { kind: Kind::End, text: String::new() },
            Some(c) if is_symbol(c) => {
                // The longest symbol that begins here.
                let found = SYMBOLS.iter().filter(|symbol| self.rest.starts_with(**symbol)).max_by_key(|s| s.len());
                self.advance(found.map_or(1, |symbol| symbol.len()), |_| match found {
                    Some(_) => Kind::Symbol,
                    None => Kind::Unknown,
                })
            }
            Some(_) => {
                let length = self.rest.find(ends).unwrap_or(self.rest.len());
                self.advance(length, |text| if matches!(text, "in" | "notin") { Kind::Word } else { Kind::Identifier })
            }
        }
    }

    fn advance(&mut self, length: usize, kind: impl Fn(&str) -> Kind) -> Token {
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        Token { kind: kind(text), text: text.to_owned() }
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        let mut token = self.take();
        let negated = token.is("!");
        if negated {
            token = self.take();
        }
        if !token.names() {
            return Err(token.instead_of("identifier"));
        }
        let key = token.text;
        check("<nil>", &key, &names::qualified(&key))?;
        let next = self.peek();
        if next.kind == Kind::End || next.is(",") {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key, operator });
        }
        let operator = self.operator(&key)?;
        Ok(Requirement { key, operator })
    }

    fn operator(&mut self, key: &str) -> Result<Operator, Error> {
        let token = self.take();
        let values = match (token.kind, token.text.as_str()) {
            (Kind::Word, _) => self.values()?,
            (Kind::Symbol, "=" | "==" | "!=" | ">" | "<") => BTreeSet::from([self.value()?]),
            _ => return Err(token.instead_of("in, notin, =, ==, !=, gt, lt")),
        };
        for (index, value) in values.iter().enumerate() {
            check(&format!("values[{index}][{key}]"), value, &names::label_value(value))?;
        }
        let all = || values.iter().cloned().collect::<Vec<_>>();
        let number = || {
            let value = values.first().map_or("", String::as_str);
            value.parse::<i64>().map_err(|_| {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                Error(format!("values[0]: Invalid value: {value:?}: {why}"))
            })
        };
        Ok(match token.text.as_str() {
            "!=" | "notin" => Operator::NotIn(all()),
            ">" => Operator::GreaterThan(number()?),
            "<" => Operator::LessThan(number()?),
            _ => Operator::In(all()),
        })
    }

    /// The value of a comparison; none at all is the empty one.
    fn value(&mut self) -> Result<String, Error> {
        let next = self.peek();
        if next.kind == Kind::End || next.is(",") {
            return Ok(String::new());
        }
        let token = self.take();
        if token.names() { Ok(token.text) } else { Err(token.instead_of("identifier")) }
    }

    /// `(a,b)`; a place without a value is the empty one.
    fn values(&mut self) -> Result<BTreeSet<String>, Error> {
        let open = self.take();
        if !open.is("(") {
            return Err(Error(format!("found '{}' expected: '('", open.text)));
        }
        let first = self.peek();
        if !first.names() && !first.is(",") && !first.is(")") {
            return Err(first.instead_of("',', ')' or identifier"));
        }
        let mut values = BTreeSet::new();
        let mut expects_value = true;
        loop {
            let token = self.take();
            match () {
                () if token.names() => {
                    values.insert(token.text);
                    let next = self.peek();
                    if !next.is(",") && !next.is(")") {
                        return Err(next.instead_of("',' or ')'"));
                    }
                    expects_value = false;
                }
                () if token.is(",") || token.is(")") => {
                    if expects_value {
                        values.insert(String::new());
                    }
                    if token.is(")") {
                        return Ok(values);
                    }
                    expects_value = true;
                }
                () => return Err(token.instead_of("',', or identifier")),
            }
        }
    }
}

fn check(path: &str, value: &str, faults: &[String]) -> Result<(), Error> {
    match faults {
        [] => Ok(()),
        faults => Err(Error(format!("{path}: Invalid value: {value:?}: {}", faults.join("; ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, want: &str) {
        assert_eq!(parse(text).map_err(|error| error.0), Err(want.to_owned()), "{text}");
    }

    #[test]
    fn refusals_are_in_upstreams_words() {
        let operators = "in, notin, =, ==, !=, gt, lt";
        refused("a inn b", &format!("unable to parse requirement: found 'inn', expected: {operators}"));
        refused("a b", &format!("unable to parse requirement: found 'b', expected: {operators}"));
        refused("a in b", "unable to parse requirement: found 'b' expected: '('");
        refused("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
        refused("a=b c", "found 'c', expected: ',' or 'end of string'");
        refused("a,", "found '', expected: identifier after ','");
        refused(",", "found ',', expected: !, identifier, or 'end of string'");
        refused("!,", "unable to parse requirement: found ',', expected: identifier");
        refused(
            "n>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        );
    }

    #[test]
    fn words_are_names_where_no_operator_is_expected() {
        let read = parse("in in (in,,notin),notin").unwrap();
        assert_eq!(read[0].operator, Operator::In(vec![String::new(), "in".into(), "notin".into()]));
        assert_eq!((read[1].key.as_str(), &read[1].operator), ("notin", &Operator::Exists));
        assert_eq!(parse("a=").unwrap()[0].operator, Operator::In(vec![String::new()]));
    }
}
