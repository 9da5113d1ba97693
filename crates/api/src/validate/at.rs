//! A value and its place: rules walk down an object with it, and say there what is wrong.
//!
//! The path is a chain on the stack; it becomes text only when there is a fault to tell.

use std::{cmp::Ordering, fmt};

use super::{
    Errors,
    error::{Bad, Fault, FieldError},
    names, render,
};
use crate::{Value, quantity::Quantity};

static NOTHING: Value = Value::Null;

/// A value and its place in the object.
#[derive(Clone, Copy)]
pub(super) struct At<'v, 'p> {
    /// What is here; null where nothing is.
    pub value: &'v Value,
    parent: Option<&'p At<'v, 'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Top,
    Field(&'p str),
    Key(&'p str),
    Index(usize),
}

impl<'v, 'p> At<'v, 'p> {
    /// The object itself.
    pub fn top(value: &'v Value) -> Self {
        At { value, parent: None, step: Step::Top }
    }

    /// A field of the struct that is here, there or not.
    pub fn get<'b>(&'b self, name: &'b str) -> At<'v, 'b> {
        let value = self.value.get(name).unwrap_or(&NOTHING);
        At { value, parent: Some(self), step: Step::Field(name) }
    }

    /// A value under this place, by a name that is not that of its field.
    pub fn called<'b>(&'b self, name: &'b str, value: &'v Value) -> At<'v, 'b> {
        At { value, parent: Some(self), step: Step::Field(name) }
    }

    /// The same place, with another value.
    pub fn holding(self, value: &'v Value) -> Self {
        At { value, ..self }
    }

