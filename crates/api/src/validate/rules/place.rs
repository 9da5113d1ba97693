//! Where a rule looks: `spec.ports[].name`, `limits{}`, `properties{kind}`, `../nodeAffinity` a step above.
//!
//! `attachRequired>attachedRequired` is a field that messages name otherwise, `metadata>.labels` one that they leave out.
//! What is wrong with `gates[].name^` is told one step above, with `value^>operator` at another field there.

use super::{At, fields::Values};

/// The way from a struct to what a rule is about; `.` is the struct itself.
pub(super) struct Place {
    steps: Vec<Step>,
    /// How many steps above faults are told, and at which field there.
    told: Option<(usize, &'static str)>,
}

enum Step {
    /// A field, and the name that upstream gives it in messages.
    Field(&'static str, &'static str),
    /// An entry of a map.
    Key(&'static str),
    /// Every element of a list.
    Items,
    /// Every value of a map.
    Entries,
    /// The struct around.
    Up,
}

impl Place {
    /// Reads a place.
    pub fn parse(text: &'static str) -> Self {
        let mut steps = Vec::new();
        let (mut text, told) = match text.find('^') {
            Some(at) => (&text[..at], Some(told(&text[at..]))),
            None => (text, None),
        };
        while let Some(rest) = text.strip_prefix("../") {
            steps.push(Step::Up);
            text = rest;
        }
        for part in parts(text) {
            let (name, each) = match (part.strip_suffix("[]"), part.strip_suffix("{}")) {
                (Some(name), _) => (name, Some(Step::Items)),
                (_, Some(name)) => (name, Some(Step::Entries)),
                _ => (part, None),
            };
            let (name, key) = name.strip_suffix('}').and_then(|name| name.split_once('{')).unwrap_or((name, ""));
            if !name.is_empty() {
                let (name, shown) = name.split_once('>').unwrap_or((name, name));
                steps.push(Step::Field(name, shown));
            }
            steps.extend((!key.is_empty()).then_some(Step::Key(key)));
            steps.extend(each);
        }
        Self { steps, told }
    }

    /// The field of the struct that the way begins with, if it does so.
    pub fn first(&self) -> Option<&'static str> {
        match self.steps.first() {
            Some(Step::Field(name, _)) => Some(name),
            _ => None,
        }
    }

    /// Whether nothing is meant where the first field is not there: what is meant is in lists or maps.
    pub fn is_within(&self) -> bool {
        self.first().is_some() && self.steps.iter().any(|step| matches!(step, Step::Items | Step::Entries))
    }

    /// Calls `visit` for every value that is meant, there or not; `first` is where the first field is among the values.
    pub fn visit(&self, at: &At, first: Option<usize>, values: &Values, visit: &mut dyn FnMut(&At)) {
        let Some((up, field)) = self.told else { return self.walk(at, first, values, visit) };
        self.walk(at, first, values, &mut |at| {
            let above = at.up(up);
            if field.is_empty() { visit(&above.holding(at.value)) } else { visit(&above.called(field, at.value)) }
        });
    }

    fn walk(&self, at: &At, first: Option<usize>, values: &Values, visit: &mut dyn FnMut(&At)) {
        match (self.steps.as_slice(), first) {
            ([Step::Field(name, shown), rest @ ..], Some(first)) => {
                step(rest, &at.with(name, shown, values[first]), visit);
            }
            (steps, _) => step(steps, at, visit),
        }
    }
}

/// The parts between dots; a name in braces may have some.
fn parts(text: &'static str) -> impl Iterator<Item = &'static str> {
    let mut inside = false;
    let parts = text.split(move |c: char| {
        inside = (inside || c == '{') && c != '}';
        c == '.' && !inside
    });
    parts.filter(|part| !part.is_empty())
}

/// `^^>name` in two.
fn told(text: &'static str) -> (usize, &'static str) {
    let field = text.trim_start_matches('^');
    (text.len() - field.len(), field.trim_start_matches('>'))
}

fn step(steps: &[Step], at: &At, visit: &mut dyn FnMut(&At)) {
    let [first, rest @ ..] = steps else { return visit(at) };
    match first {
        Step::Field(name, shown) => step(rest, &at.get_called(name, shown), visit),
        Step::Key(key) => step(rest, &at.key(key), visit),
        Step::Items => at.items().for_each(|item| step(rest, &item, visit)),
        Step::Up => step(rest, at.up(1), visit),
        Step::Entries => at.entries().for_each(|(_, entry)| step(rest, &entry, visit)),
    }
}
