//! Target paths of rules: `spec.ports[].name`, `limits{}`, `properties{kind}`, `../nodeAffinity`.
//!
//! `attachRequired>attachedRequired` renames a field in messages, `metadata>.labels` omits one. Errors of
//! `gates[].name^` are reported one level up, those of `value^>operator` at another field there.

use super::{FieldCursor, block_fields::FieldValues};

/// The path from a struct to the target; `.` is the struct itself.
pub(super) struct TargetPath {
    steps: Vec<TargetStep>,
    /// The levels up where errors are reported, and the field there.
    report_at: Option<(usize, &'static str)>,
}

enum TargetStep {
    /// A field, and its name in messages.
    Field(&'static str, &'static str),
    /// A map entry.
    Key(&'static str),
    /// Every list element.
    Items,
    /// Every map value.
    Entries,
    /// The enclosing struct.
    Up,
}

impl TargetPath {
    /// Parses a path.
    pub fn parse(text: &'static str) -> Self {
        let mut steps = Vec::new();
        let (mut text, told) = match text.find('^') {
            Some(at) => (&text[..at], Some(parse_report_target(&text[at..]))),
            None => (text, None),
        };
        while let Some(rest) = text.strip_prefix("../") {
            steps.push(TargetStep::Up);
            text = rest;
        }
        for part in path_parts(text) {
            let (name, each) = match (part.strip_suffix("[]"), part.strip_suffix("{}")) {
                (Some(name), _) => (name, Some(TargetStep::Items)),
                (_, Some(name)) => (name, Some(TargetStep::Entries)),
                _ => (part, None),
            };
            let (name, key) = name.strip_suffix('}').and_then(|name| name.split_once('{')).unwrap_or((name, ""));
            if !name.is_empty() {
                let (name, shown) = name.split_once('>').unwrap_or((name, name));
                steps.push(TargetStep::Field(name, shown));
            }
            steps.extend((!key.is_empty()).then_some(TargetStep::Key(key)));
            steps.extend(each);
        }
        Self { steps, report_at: told }
    }

    /// The first field of the path, if it starts with one.
    pub fn first_field(&self) -> Option<&'static str> {
        match self.steps.first() {
            Some(TargetStep::Field(name, _)) => Some(name),
            _ => None,
        }
    }

    /// Whether the target is inside a list or map, so that an absent first field passes.
    pub fn is_inside_collection(&self) -> bool {
        self.first_field().is_some()
            && self.steps.iter().any(|step| matches!(step, TargetStep::Items | TargetStep::Entries))
    }

    /// Calls `visit` for every target, present or not; `first` is the position of the first field among the values.
    pub fn visit_targets(
        &self,
        at: &FieldCursor,
        first: Option<usize>,
        values: &FieldValues,
        visit: &mut dyn FnMut(&FieldCursor),
    ) {
        let Some((up, field)) = self.report_at else { return self.walk_steps(at, first, values, visit) };
        self.walk_steps(at, first, values, &mut |at| {
            let above = at.ancestor(up);
            if field.is_empty() { visit(&above.with_value(at.value)) } else { visit(&above.child_as(field, at.value)) }
        });
    }

    fn walk_steps(
        &self,
        at: &FieldCursor,
        first: Option<usize>,
        values: &FieldValues,
        visit: &mut dyn FnMut(&FieldCursor),
    ) {
        match (self.steps.as_slice(), first) {
            ([TargetStep::Field(name, shown), rest @ ..], Some(first)) => {
                visit_step(rest, &at.child_with_value(name, shown, values[first]), visit);
            }
            (steps, _) => visit_step(steps, at, visit),
        }
    }
}

/// Splits at dots outside of braces.
fn path_parts(text: &'static str) -> impl Iterator<Item = &'static str> {
    let mut inside = false;
    let parts = text.split(move |c: char| {
        inside = (inside || c == '{') && c != '}';
        c == '.' && !inside
    });
    parts.filter(|part| !part.is_empty())
}

/// Parses `^^>name`.
fn parse_report_target(text: &'static str) -> (usize, &'static str) {
    let field = text.trim_start_matches('^');
    (text.len() - field.len(), field.trim_start_matches('>'))
}

fn visit_step(steps: &[TargetStep], at: &FieldCursor, visit: &mut dyn FnMut(&FieldCursor)) {
    let [first, rest @ ..] = steps else { return visit(at) };
    match first {
        TargetStep::Field(name, shown) => visit_step(rest, &at.get_as(name, shown), visit),
        TargetStep::Key(key) => visit_step(rest, &at.entry(key), visit),
        TargetStep::Items => at.items().for_each(|item| visit_step(rest, &item, visit)),
        TargetStep::Up => visit_step(rest, at.ancestor(1), visit),
        TargetStep::Entries => at.entries().for_each(|(_, entry)| visit_step(rest, &entry, visit)),
    }
}
