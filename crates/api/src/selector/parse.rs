//! The text form of label selectors, read as upstream reads it, refusals included: `app=web,tier!=db,env in (a,b),!old`.

use std::collections::BTreeSet;

use super::{
    Error,
    label::{Operator, Requirement},
};
use crate::validate::names;

/// The operators that take values, as messages name them.
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Reads all requirements of a selector.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, Error> {
    let mut parser = Parser { tokens: tokens(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Symbol("!") => {
                let requirement = parser.requirement();
                requirements.push(requirement.map_err(|why| Error(format!("unable to parse requirement: {why}")))?);
            }
            Token::End => return Ok(requirements),
            other => {
                return Err(Error(format!("found '{}', expected: !, identifier, or 'end of string'", other.text())));
            }
        }
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => match parser.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                other => return Err(Error(format!("found '{}', expected: identifier after ','", other.text()))),
            },
            other => return Err(Error(format!("found '{}', expected: ',' or 'end of string'", other.text()))),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'t> {
    /// A name, a value, or the words `in` and `notin`.
    Word(&'t str),
    Symbol(&'t str),
    End,
}

impl<'t> Token<'t> {
    fn text(self) -> &'t str {
        match self {
            Token::Word(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_symbol = |c: char| "=!(),><".contains(c);
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let length = if !is_symbol(first) {
            rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len())
        } else if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else {
            1
        };
        let (token, after) = rest.split_at(length);
        tokens.push(if is_symbol(first) { Token::Symbol(token) } else { Token::Word(token) });
        rest = after.trim_start_matches(is_space);
    }
    tokens
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    position: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Token<'t> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let absent = token == Token::Symbol("!");
        if absent {
            token = self.next();
        }
        let Token::Word(key) = token else { return Err(format!("found '{}', expected: identifier", token.text())) };
        if let Some(fault) = fault(names::qualified(key)) {
            return Err(format!("<nil>: Invalid value: {key:?}: {fault}"));
        }
        let operator = match self.peek() {
            _ if absent => Operator::DoesNotExist,
            Token::End | Token::Symbol(",") => Operator::Exists,
            _ => self.operator(key)?,
        };
        Ok(Requirement { key: key.to_owned(), operator })
    }

    fn operator(&mut self, key: &str) -> Result<Operator, String> {
        let token = self.next();
        let values = match token {
            Token::Word("in" | "notin") => self.values()?,
            Token::Symbol("=" | "==" | "!=" | ">" | "<") => BTreeSet::from([self.value()?]),
            other => return Err(format!("found '{}', expected: {OPERATORS}", other.text())),
        };
        let number = || values.first().and_then(|value| value.parse::<i64>().ok());
        let mut faults = Vec::new();
        if matches!(token.text(), ">" | "<") && number().is_none() {
            let value = values.first().copied().unwrap_or_default();
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            faults.push(format!("values[0]: Invalid value: {value:?}: {why}"));
        }
        for (at, value) in values.iter().enumerate() {
            let fault = fault(names::label_value(value));
            faults.extend(fault.map(|fault| format!("values[{at}][{key}]: Invalid value: {value:?}: {fault}")));
        }
        match faults.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
        let number = number().unwrap_or(0);
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        Ok(match token.text() {
            "in" | "=" | "==" => Operator::In(values),
            ">" => Operator::GreaterThan(number),
            "<" => Operator::LessThan(number),
            _ => Operator::NotIn(values),
        })
    }

    /// What follows `=`; nothing is the empty value.
    fn value(&mut self) -> Result<&'t str, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(""),
            Token::Word(word) => {
                self.position += 1;
                Ok(word)
            }
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// What follows `in`: `(a,b)`, where places may be empty.
    fn values(&mut self) -> Result<BTreeSet<&'t str>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            Token::Word(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.position += 1;
                return Ok(BTreeSet::from([""]));
            }
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.insert(word);
                    match self.peek() {
                        Token::Symbol("," | ")") => {}
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Symbol(")") => return Ok(values),
                Token::Symbol(",") => {
                    if values.is_empty() || matches!(self.peek(), Token::Symbol(")" | ",")) {
                        values.insert("");
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
    }
}

fn fault(faults: Vec<String>) -> Option<String> {
    (!faults.is_empty()).then(|| faults.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_refused_in_upstreams_words() {
        for (text, why) in [
            ("tier===a", "unable to parse requirement: found '=', expected: identifier"),
            ("tier in back", "unable to parse requirement: found 'back' expected: '('"),
            ("tier=a b", "found 'b', expected: ',' or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a,", "found '', expected: identifier after ','"),
            ("=b", "found '=', expected: !, identifier, or 'end of string'"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            (
                "n>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be \
                 an integer",
            ),
        ] {
            assert_eq!(requirements(text).unwrap_err().0, why, "{text}");
        }
    }

    #[test]
    fn values_may_be_empty_and_words_may_be_operators() {
        for text in ["", " ", "a in ()", "a in (,b)", "a in (b,,c,)", "in in (notin)", "a=", "!a,b", "a==b , c!=d"] {
            requirements(text).unwrap();
        }
    }
}
