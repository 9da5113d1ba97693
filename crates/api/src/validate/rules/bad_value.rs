//! The rendering of bad values: as is, as upstream's type, by a field, or omitted.

use super::FieldCursor;
use crate::{Value, field_error::BadValue, render::render_bad_value};

/// The format of a bad value: that of the target or, with `^`, of an enclosing one.
pub(super) struct BadValueFormat {
    up: usize,
    source: BadValueSource,
}

enum BadValueSource {
    Value,
    Text,
    Number,
    Null,
    Omitted,
    Quote(&'static str),
    Field(&'static str),
    TextField(&'static str),
    Type(&'static str),
}

impl BadValueFormat {
    /// Parses the argument in parentheses.
    pub fn parse(argument: &'static str) -> Self {
        let inner = argument.trim_start_matches('^');
        let how = match inner {
            "" => BadValueSource::Value,
            "text" => BadValueSource::Text,
            "int" => BadValueSource::Number,
            "null" => BadValueSource::Null,
            "omitted" => BadValueSource::Omitted,
            inner if inner.starts_with("text.") => BadValueSource::TextField(&inner[5..]),
            inner => match (inner.strip_prefix('.'), inner.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')))
            {
                (Some(field), _) => BadValueSource::Field(field),
                (_, Some(text)) => BadValueSource::Quote(text),
                _ => BadValueSource::Type(inner),
            },
        };
        Self { up: argument.len() - inner.len(), source: how }
    }

    /// Returns the bad value.
    pub fn bad_value(&self, at: &FieldCursor) -> BadValue {
        let at = at.ancestor(self.up);
        match self.source {
            BadValueSource::Value => at.value.clone().into(),
            BadValueSource::Text => at.text().into(),
            BadValueSource::Number => at.int().into(),
            BadValueSource::Null => Value::Null.into(),
            BadValueSource::Omitted => BadValue::Omitted,
            BadValueSource::Quote(text) => text.into(),
            BadValueSource::Field(name) => at.value.get(name).cloned().unwrap_or_default().into(),
            BadValueSource::TextField(name) => at.text_at(name).into(),
            BadValueSource::Type(ty) => render_bad_value(ty, at.value),
        }
    }
}
