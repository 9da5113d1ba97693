//! A value, its old value and its field path. Rules descend into an object with it and report errors at the path.
//!
//! The path is a linked list on the stack, formatted only for errors. On updates the old value at the same path comes
//! along.

use std::{cmp::Ordering, collections::HashSet, fmt, hash::Hash, sync::LazyLock};

use super::{ErrorList, names};
use crate::{
    Value,
    field_error::{BadValue, FieldError, FieldErrorType},
    quantity::Quantity,
    render::{self, render_bad_value},
};

static NULL: Value = Value::Null;

/// A value with its field path in the object.
#[derive(Clone, Copy)]
pub(super) struct FieldCursor<'v, 'p> {
    /// The value; null if absent.
    pub value: &'v Value,
    /// The old value on an update; null if absent, and in list elements.
    pub old: &'v Value,
    parent: Option<&'p FieldCursor<'v, 'p>>,
    step: PathStep<'p>,
}

#[derive(Clone, Copy)]
enum PathStep<'p> {
    /// The root object, with the current time in seconds if known.
    Top(Option<i64>),
    Field(&'p str),
    /// A field that paths omit.
    Hidden,
    Key(&'p str),
    Index(usize),
}

impl<'v, 'p> FieldCursor<'v, 'p> {
    /// Starts at an object that is created.
    pub fn for_create(value: &'v Value) -> Self {
        FieldCursor::for_update(value, &NULL)
    }

    /// Starts at an object that is updated.
    pub fn for_update(value: &'v Value, old: &'v Value) -> Self {
        FieldCursor { value, old, parent: None, step: PathStep::Top(None) }
    }

    /// Starts at an object that is updated at a time in seconds.
    pub fn for_update_at(value: &'v Value, old: &'v Value, now: Option<i64>) -> Self {
        FieldCursor { value, old, parent: None, step: PathStep::Top(now) }
    }

    /// Returns a field of the struct, present or not.
    pub fn get<'b>(&'b self, name: &'b str) -> FieldCursor<'v, 'b> {
        self.child(PathStep::Field(name), map_entry(self.value, name), map_entry(self.old, name))
    }

    /// Returns a field under the name that upstream uses in messages.
    pub fn get_as<'b>(&'b self, name: &str, shown: &'b str) -> FieldCursor<'v, 'b> {
        self.child_with_value(name, shown, map_entry(self.value, name))
    }

    /// As [`Self::get_as`], with a known value of the field.
    pub fn child_with_value<'b>(&'b self, name: &str, shown: &'b str, value: &'v Value) -> FieldCursor<'v, 'b> {
        let step = if shown.is_empty() { PathStep::Hidden } else { PathStep::Field(shown) };
        let old = if self.old.is_null() { &NULL } else { map_entry(self.old, name) };
        self.child(step, value, old)
    }

    /// Returns a value as a child under another name than its field's.
    pub fn child_as<'b>(&'b self, name: &'b str, value: &'v Value) -> FieldCursor<'v, 'b> {
        self.child(PathStep::Field(name), value, &NULL)
    }

    /// Returns the same path with another value.
    pub fn with_value(self, value: &'v Value) -> Self {
        FieldCursor { value, ..self }
    }

    /// Returns an entry of the map, present or not.
    pub fn entry<'b>(&'b self, name: &'b str) -> FieldCursor<'v, 'b> {
        self.child(PathStep::Key(name), map_entry(self.value, name), map_entry(self.old, name))
    }

    /// Returns an element of the list, present or not.
    pub fn element<'b>(&'b self, at: usize) -> FieldCursor<'v, 'b> {
        self.child(PathStep::Index(at), self.value.get(at).unwrap_or(&NULL), &NULL)
    }

    fn child<'b>(&'b self, step: PathStep<'b>, value: &'v Value, old: &'v Value) -> FieldCursor<'v, 'b> {
        FieldCursor { value, old, parent: Some(self), step }
    }

    /// Iterates over the elements of the list.
    pub fn items<'b>(&'b self) -> impl Iterator<Item = FieldCursor<'v, 'b>> {
        let list = self.value.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().enumerate().map(|(at, value)| self.child(PathStep::Index(at), value, &NULL))
    }

    /// Iterates over the entries of the map.
    pub fn entries<'b>(&'b self) -> impl Iterator<Item = (&'v str, FieldCursor<'v, 'b>)>
    where
        'v: 'b,
    {
        let map = self.value.as_object().into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), self.child(PathStep::Key(key), value, map_entry(self.old, key))))
    }

    /// The name of the field or map entry.
    pub fn name(&self) -> &str {
        match self.step {
            PathStep::Field(name) | PathStep::Key(name) => name,
            PathStep::Top(_) | PathStep::Hidden | PathStep::Index(_) => "",
        }
    }

    /// Returns the ancestor `steps` levels up, at most the root.
    pub fn ancestor(&self, steps: usize) -> &FieldCursor<'v, '_> {
        match self.parent {
            Some(parent) if steps > 0 => parent.ancestor(steps - 1),
            _ => self,
        }
    }

    /// Returns the root object.
    pub fn root(&self) -> &FieldCursor<'v, '_> {
        self.parent.map_or(self, FieldCursor::root)
    }

    /// The current time in seconds, if known.
    pub fn now(&self) -> Option<i64> {
        match self.root().step {
            PathStep::Top(now) => now,
            _ => None,
        }
    }

    /// Whether the path is empty.
    fn has_empty_path(&self) -> bool {
        self.parent.is_none_or(|parent| matches!(self.step, PathStep::Hidden) && parent.has_empty_path())
    }

    /// Whether this is the root object.
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Whether the object is updated.
    pub fn is_update(&self) -> bool {
        !self.root().old.is_null()
    }

    /// Returns the old value as a root.
    pub fn old_cursor(&self) -> FieldCursor<'v, 'v> {
        FieldCursor::for_create(self.old)
    }

    /// Whether a value is present.
    pub fn exists(&self) -> bool {
        !self.value.is_null()
    }

    /// The number of elements of the list or map.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    /// Whether the list, map or string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.text().is_empty()
    }

    /// The string, or "".
    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// The string of a field, or "".
    pub fn text_at(&self, name: &str) -> &'v str {
        map_entry(self.value, name).as_str().unwrap_or_default()
    }

    /// The integer, or 0.
    pub fn int(&self) -> i64 {
        self.value.as_i64().unwrap_or_default()
    }

    /// Whether the value is true.
    pub fn is_true(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    /// Iterates over the strings of the list.
    pub fn texts(&self) -> impl Iterator<Item = &'v str> {
        self.value.as_array().into_iter().flatten().map(|item| item.as_str().unwrap_or_default())
    }

    /// Whether the list contains a string.
    pub fn contains_text(&self, text: &str) -> bool {
        self.texts().any(|other| other == text)
    }

    /// Returns the list element whose field has this string.
    pub fn find_by<'b>(&'b self, field: &str, text: &str) -> Option<FieldCursor<'v, 'b>> {
        self.items().find(|item| item.text_at(field) == text)
    }

    /// The quantity.
    pub fn quantity(&self) -> Option<Quantity> {
        Quantity::parse(self.text())
    }

    /// The sign of the quantity: -1, 0 or 1.
    pub fn quantity_sign(&self) -> i32 {
        static ZERO: LazyLock<Option<Quantity>> = LazyLock::new(|| Quantity::parse("0"));
        match self.quantity().partial_cmp(&*ZERO) {
            Some(Ordering::Less) if self.exists() => -1,
            Some(Ordering::Greater) => 1,
            _ => 0,
        }
    }

    /// Whether the value differs semantically from the old one.
    pub fn is_changed(&self) -> bool {
        !render::semantically_equal(self.value, self.old)
    }
}

