//! Parses label selector queries with upstream's grammar and errors: `app=web,tier!=db,env in (a,b),!old`.

use std::collections::BTreeSet;

use formats::names;

use super::{
    SelectorError,
    requirement::{LabelOperator, LabelRequirement},
};

/// The operators with values, as listed in errors.
const OPERATOR_NAMES: &str = "in, notin, =, ==, !=, gt, lt";

/// Parses all requirements of a selector.
pub(super) fn parse_requirements(text: &str) -> Result<Vec<LabelRequirement>, SelectorError> {
    let mut parser = SelectorParser { tokens: tokenize(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            SelectorToken::Word(_) | SelectorToken::Symbol("!") => {
                let requirement = parser.parse_requirement();
                requirements
                    .push(requirement.map_err(|why| SelectorError(format!("unable to parse requirement: {why}")))?);
            }
            SelectorToken::End => return Ok(requirements),
            other => {
                return Err(SelectorError(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                )));
            }
        }
        match parser.next() {
            SelectorToken::End => return Ok(requirements),
            SelectorToken::Symbol(",") => match parser.peek() {
                SelectorToken::Word(_) | SelectorToken::Symbol("!") => {}
                other => {
                    return Err(SelectorError(format!("found '{}', expected: identifier after ','", other.text())));
                }
            },
            other => return Err(SelectorError(format!("found '{}', expected: ',' or 'end of string'", other.text()))),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SelectorToken<'t> {
    /// A key, a value, or the words `in` and `notin`.
    Word(&'t str),
    Symbol(&'t str),
    End,
}

impl<'t> SelectorToken<'t> {
    fn text(self) -> &'t str {
        match self {
            SelectorToken::Word(text) | SelectorToken::Symbol(text) => text,
            SelectorToken::End => "",
        }
    }
}

fn tokenize(text: &str) -> Vec<SelectorToken<'_>> {
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
        tokens.push(if is_symbol(first) { SelectorToken::Symbol(token) } else { SelectorToken::Word(token) });
        rest = after.trim_start_matches(is_space);
    }
    tokens
}

struct SelectorParser<'t> {
    tokens: Vec<SelectorToken<'t>>,
    position: usize,
}

impl<'t> SelectorParser<'t> {
    fn peek(&self) -> SelectorToken<'t> {
        self.tokens.get(self.position).copied().unwrap_or(SelectorToken::End)
    }

    fn next(&mut self) -> SelectorToken<'t> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn parse_requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        let mut token = self.next();
        let absent = token == SelectorToken::Symbol("!");
        if absent {
            token = self.next();
        }
        let SelectorToken::Word(key) = token else {
            return Err(SelectorError(format!("found '{}', expected: identifier", token.text())));
        };
        if let Some(fault) = join_errors(names::check_qualified_name(key)) {
            return Err(SelectorError(format!("<nil>: Invalid value: {key:?}: {fault}")));
        }
        let operator = match self.peek() {
            _ if absent => LabelOperator::DoesNotExist,
            SelectorToken::End | SelectorToken::Symbol(",") => LabelOperator::Exists,
            _ => self.parse_operator(key)?,
        };
        Ok(LabelRequirement { key: key.to_owned(), operator })
    }

    fn parse_operator(&mut self, key: &str) -> Result<LabelOperator, SelectorError> {
        let token = self.next();
        let values = match token {
            SelectorToken::Word("in" | "notin") => self.parse_values()?,
            SelectorToken::Symbol("=" | "==" | "!=" | ">" | "<") => BTreeSet::from([self.parse_value()?]),
            other => return Err(SelectorError(format!("found '{}', expected: {OPERATOR_NAMES}", other.text()))),
        };
        let number = || values.first().and_then(|value| value.parse::<i64>().ok());
        let mut faults = Vec::new();
        if matches!(token.text(), ">" | "<") && number().is_none() {
            let value = values.first().copied().unwrap_or_default();
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            faults.push(format!("values[0]: Invalid value: {value:?}: {why}"));
        }
        for (at, value) in values.iter().enumerate() {
            let fault = join_errors(names::check_label_value(value));
            faults.extend(fault.map(|fault| format!("values[{at}][{key}]: Invalid value: {value:?}: {fault}")));
        }
        match faults.as_slice() {
            [] => {}
            [one] => return Err(SelectorError(one.clone())),
            many => return Err(SelectorError(format!("[{}]", many.join(", ")))),
        }
        let number = number().unwrap_or(0);
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        Ok(match token.text() {
            "in" | "=" | "==" => LabelOperator::In(values),
            ">" => LabelOperator::GreaterThan(number),
            "<" => LabelOperator::LessThan(number),
            _ => LabelOperator::NotIn(values),
        })
    }

    /// Parses the value after `=`; a missing one is empty.
    fn parse_value(&mut self) -> Result<&'t str, SelectorError> {
        match self.peek() {
            SelectorToken::End | SelectorToken::Symbol(",") => Ok(""),
            SelectorToken::Word(word) => {
                self.position += 1;
                Ok(word)
            }
            other => Err(SelectorError(format!("found '{}', expected: identifier", other.text()))),
        }
    }

    /// Parses the values after `in`: `(a,b)`, possibly empty ones.
    fn parse_values(&mut self) -> Result<BTreeSet<&'t str>, SelectorError> {
        match self.next() {
            SelectorToken::Symbol("(") => {}
            other => return Err(SelectorError(format!("found '{}' expected: '('", other.text()))),
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            SelectorToken::Word(_) | SelectorToken::Symbol(",") => {}
            SelectorToken::Symbol(")") => {
                self.position += 1;
                return Ok(BTreeSet::from([""]));
            }
            other => return Err(SelectorError(format!("found '{}', expected: ',', ')' or identifier", other.text()))),
        }
        loop {
            match self.next() {
                SelectorToken::Word(word) => {
                    values.insert(word);
                    match self.peek() {
                        SelectorToken::Symbol("," | ")") => {}
                        other => return Err(SelectorError(format!("found '{}', expected: ',' or ')'", other.text()))),
                    }
                }
                SelectorToken::Symbol(")") => return Ok(values),
                SelectorToken::Symbol(",") => {
                    if values.is_empty() || matches!(self.peek(), SelectorToken::Symbol(")" | ",")) {
                        values.insert("");
                    }
                }
                other => return Err(SelectorError(format!("found '{}', expected: ',', or identifier", other.text()))),
            }
        }
    }
}

fn join_errors(faults: Vec<String>) -> Option<String> {
    (!faults.is_empty()).then(|| faults.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_selectors_have_upstreams_errors() {
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
            assert_eq!(parse_requirements(text).unwrap_err().0, why, "{text}");
        }
    }

    #[test]
    fn values_may_be_empty_or_operator_words() {
        for text in ["", " ", "a in ()", "a in (,b)", "a in (b,,c,)", "in in (notin)", "a=", "!a,b", "a==b , c!=d"] {
            parse_requirements(text).unwrap();
        }
    }
}
