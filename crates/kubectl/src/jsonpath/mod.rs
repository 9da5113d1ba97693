//! JSONPath templates as kubectl has them: text with actions in braces, ranges, filters, unions, recursive descent.

mod evaluate;
mod parser;

use api::Value;

pub use evaluate::value_text;
pub use parser::unquote_text;

use parser::PathNode;

/// A template that cannot be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(pub String);

/// A parsed template.
#[derive(Clone, Debug)]
pub struct JsonPath {
    nodes: Vec<PathNode>,
    /// Whether missing keys give no result instead of an error.
    pub allow_missing_keys: bool,
}

impl JsonPath {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        Ok(JsonPath { nodes: parser::parse_template(text)?, allow_missing_keys: true })
    }

    /// The names of the fields of a template that is one path of fields; `None` for others.
    pub fn field_names(&self) -> Option<Vec<String>> {
        let [PathNode::List(nodes)] = self.nodes.as_slice() else { return None };
        let name = |node: &PathNode| match node {
            PathNode::Field(name) => Some(name.clone()),
            _ => None,
        };
        nodes.iter().map(name).collect()
    }

    /// Evaluates the template; a list of results per action.
    pub fn find_results(&self, value: &Value) -> Result<Vec<Vec<Value>>, JsonPathError> {
        evaluate::find_results(&self.nodes, value, self.allow_missing_keys)
    }

    /// Evaluates the template and formats the results.
    pub fn format(&self, value: &Value) -> Result<String, JsonPathError> {
        let results = self.find_results(value)?;
        let text = |results: &Vec<Value>| results.iter().map(value_text).collect::<Vec<_>>().join(" ");
        Ok(results.iter().map(text).collect())
    }
}

/// Completes an expression that lacks braces or its leading dot, as custom columns and `--sort-by` allow.
pub fn relaxed_expression(text: &str) -> Result<String, JsonPathError> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let inner = match (text.starts_with('{'), text.ends_with('}')) {
        (true, true) => &text[1..text.len() - 1],
        (false, false) => text,
        _ => {
            return Err(JsonPathError(
                "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or \
                 '{.name1.name2}'"
                    .into(),
            ));
        }
    };
    let inner = inner.strip_prefix('.').unwrap_or(inner);
    Ok(format!("{{.{inner}}}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(template: &str, wanted: &str) {
        let object = json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"app": "web"}}, "n": 1}, {"metadata": {"name": "b"}, "n": 2}]});
        let got = JsonPath::parse(template).and_then(|path| path.format(&object));
        assert_eq!(got.unwrap_or_else(|error| error.to_string()), wanted, "{template}");
    }

    #[test]
    fn templates_are_evaluated_like_upstream() {
        check("{.items[*].metadata.name}", "a b");
        check("{range .items[*]}{.metadata.name}{\"\\t\"}{.n}{\"\\n\"}{end}", "a\t1\nb\t2\n");
        check("{.items[?(@.n>1)].metadata.name} {.kind}", "b List");
        check("{..name}", "a b");
        check("{.items[-1:].n}", "2");
        check("{.items[0].metadata.labels}", "{\"app\":\"web\"}");
        check("{.items[0]['metadata.name','n']}", "a 1");
        check("{.none}", "");
        check("{.items[5].n}", "array index out of bounds: index 5, length 2");
        check("{.items", "unclosed action");
    }

    #[test]
    fn malformed_templates_do_not_panic() {
        for text in
            ["{", "{[", "{..", "{.a[?(", "{\"", "{'\\", "{.a[1:2:3:4]}", "{[?(@.x==)]}", "{range}", "{end}", "{@}"]
        {
            if let Ok(path) = JsonPath::parse(text) {
                let _ = path.format(&json!([1, {"a": "x"}]));
            }
        }
    }
}
