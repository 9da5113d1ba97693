//! A value and its place: rules walk down an object with it, and say there what is wrong.
//!
//! The path is a chain on the stack; it becomes text only when there is a fault to tell. On a change the value that was at
//! the same place comes along.

use std::{cmp::Ordering, collections::HashSet, fmt, hash::Hash, sync::LazyLock};

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
    /// What was here before a change; null where nothing was, and in elements of lists.
    pub old: &'v Value,
    parent: Option<&'p At<'v, 'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    /// The whole object, and the time by the clock in seconds, where it is known.
    Top(Option<i64>),
    Field(&'p str),
    /// A field that paths leave out.
    Hidden,
    Key(&'p str),
    Index(usize),
}

impl<'v, 'p> At<'v, 'p> {
    /// A new object.
    pub fn top(value: &'v Value) -> Self {
        At::changed(value, &NOTHING)
    }

    /// A changed object.
    pub fn changed(value: &'v Value, old: &'v Value) -> Self {
        At { value, old, parent: None, step: Step::Top(None) }
    }

    /// A changed object, at a time in seconds.
    pub fn changed_at(value: &'v Value, old: &'v Value, now: Option<i64>) -> Self {
        At { value, old, parent: None, step: Step::Top(now) }
    }

    /// A field of the struct that is here, there or not.
    pub fn get<'b>(&'b self, name: &'b str) -> At<'v, 'b> {
        self.under(Step::Field(name), in_map(self.value, name), in_map(self.old, name))
    }

    /// A field, by the name that upstream gives it in messages.
    pub fn get_called<'b>(&'b self, name: &str, shown: &'b str) -> At<'v, 'b> {
        self.with(name, shown, in_map(self.value, name))
    }

    /// As [`Self::get_called`], where the value of the field is known.
    pub fn with<'b>(&'b self, name: &str, shown: &'b str, value: &'v Value) -> At<'v, 'b> {
        let step = if shown.is_empty() { Step::Hidden } else { Step::Field(shown) };
        let old = if self.old.is_null() { &NOTHING } else { in_map(self.old, name) };
        self.under(step, value, old)
    }

    /// A value under this place, by a name that is not that of its field.
    pub fn called<'b>(&'b self, name: &'b str, value: &'v Value) -> At<'v, 'b> {
        self.under(Step::Field(name), value, &NOTHING)
    }

    /// The same place, with another value.
    pub fn holding(self, value: &'v Value) -> Self {
        At { value, ..self }
    }

    /// An entry of the map that is here, there or not.
    pub fn key<'b>(&'b self, name: &'b str) -> At<'v, 'b> {
        self.under(Step::Key(name), in_map(self.value, name), in_map(self.old, name))
    }

    /// An element of the list that is here, there or not.
    pub fn index<'b>(&'b self, at: usize) -> At<'v, 'b> {
        self.under(Step::Index(at), self.value.get(at).unwrap_or(&NOTHING), &NOTHING)
    }

    fn under<'b>(&'b self, step: Step<'b>, value: &'v Value, old: &'v Value) -> At<'v, 'b> {
        At { value, old, parent: Some(self), step }
    }

    /// The elements of the list that is here.
    pub fn items<'b>(&'b self) -> impl Iterator<Item = At<'v, 'b>> {
        let list = self.value.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().enumerate().map(|(at, value)| self.under(Step::Index(at), value, &NOTHING))
    }

    /// The entries of the map that is here, by key.
    pub fn entries<'b>(&'b self) -> impl Iterator<Item = (&'v str, At<'v, 'b>)>
    where
        'v: 'b,
    {
        let map = self.value.as_object().into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), self.under(Step::Key(key), value, in_map(self.old, key))))
    }

    /// The name of the field or entry that is here.
    pub fn name(&self) -> &str {
        match self.step {
            Step::Field(name) | Step::Key(name) => name,
            Step::Top(_) | Step::Hidden | Step::Index(_) => "",
        }
    }

    /// The place that this one is in: so many steps up, or as far as there are.
    pub fn up(&self, steps: usize) -> &At<'v, '_> {
        match self.parent {
            Some(parent) if steps > 0 => parent.up(steps - 1),
            _ => self,
        }
    }

    /// The whole object.
    pub fn whole(&self) -> &At<'v, '_> {
        self.parent.map_or(self, At::whole)
    }

    /// The time in seconds, where the clock is known.
    pub fn now(&self) -> Option<i64> {
        match self.whole().step {
            Step::Top(now) => now,
            _ => None,
        }
    }

    /// Whether the path to here is empty.
    fn is_unnamed(&self) -> bool {
        self.parent.is_none_or(|parent| matches!(self.step, Step::Hidden) && parent.is_unnamed())
    }

    /// Whether this is the whole object.
    pub fn is_whole(&self) -> bool {
        self.parent.is_none()
    }

    /// Whether the object is one that changes.
    pub fn is_change(&self) -> bool {
        !self.whole().old.is_null()
    }

    /// What was here, as an object of its own.
    pub fn before(&self) -> At<'v, 'v> {
        At::top(self.old)
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

    /// The text of a field, or "".
    pub fn text_of(&self, name: &str) -> &'v str {
        in_map(self.value, name).as_str().unwrap_or_default()
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

    /// Whether the list here has a text.
    pub fn has(&self, text: &str) -> bool {
        self.texts().any(|other| other == text)
    }

    /// The element of the list here whose field has this text.
    pub fn find<'b>(&'b self, field: &str, text: &str) -> Option<At<'v, 'b>> {
        self.items().find(|item| item.text_of(field) == text)
    }

    /// The quantity here.
    pub fn quantity(&self) -> Option<Quantity> {
        Quantity::parse(self.text())
    }

    /// The sign of the quantity here: -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        static ZERO: LazyLock<Option<Quantity>> = LazyLock::new(|| Quantity::parse("0"));
        match self.quantity().partial_cmp(&*ZERO) {
            Some(Ordering::Less) if self.exists() => -1,
            Some(Ordering::Greater) => 1,
            _ => 0,
        }
    }

    /// Whether this means something else than what was here.
    pub fn differs(&self) -> bool {
        !render::same(self.value, self.old)
    }
}