fn map_entry<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&NULL)
}

/// Error reporting, named as upstream's `field.ErrorList` constructors.
impl FieldCursor<'_, '_> {
    /// Adds an error at this path.
    pub fn push_error(&self, e: &mut ErrorList, kind: FieldErrorType, message: impl Into<String>) {
        e.push(FieldError::new(self.to_string(), kind, message));
    }

    /// Reports a required value.
    pub fn required(&self, e: &mut ErrorList, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Required, message);
    }

    /// Reports an empty value as required; returns whether it is set.
    pub fn require_value(&self, e: &mut ErrorList) -> bool {
        if self.is_empty() {
            self.required(e, "");
        }
        !self.is_empty()
    }

    /// Reports an invalid value.
    pub fn invalid(&self, e: &mut ErrorList, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Invalid(self.value.clone().into()), message);
    }

    /// Reports an invalid string; an absent one is "".
    pub fn invalid_text(&self, e: &mut ErrorList, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Invalid(self.text().into()), message);
    }

    /// Reports an invalid integer; an absent one is 0.
    pub fn invalid_int(&self, e: &mut ErrorList, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Invalid(self.int().into()), message);
    }

    /// Reports an invalid value, rendered as another value.
    pub fn invalid_as(&self, e: &mut ErrorList, bad: impl Into<BadValue>, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Invalid(bad.into()), message);
    }

    /// Reports an invalid struct, rendered as upstream's type.
    pub fn invalid_struct(&self, e: &mut ErrorList, ty: &str, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Invalid(render_bad_value(ty, self.value)), message);
    }

    /// Adds a warning.
    pub fn warn(&self, e: &mut ErrorList, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Warning, message);
    }

    /// Reports a forbidden value.
    pub fn forbidden(&self, e: &mut ErrorList, message: impl Into<String>) {
        self.push_error(e, FieldErrorType::Forbidden, message);
    }

    /// Reports a value as forbidden if present.
    pub fn forbid_value(&self, e: &mut ErrorList, message: impl Into<String>) {
        if self.exists() {
            self.forbidden(e, message);
        }
    }

    /// Reports an unsupported string.
    pub fn not_supported(&self, e: &mut ErrorList, supported: &[&str]) {
        self.not_supported_as(e, self.text(), supported);
    }

    /// Reports an unsupported value, rendered as another value.
    pub fn not_supported_as(&self, e: &mut ErrorList, bad: impl Into<BadValue>, supported: &[&str]) {
        e.push(FieldError::not_supported(self.to_string(), bad, supported));
    }

    /// Requires a present string to be one of the supported ones.
    pub fn require_one_of(&self, e: &mut ErrorList, supported: &[&str]) {
        if self.exists() && !supported.contains(&self.text()) {
            self.not_supported(e, supported);
        }
    }

    /// Reports a duplicate value.
    pub fn duplicate(&self, e: &mut ErrorList, bad: impl Into<BadValue>) {
        self.push_error(e, FieldErrorType::Duplicate(bad.into()), "");
    }

    /// Reports a reference to a missing value.
    pub fn not_found(&self, e: &mut ErrorList) {
        self.push_error(e, FieldErrorType::NotFound(self.text().into()), "");
    }

    /// Reports too many bytes.
    pub fn too_long(&self, e: &mut ErrorList, max: usize) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        self.push_error(e, FieldErrorType::TooLong, format!("may not be more than {max} {unit}"));
    }

    /// Reports too many elements.
    pub fn too_many(&self, e: &mut ErrorList, max: usize) {
        let unit = if max == 1 { "item" } else { "items" };
        self.push_error(e, FieldErrorType::TooMany(self.len()), format!("must have at most {max} {unit}"));
    }

    /// Requires an integer to be at least 0.
    pub fn require_nonnegative(&self, e: &mut ErrorList) {
        if self.int() < 0 {
            self.invalid(e, "must be greater than or equal to 0");
        }
    }

    /// Requires a present integer to be in a range.
    pub fn require_in_range(&self, e: &mut ErrorList, low: i64, high: i64) {
        if self.exists() && !(low..=high).contains(&self.int()) {
            self.invalid(e, names::inclusive_range_error(low, high));
        }
    }

    /// Checks the format of the string.
    pub fn check_format(&self, e: &mut ErrorList, form: names::NameRule) {
        self.check_format_as(e, self.text(), form);
    }

    /// As [`Self::check_format`], for a part of the value.
    pub fn check_format_as(&self, e: &mut ErrorList, text: &str, form: names::NameRule) {
        form(text).into_iter().for_each(|fault| self.invalid_as(e, text, fault));
    }

    /// Requires a string of a format.
    pub fn require_format(&self, e: &mut ErrorList, form: names::NameRule) {
        if self.require_value(e) {
            self.check_format(e, form);
        }
    }

    /// Checks the format of a string that is not empty.
    pub fn check_optional_format(&self, e: &mut ErrorList, form: names::NameRule) {
        if !self.text().is_empty() {
            self.check_format(e, form);
        }
    }

    /// Calls `again` for every list element whose `key` equals that of an earlier one.
    pub fn for_each_duplicate<'a, K: Hash + Eq + Copy>(
        &'a self,
        key: impl Fn(&FieldCursor<'a, '_>) -> K,
        mut again: impl FnMut(&FieldCursor, K),
    ) {
        let mut seen = HashSet::new();
        for (index, item) in self.items().enumerate() {
            let own = key(&item);
            // Short lists need no set.
            let known =
                if self.len() > 16 { !seen.insert(own) } else { self.items().take(index).any(|i| key(&i) == own) };
            if known {
                again(&item, own);
            }
        }
    }
}

/// The message about a changed immutable field.
pub(super) const IMMUTABLE: &str = "field is immutable";

/// Formats `spec.containers[0].resources.limits[cpu]`.
impl fmt::Display for FieldCursor<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        parent.fmt(f)?;
        match self.step {
            PathStep::Top(_) | PathStep::Hidden => Ok(()),
            PathStep::Index(at) => write!(f, "[{at}]"),
            PathStep::Key(name) => write!(f, "[{name}]"),
            PathStep::Field("") => f.write_str("[]"),
            PathStep::Field(name) if parent.has_empty_path() => f.write_str(name),
            PathStep::Field(name) => write!(f, ".{name}"),
        }
    }
}