    /// An entry of the map that is here, there or not.
    pub fn key<'b>(&'b self, name: &'b str) -> At<'v, 'b> {
        let value = self.value.get(name).unwrap_or(&NOTHING);
        At { value, parent: Some(self), step: Step::Key(name) }
    }

    /// An element of the list that is here, there or not.
    pub fn index<'b>(&'b self, at: usize) -> At<'v, 'b> {
        let value = self.value.get(at).unwrap_or(&NOTHING);
        At { value, parent: Some(self), step: Step::Index(at) }
    }

    /// The elements of the list that is here.
    pub fn items<'b>(&'b self) -> impl Iterator<Item = At<'v, 'b>> {
        (0..self.len()).map(|at| self.index(at))
    }

    /// The entries of the map that is here, by key.
    pub fn entries<'b>(&'b self) -> impl Iterator<Item = (&'v str, At<'v, 'b>)>
    where
        'v: 'b,
    {
        let map = self.value.as_object().into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), At { value, parent: Some(self), step: Step::Key(key) }))
    }

    /// Whether anything is here.
    pub fn exists(&self) -> bool {
        !self.value.is_null()
    }

    /// How many elements the list or map here has.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    /// Whether the list, map or text that is here has nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.text().is_empty()
    }

    /// The text here, or "".
    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// The number here, or 0.
    pub fn int(&self) -> i64 {
        self.value.as_i64().unwrap_or_default()
    }

    /// Whether true is here.
    pub fn is_true(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    /// The texts of the list here.
    pub fn texts(&self) -> impl Iterator<Item = &'v str> {
        self.value.as_array().into_iter().flatten().map(|item| item.as_str().unwrap_or_default())
    }

    /// The quantity here.
    pub fn quantity(&self) -> Option<Quantity> {
        Quantity::parse(self.text())
    }

    /// The sign of the quantity here: -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        let zero = Quantity::parse("0");
        match self.quantity().partial_cmp(&zero) {
            Some(Ordering::Less) if self.exists() => -1,
            Some(Ordering::Greater) => 1,
            _ => 0,
        }
    }

    /// Adds a fault at this place.
    pub fn fault(&self, e: &mut Errors, kind: Fault, message: impl Into<String>) {
        e.push(FieldError::new(self.to_string(), kind, message));
    }

    /// Something must be here.
    pub fn required(&self, e: &mut Errors, message: impl Into<String>) {
        self.fault(e, Fault::Required, message);
    }

    /// Something must be here, if nothing is.
    pub fn require(&self, e: &mut Errors) -> bool {
        if self.is_empty() {
            self.required(e, "");
        }
        !self.is_empty()
    }

    /// What is here is wrong.
    pub fn invalid(&self, e: &mut Errors, message: impl Into<String>) {
        self.fault(e, Fault::Invalid(self.value.clone().into()), message);
    }

    /// The text here is wrong; no text is the empty one.
    pub fn invalid_text(&self, e: &mut Errors, message: impl Into<String>) {
        self.fault(e, Fault::Invalid(self.text().into()), message);
    }

    /// The number here is wrong; no number is 0.
    pub fn invalid_int(&self, e: &mut Errors, message: impl Into<String>) {
        self.fault(e, Fault::Invalid(self.int().into()), message);
    }

    /// Something is wrong here, shown by another value.
    pub fn invalid_as(&self, e: &mut Errors, bad: impl Into<Bad>, message: impl Into<String>) {
        self.fault(e, Fault::Invalid(bad.into()), message);
    }

    /// The struct here is wrong, shown as upstream's internal type has it.
    pub fn invalid_internal(&self, e: &mut Errors, ty: &str, message: impl Into<String>) {
        self.fault(e, Fault::Invalid(Bad::Shown(render::internal(ty, self.value))), message);
    }

    /// The struct here is wrong, shown as it is served.
    pub fn invalid_external(&self, e: &mut Errors, ty: &str, message: impl Into<String>) {
        self.fault(e, Fault::Invalid(Bad::Shown(render::external(ty, self.value))), message);
    }

    /// Nothing may be here, or not this.
    pub fn forbidden(&self, e: &mut Errors, message: impl Into<String>) {
        self.fault(e, Fault::Forbidden, message);
    }

    /// The text here is not one of those supported.
    pub fn unsupported(&self, e: &mut Errors, supported: &[&str]) {
        e.push(FieldError::not_supported(self.to_string(), self.text(), supported));
    }

    /// What is here, a text or nothing, must be one of those supported if there is any.
    pub fn one_of(&self, e: &mut Errors, supported: &[&str]) {
        if self.exists() && !supported.contains(&self.text()) {
            self.unsupported(e, supported);
        }
    }

    /// Text must be here and be one of those supported.
    pub fn required_one_of(&self, e: &mut Errors, supported: &[&str]) {
        if self.text().is_empty() {
            self.required(e, "");
        } else if !supported.contains(&self.text()) {
            self.unsupported(e, supported);
        }
    }

    /// What is here is there twice.
    pub fn duplicate(&self, e: &mut Errors, bad: impl Into<Bad>) {
        self.fault(e, Fault::Duplicate(bad.into()), "");
    }

    /// The text here names something that does not exist.
    pub fn not_found(&self, e: &mut Errors) {
        self.fault(e, Fault::NotFound(self.text().into()), "");
    }

    /// Too many bytes are here.
    pub fn too_long(&self, e: &mut Errors, max: usize) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        self.fault(e, Fault::TooLong, format!("may not be more than {max} {unit}"));
    }

    /// Too many elements are here.
    pub fn too_many(&self, e: &mut Errors, max: usize) {
        let unit = if max == 1 { "item" } else { "items" };
        self.fault(e, Fault::TooMany(self.len()), format!("must have at most {max} {unit}"));
    }

    /// The number here, if any, must not be negative.
    pub fn nonnegative(&self, e: &mut Errors) {
        if self.int() < 0 {
            self.invalid(e, "must be greater than or equal to 0");
        }
    }

    /// The number here, if any, must be in a range.
    pub fn in_range(&self, e: &mut Errors, low: i64, high: i64) {
        if self.exists() && !(low..=high).contains(&self.int()) {
            self.invalid(e, names::range(low, high));
        }
    }

    /// The text here must have a form: every fault of it is one here.
    pub fn form(&self, e: &mut Errors, form: fn(&str) -> Vec<String>) {
        for fault in form(self.text()) {
            self.invalid_text(e, fault);
        }
    }

    /// Text must be here and have a form.
    pub fn required_form(&self, e: &mut Errors, form: fn(&str) -> Vec<String>) {
        if self.require(e) {
            self.form(e, form);
        }
    }

    /// Text, if there is any, must have a form.
    pub fn optional_form(&self, e: &mut Errors, form: fn(&str) -> Vec<String>) {
        if !self.text().is_empty() {
            self.form(e, form);
        }
    }

    /// What is here must be what it was.
    pub fn unchanged(&self, e: &mut Errors, old: &At) {
        if !render::same(self.value, old.value) {
            self.invalid(e, IMMUTABLE);
        }
    }

    /// As [`Self::unchanged`], for a struct that upstream shows as its internal type.
    pub fn unchanged_internal(&self, e: &mut Errors, old: &At, ty: &str) {
        if !render::same(self.value, old.value) {
            self.invalid_internal(e, ty, IMMUTABLE);
        }
    }
}

/// What is said about a change of what cannot change.
pub(super) const IMMUTABLE: &str = "field is immutable";

/// `spec.containers[0].resources.limits[cpu]`
impl fmt::Display for At<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        parent.fmt(f)?;
        match self.step {
            Step::Top => Ok(()),
            Step::Index(at) => write!(f, "[{at}]"),
            Step::Key(name) => write!(f, "[{name}]"),
            Step::Field(name) if parent.parent.is_none() => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
        }
    }
}
