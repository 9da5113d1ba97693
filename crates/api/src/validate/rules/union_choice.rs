//! Unions: fields of which one is set, each with its rule block, such as probe handlers and volume sources.

use std::collections::HashMap;

use super::{ErrorList, FieldCursor, MetadataRules, RULES, block_fields::BlockFields};

/// The members in the order of their checks.
pub(super) struct UnionChoices {
    fields: BlockFields,
    choices: Vec<UnionMember>,
}

/// A member: `+cephfs>cephFS=CephFS@place`.
struct UnionMember {
    field: &'static str,
    /// The position among the fields.
    position: usize,
    /// The name in the message about a surplus member.
    surplus: &'static str,
    /// The name under which it is checked.
    path: &'static str,
    block: usize,
    /// Whether it is checked beside another member too.
    always: bool,
}

impl UnionChoices {
    /// Parses a list of members.
    pub fn parse(text: &'static str, blocks: &HashMap<&'static str, usize>) -> Self {
        let mut choices: Vec<UnionMember> = text.split(',').map(|text| UnionMember::parse(text, blocks)).collect();
        let fields = BlockFields::new(choices.iter().map(|choice| choice.field));
        for choice in &mut choices {
            choice.position = fields.field_position(choice.field).expect("a choice is one of the fields");
        }
        Self { fields, choices }
    }

    /// Checks the first member that is set; `messages` are for surplus members, and for none.
    pub fn check_choice(&self, at: &FieldCursor, messages: &str, scheme: &MetadataRules, e: &mut ErrorList) {
        let (many, none) = messages.split_once('|').unwrap_or_default();
        self.fields.with_values(at, |values| {
            let mut found = false;
            for choice in self.choices.iter().filter(|choice| !values[choice.position].is_null()) {
                if found && !choice.always {
                    at.get(choice.surplus).forbidden(e, many);
                    continue;
                }
                found = true;
                RULES.blocks[choice.block].run_block(&at.get_as(choice.field, choice.path), scheme, e);
            }
            if !found {
                at.required(e, none);
            }
        });
    }
}

impl UnionMember {
    fn parse(text: &'static str, blocks: &HashMap<&'static str, usize>) -> Self {
        let (names, block) = text.split_once('=').expect("a choice has a block");
        let (always, names) = names.strip_prefix('+').map_or((false, names), |names| (true, names));
        let (field, surplus) = names.split_once('>').unwrap_or((names, names));
        let (block, place) = block.split_once('@').unwrap_or((block, field));
        let block = *blocks.get(block).unwrap_or_else(|| panic!("there is no block {block}"));
        Self { field, position: 0, surplus, path: place, block, always }
    }
}
