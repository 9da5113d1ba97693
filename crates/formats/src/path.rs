//! Field paths of decoders: kept on the stack and formatted only for messages.

use std::fmt;

/// A field path, linked to its parent.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
    /// Number of steps from the top.
    pub depth: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Top,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// The path of the object itself.
    pub const TOP: Path<'static> = Path { parent: None, step: Step::Top, depth: 0 };

    /// Appends a field of a struct.
    #[inline]
    pub fn field<'b>(&'b self, name: &'b str) -> Path<'b> {
        self.step(Step::Field(name))
    }

    /// Appends a key of a map.
    #[inline]
    pub fn key<'b>(&'b self, name: &'b str) -> Path<'b> {
        self.step(Step::Key(name))
    }

    /// Appends an index of a list.
    #[inline]
    pub fn index(&'a self, at: usize) -> Path<'a> {
        self.step(Step::Index(at))
    }

    /// Formats the fields without keys and indexes: `spec.containers.image`.
    pub fn fields(&self) -> String {
        let mut out = self.parent.map(Path::fields).unwrap_or_default();
        if let Step::Field(name) = self.step {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
        }
        out
    }

    #[inline]
    fn step<'b>(&'b self, step: Step<'b>) -> Path<'b> {
        Path { parent: Some(self), step, depth: self.depth + 1 }
    }
}

/// Formats the path: `spec.containers[0].image`.
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        parent.fmt(f)?;
        match self.step {
            Step::Top => Ok(()),
            Step::Index(at) => write!(f, "[{at}]"),
            Step::Field(name) | Step::Key(name) if parent.parent.is_none() => f.write_str(name),
            Step::Field(name) | Step::Key(name) => write!(f, ".{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn paths_are_written_as_upstream_writes_them() {
        let (spec, list) = (Path::TOP.field("spec"), "containers");
        let list = spec.field(list);
        let item = list.index(3);
        let env = item.key("env");
        assert_eq!(env.to_string(), "spec.containers[3].env");
        assert_eq!((env.fields().as_str(), env.depth), ("spec.containers", 4));
    }
}
