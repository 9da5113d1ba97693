//! How rules show a wrong value: as it is, as upstream's type, by a field, or not at all.

use super::At;
use crate::{Value, validate::error::Bad};

/// How a wrong value is shown: that of the place or, after a `^` each, of what is around it.
pub(super) struct Shown {
    up: usize,
    how: How,
}

enum How {
    /// As it is.
    Value,
    /// As text; none is "".
    Text,
    /// As a number; none is 0.
    Number,
    /// As nothing.
    Null,
    /// Not at all.
    Omitted,
    /// By a text: `'resource'`.
    Quote(&'static str),
    /// By a field: `.kind`.
    Field(&'static str),
    /// By the text of a field, "" if there is none: `text.kind`.
    TextField(&'static str),
    /// As upstream's type.
    Type(&'static str),
}

impl Shown {
    /// Reads what stands in parentheses.
    pub fn parse(argument: &'static str) -> Self {
        let inner = argument.trim_start_matches('^');
        let how = match inner {
            "" => How::Value,
            "text" => How::Text,
            "int" => How::Number,
            "null" => How::Null,
            "omitted" => How::Omitted,
            inner if inner.starts_with("text.") => How::TextField(&inner[5..]),
            inner => match (inner.strip_prefix('.'), inner.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')))
            {
                (Some(field), _) => How::Field(field),
                (_, Some(text)) => How::Quote(text),
                _ => How::Type(inner),
            },
        };
        Self { up: argument.len() - inner.len(), how }
    }

    /// The value as it is to be shown.
    pub fn bad(&self, at: &At) -> Bad {
        let at = at.up(self.up);
        match self.how {
            How::Value => at.value.clone().into(),
            How::Text => at.text().into(),
            How::Number => at.int().into(),
            How::Null => Value::Null.into(),
            How::Omitted => Bad::Omitted,
            How::Quote(text) => text.into(),
            How::Field(name) => at.value.get(name).cloned().unwrap_or_default().into(),
            How::TextField(name) => at.text_of(name).into(),
            How::Type(ty) => Bad::of(ty, at.value),
        }
    }
}