fn in_map<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&NOTHING)
}

/// Faults at a place.
impl At<'_, '_> {
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

    /// The struct here is wrong, shown as upstream's type has it.
    pub fn invalid_struct(&self, e: &mut Errors, ty: &str, message: impl Into<String>) {
        self.fault(e, Fault::Invalid(Bad::of(ty, self.value)), message);
    }

    /// Something here is worth telling.
    pub fn warn(&self, e: &mut Errors, message: impl Into<String>) {
        self.fault(e, Fault::Warning, message);
    }

    /// Nothing may be here, or not this.
    pub fn forbidden(&self, e: &mut Errors, message: impl Into<String>) {
        self.fault(e, Fault::Forbidden, message);
    }

    /// Nothing may be here.
    pub fn forbid(&self, e: &mut Errors, message: impl Into<String>) {
        if self.exists() {
            self.forbidden(e, message);
        }
    }

    /// The text here is not one of those supported.
    pub fn unsupported(&self, e: &mut Errors, supported: &[&str]) {
        self.unsupported_as(e, self.text(), supported);
    }

    /// Something here is not one of those supported.
    pub fn unsupported_as(&self, e: &mut Errors, bad: impl Into<Bad>, supported: &[&str]) {
        e.push(FieldError::not_supported(self.to_string(), bad, supported));
    }

    /// What is here, a text or nothing, must be one of those supported if there is any.
    pub fn one_of(&self, e: &mut Errors, supported: &[&str]) {
        if self.exists() && !supported.contains(&self.text()) {
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
    pub fn form(&self, e: &mut Errors, form: names::Form) {
        self.form_as(e, self.text(), form);
    }

    /// As [`Self::form`], for a text that is a part of what is here.
    pub fn form_as(&self, e: &mut Errors, text: &str, form: names::Form) {
        form(text).into_iter().for_each(|fault| self.invalid_as(e, text, fault));
    }

    /// Text must be here and have a form.
    pub fn required_form(&self, e: &mut Errors, form: names::Form) {
        if self.require(e) {
            self.form(e, form);
        }
    }

    /// Text, if there is any, must have a form.
    pub fn optional_form(&self, e: &mut Errors, form: names::Form) {
        if !self.text().is_empty() {
            self.form(e, form);
        }
    }

    /// Calls `again` for every element of the list here that is like one before it by what `key` says of them.
    pub fn unique<'a, K: Hash + Eq + Copy>(&'a self, key: impl Fn(&At<'a, '_>) -> K, mut again: impl FnMut(&At, K)) {
        let mut seen = HashSet::new();
        for (index, item) in self.items().enumerate() {
            let own = key(&item);
            // Most lists are short enough to do without a set.
            let known =
                if self.len() > 16 { !seen.insert(own) } else { self.items().take(index).any(|i| key(&i) == own) };
            if known {
                again(&item, own);
            }
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
            Step::Top(_) | Step::Hidden => Ok(()),
            Step::Index(at) => write!(f, "[{at}]"),
            Step::Key(name) => write!(f, "[{name}]"),
            Step::Field("") => f.write_str("[]"),
            Step::Field(name) if parent.is_unnamed() => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
        }
    }
}
