//! Field paths of decoders: kept on the stack and formatted only for messages.

use std::fmt;

/// A field path, linked to its parent.
#[derive(Clone, Copy, Debug)]
pub struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    step: PathElement<'a>,
    /// Number of steps from the top.
    pub depth: usize,
}

#[derive(Clone, Copy, Debug)]
enum PathElement<'a> {
    Top,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> FieldPath<'a> {
    /// The path of the object itself.
    pub const TOP: FieldPath<'static> = FieldPath { parent: None, step: PathElement::Top, depth: 0 };

    /// Appends a field of a struct.
    #[inline]
    pub fn field<'b>(&'b self, name: &'b str) -> FieldPath<'b> {
        self.push_element(PathElement::Field(name))
    }

    /// Appends a key of a map.
    #[inline]
    pub fn key<'b>(&'b self, name: &'b str) -> FieldPath<'b> {
        self.push_element(PathElement::Key(name))
    }

    /// Appends an index of a list.
    #[inline]
    pub fn index(&'a self, at: usize) -> FieldPath<'a> {
        self.push_element(PathElement::Index(at))
    }

    /// Formats the fields without keys and indexes: `spec.containers.image`.
    pub fn field_names(&self) -> String {
        let mut out = self.parent.map(FieldPath::field_names).unwrap_or_default();
        if let PathElement::Field(name) = self.step {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
        }
        out
    }

    #[inline]
    fn push_element<'b>(&'b self, step: PathElement<'b>) -> FieldPath<'b> {
        FieldPath { parent: Some(self), step, depth: self.depth + 1 }
    }
}

/// Formats the path: `spec.containers[0].image`.
impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        parent.fmt(f)?;
        match self.step {
            PathElement::Top => Ok(()),
            PathElement::Index(at) => write!(f, "[{at}]"),
            PathElement::Field(name) | PathElement::Key(name) if parent.parent.is_none() => f.write_str(name),
            PathElement::Field(name) | PathElement::Key(name) => write!(f, ".{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FieldPath;

    #[test]
    fn field_paths_are_formatted_like_upstream() {
        let (spec, list) = (FieldPath::TOP.field("spec"), "containers");
        let list = spec.field(list);
        let item = list.index(3);
        let env = item.key("env");
        assert_eq!(env.to_string(), "spec.containers[3].env");
        assert_eq!((env.field_names().as_str(), env.depth), ("spec.containers", 4));
    }
}
