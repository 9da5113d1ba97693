//! Sets of fields, as trees: a node is in the set, has children in it, or both.
//!
//! The nodes of a level are sorted, so that union, intersection and difference are one walk over both trees.

use std::cmp::Ordering;

use super::element::{MalformedElement, PathElement};
use crate::{Map, Value};

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted by element, each of them once; none is neither a member nor has children.
    nodes: Vec<Node>,
}

/// A field and what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The last step to the field.
    pub element: PathElement,
    /// The field itself is in the set.
    pub member: bool,
    /// What is in the set below the field.
    pub children: Set,
}

impl Node {
    fn is_void(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    /// A set of dotted paths of field names.
    pub fn of_fields(paths: &[&str]) -> Self {
        let one = |path: &&str| {
            path.rsplit('.').fold(Set::default(), |children, name| {
                let member = children.is_empty();
                Set { nodes: vec![Node { element: PathElement::Field(name.to_owned().into()), member, children }] }
            })
        };
        paths.iter().map(one).fold(Set::default(), Set::union)
    }

    /// A set of nodes in any order; of those that name the same field, the last one counts.
    pub fn from_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| !node.is_void());
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

    /// The nodes, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes, to be changed into others that are not void.
    pub(super) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a node that sorts after all others; void ones are left out.
    pub fn push(&mut self, node: Node) {
        debug_assert!(self.nodes.last().is_none_or(|last| last.element < node.element));
        if !node.is_void() {
            self.nodes.push(node);
        }
    }

    /// The node of an element.
    pub fn get(&self, element: &PathElement) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.nodes[found])
    }

    /// Whether a path is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// What is in either.
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
                (Some(a), Some(b)) => Some(Node {
                    element: a.element,
                    member: a.member || b.member,
                    children: a.children.union(b.children),
                }),
                (a, b) => a.or(b),
            });
        }
    }

    /// What is in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut rest = other.nodes.iter().peekable();
        let mut out = Self::default();
        for node in &self.nodes {
            while rest.next_if(|other| other.element < node.element).is_some() {}
            if let Some(other) = rest.next_if(|other| other.element == node.element) {
                let (member, children) = (node.member && other.member, node.children.intersection(&other.children));
                if member || !children.is_empty() {
                    out.nodes.push(Node { element: node.element.clone(), member, children });
                }
            }
        }
        out
    }

    /// Whether all of it is in the other.
    pub fn is_in(&self, other: &Self) -> bool {
        let is_in = |node: &Node, other: &Node| (other.member || !node.member) && node.children.is_in(&other.children);
        self.nodes.iter().all(|node| other.get(&node.element).is_some_and(|other| is_in(node, other)))
    }

    /// What is in this one and not in the other. A field in the other takes nothing from below it.
    pub fn difference(mut self, other: &Self) -> Self {
        self.subtract(other, |node, other| {
            node.member &= !other.member;
            node.children = std::mem::take(&mut node.children).difference(&other.children);
        });
        self
    }

    /// What is in this one and neither in the other nor below a field in the other.
    pub fn recursive_difference(mut self, other: &Self) -> Self {
        self.subtract(other, |node, other| {
            if other.member {
                (node.member, node.children) = (false, Set::default());
            } else {
                node.children = std::mem::take(&mut node.children).recursive_difference(&other.children);
            }
        });
        self
    }

    /// Changes every node that has its like in the other set; void ones go.
    fn subtract(&mut self, other: &Self, change: impl Fn(&mut Node, &Node)) {
        let mut rest = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while rest.next_if(|other| other.element < node.element).is_some() {}
            if let Some(other) = rest.next_if(|other| other.element == node.element) {
                change(node, other);
            }
            !node.is_void()
        });
    }

    /// Every path in the set: those of a level before those below it.
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

    /// The set as `fieldsV1` has it.
    pub fn to_value(&self) -> Value {
        self.to_map(false).into()
    }

    fn to_map(&self, member: bool) -> Map {
        let own = (member && !self.is_empty()).then(|| (".".to_owned(), Value::Object(Map::new())));
        let nodes = self.nodes.iter().map(|node| (node.element.serialize(), node.children.to_map(node.member).into()));
        own.into_iter().chain(nodes).collect()
    }

    /// Reads `fieldsV1`. Steps of unknown kinds are ignored.
    pub fn from_value(value: &Value) -> Result<Self, MalformedElement> {
        Ok(read(value)?.1)
    }
}

/// Whether the field itself is a member, and what is below it.
fn read(value: &Value) -> Result<(bool, Set), MalformedElement> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok((true, Set::default())),
        _ => return Err(MalformedElement::NoObject),
    };
    let (mut own, mut nodes) = (false, Vec::with_capacity(map.len()));
    for (text, below) in map {
        if text == "." {
            own = true;
            continue;
        }
        if let Some(element) = PathElement::parse(text)? {
            let (member, children) = read(below)?;
            nodes.push(Node { element, member, children });
        }
    }
    let children = Set::from_nodes(nodes);
    Ok((own || children.is_empty(), children))
}
