//! Field sets as trees: a node is a member, has members below it, or both.
//!
//! Nodes of a level are sorted, so that union, intersection and difference walk both trees once.

use std::cmp::Ordering;

use super::path_element::{MalformedElement, PathElement};
use crate::{Map, Value};

/// A set of field paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element and unique; no node is empty.
    nodes: Vec<FieldNode>,
}

/// A field and its descendants in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNode {
    /// The last path element.
    pub element: PathElement,
    /// Whether the field itself is a member.
    pub member: bool,
    /// The members below the field.
    pub children: FieldSet,
}

impl FieldNode {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl FieldSet {
    /// Builds a set from dotted paths of field names.
    pub fn from_paths(paths: &[&str]) -> Self {
        let one = |path: &&str| {
            path.rsplit('.').fold(FieldSet::default(), |children, name| {
                let member = children.is_empty();
                FieldSet {
                    nodes: vec![FieldNode { element: PathElement::Field(name.to_owned().into()), member, children }],
                }
            })
        };
        paths.iter().map(one).fold(FieldSet::default(), FieldSet::union)
    }

    /// Builds a set from nodes in any order; the last of equal elements counts.
    pub fn from_nodes(mut nodes: Vec<FieldNode>) -> Self {
        nodes.retain(|node| !node.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|next, kept| {
                let same = next.element == kept.element;
                if same {
                    std::mem::swap(next, kept);
                }
                same
            });
        }
        Self { nodes }
    }

    /// The nodes, sorted.
    pub fn nodes(&self) -> &[FieldNode] {
        &self.nodes
    }

    /// The nodes, mutable; none may become empty.
    pub(super) fn nodes_mut(&mut self) -> &mut [FieldNode] {
        &mut self.nodes
    }

    /// Whether the set has no members.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Appends a node that sorts after all others; an empty node is skipped.
    pub fn push(&mut self, node: FieldNode) {
        debug_assert!(self.nodes.last().is_none_or(|last| last.element < node.element));
        if !node.is_empty() {
            self.nodes.push(node);
        }
    }

    /// Returns the node of an element.
    pub fn get(&self, element: &PathElement) -> Option<&FieldNode> {
        let found = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.nodes[found])
    }

    /// Whether a path is a member.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// The members of either set.
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return if self.is_empty() { other } else { self };
        }
        let mut out = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut left, mut right) = (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.element.cmp(&b.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes: out },
            };
            let (a, b) = (left.next_if(|_| next.is_le()), right.next_if(|_| next.is_ge()));
            out.extend(match (a, b) {
                (Some(a), Some(b)) => Some(FieldNode {
                    element: a.element,
                    member: a.member || b.member,
                    children: a.children.union(b.children),
                }),
                (a, b) => a.or(b),
            });
        }
    }

    /// The members of both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut rest = other.nodes.iter().peekable();
        let mut out = Self::default();
        for node in &self.nodes {
            while rest.next_if(|other| other.element < node.element).is_some() {}
            if let Some(other) = rest.next_if(|other| other.element == node.element) {
                let (member, children) = (node.member && other.member, node.children.intersection(&other.children));
                if member || !children.is_empty() {
                    out.nodes.push(FieldNode { element: node.element.clone(), member, children });
                }
            }
        }
        out
    }

    /// Whether all members are in the other set.
    pub fn is_subset(&self, other: &Self) -> bool {
        let is_in = |node: &FieldNode, other: &FieldNode| {
            (other.member || !node.member) && node.children.is_subset(&other.children)
        };
        self.nodes.iter().all(|node| other.get(&node.element).is_some_and(|other| is_in(node, other)))
    }

    /// The members that are not in the other set. A member of the other set does not remove its descendants.
    pub fn difference(mut self, other: &Self) -> Self {
        self.subtract_with(other, |node, other| {
            node.member &= !other.member;
            node.children = std::mem::take(&mut node.children).difference(&other.children);
        });
        self
    }

    /// The members that are neither in the other set nor below a member of it.
    pub fn recursive_difference(mut self, other: &Self) -> Self {
        self.subtract_with(other, |node, other| {
            if other.member {
                (node.member, node.children) = (false, FieldSet::default());
            } else {
                node.children = std::mem::take(&mut node.children).recursive_difference(&other.children);
            }
        });
        self
    }

    /// Changes the nodes that are in both sets and drops those that become empty.
    fn subtract_with(&mut self, other: &Self, change: impl Fn(&mut FieldNode, &FieldNode)) {
        let mut rest = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while rest.next_if(|other| other.element < node.element).is_some() {}
            if let Some(other) = rest.next_if(|other| other.element == node.element) {
                change(node, other);
            }
            !node.is_empty()
        });
    }

    /// All paths, those of a level before those below it.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut out);
        out
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            out.push(prefix.iter().chain([&node.element]).cloned().collect());
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.children.collect_paths(prefix, out);
            prefix.pop();
        }
    }

    /// Encodes the set as `fieldsV1`.
    pub fn to_value(&self) -> Value {
        self.to_map(false).into()
    }

    fn to_map(&self, member: bool) -> Map {
        let own = (member && !self.is_empty()).then(|| (".".to_owned(), Value::Object(Map::new())));
        let nodes = self.nodes.iter().map(|node| (node.element.serialize(), node.children.to_map(node.member).into()));
        own.into_iter().chain(nodes).collect()
    }

    /// Parses `fieldsV1`; unknown kinds of elements are ignored.
    pub fn from_value(value: &Value) -> Result<Self, MalformedElement> {
        Ok(parse_node(value)?.1)
    }
}

/// Returns whether the field itself is a member, and its descendants.
fn parse_node(value: &Value) -> Result<(bool, FieldSet), MalformedElement> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok((true, FieldSet::default())),
        _ => return Err(MalformedElement::NoObject),
    };
    let (mut own, mut nodes) = (false, Vec::with_capacity(map.len()));
    for (text, below) in map {
        if text == "." {
            own = true;
            continue;
        }
        if let Some(element) = PathElement::parse(text)? {
            let (member, children) = parse_node(below)?;
            nodes.push(FieldNode { element, member, children });
        }
    }
    let children = FieldSet::from_nodes(nodes);
    Ok((own || children.is_empty(), children))
}
