//! Fields of which one is to be set, each with rules of its own: handlers of probes, sources of volumes.

use std::collections::HashMap;

use super::{At, Errors, RULES, Scheme, fields::Fields};

/// The fields, in the order in which they are looked at.
pub(super) struct Choices {
    fields: Fields,
    choices: Vec<Choice>,
}

/// One of them: `+cephfs>cephFS=CephFS@place`.
struct Choice {
    field: &'static str,
    /// Where it is among the fields.
    position: usize,
    /// The name in the message about one too many.
    surplus: &'static str,
    /// The name under which it is checked.
    place: &'static str,
    block: usize,
    /// It is checked beside another too.
    always: bool,
}

impl Choices {
    /// Reads a list of choices.
    pub fn parse(text: &'static str, blocks: &HashMap<&'static str, usize>) -> Self {
        let mut choices: Vec<Choice> = text.split(',').map(|text| Choice::parse(text, blocks)).collect();
        let fields = Fields::new(choices.iter().map(|choice| choice.field));
        for choice in &mut choices {
            choice.position = fields.position(choice.field).expect("a choice is one of the fields");
        }
        Self { fields, choices }
    }

    /// Checks the first that is set; `messages` are what is said of those after it, and where none is set.
    pub fn check(&self, at: &At, messages: &str, scheme: &Scheme, e: &mut Errors) {
        let (many, none) = messages.split_once('|').unwrap_or_default();
        self.fields.find(at, |values| {
            let mut found = false;
            for choice in self.choices.iter().filter(|choice| !values[choice.position].is_null()) {
                if found && !choice.always {
                    at.get(choice.surplus).forbidden(e, many);
                    continue;
                }
                found = true;
                RULES.blocks[choice.block].run(&at.get_called(choice.field, choice.place), scheme, e);
            }
            if !found {
                at.required(e, none);
            }
        });
    }
}

impl Choice {
    fn parse(text: &'static str, blocks: &HashMap<&'static str, usize>) -> Self {
        let (names, block) = text.split_once('=').expect("a choice has a block");
        let (always, names) = names.strip_prefix('+').map_or((false, names), |names| (true, names));
        let (field, surplus) = names.split_once('>').unwrap_or((names, names));
        let (block, place) = block.split_once('@').unwrap_or((block, field));
        let block = *blocks.get(block).unwrap_or_else(|| panic!("there is no block {block}"));
        Self { field, position: 0, surplus, place, block, always }
    }
}
