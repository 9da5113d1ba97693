//! Go's template language, as `-o go-template` uses it: actions, pipelines, variables, control structures, nested templates
//! and functions, over JSON values.

mod execute;
mod format_verbs;
mod functions;
mod lexer;
mod parser;
mod value_text;

use std::collections::HashMap;

use api::Value;

use parser::TemplateNode;

/// A template that cannot be parsed or executed, with Go's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(pub String);

/// A parsed template.
#[derive(Clone, Debug)]
pub struct GoTemplate {
    nodes: Vec<TemplateNode>,
    defined: HashMap<String, Vec<TemplateNode>>,
    /// Whether missing keys are errors.
    pub strict: bool,
}

/// The output of an execution, and the error that ended it.
#[derive(Debug)]
pub struct TemplateOutput {
    /// The text that was written.
    pub text: String,
    /// The error, if any.
    pub error: Option<TemplateError>,
}

impl GoTemplate {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let tokens = lexer::split_tokens(text)?;
        let (nodes, defined) = parser::parse_tokens(tokens)?;
        Ok(GoTemplate { nodes, defined, strict: false })
    }

    /// Executes the template.
    pub fn execute(&self, value: &Value) -> TemplateOutput {
        let (text, outcome) = execute::run_template(&self.nodes, &self.defined, value, self.strict);
        TemplateOutput { text, error: outcome.err() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(template: &str, wanted: &str) {
        let object = json!({"a": {"b": "x", "n": 3, "f": 1.5}, "items": [{"name": "p", "v": true}, {"name": "q"}], "m": {"z": 1, "k": 2}});
        let got = GoTemplate::parse(template).map(|template| template.execute(&object));
        let got = match got {
            Ok(TemplateOutput { text, error: None }) => text,
            Ok(TemplateOutput { error: Some(error), .. }) | Err(error) => error.to_string(),
        };
        assert_eq!(got, wanted, "{template}");
    }

    #[test]
    fn templates_are_executed_like_go() {
        check("{{.a.b}} {{.a.n}} {{.nope}}", "x 3 <no value>");
        check("{{range .items}}{{.name}}{{if .v}}!{{else}}?{{end}},{{end}}", "p!,q?,");
        check("{{range $i, $x := .items}}{{$i}}={{$x.name}};{{end}}", "0=p;1=q;");
        check("{{range $k, $v := .m}}{{$k}}{{$v}} {{end}}", "k2 z1 ");
        check(
            "{{len .items}} {{index .items 1 \"name\"}} {{printf \"%5s|%-3d|%q\" .a.b 7 \"s\"}}",
            "2 q     x|7  |\"s\"",
        );
        check("{{with .a}}{{.b}}{{end}}{{- \" y\"}}{{/* c */}}", "x y");
        check("{{if and .a (eq .a.b \"x\")}}yes{{else if .b}}b{{end}}", "yes");
        check("{{$x := 1}}{{$x = 2}}{{$x}}", "2");
        check("{{define \"t\"}}<{{.}}>{{end}}{{template \"t\" .a.b}}", "<x>");
        check("{{range .items}}{{if eq .name \"q\"}}{{break}}{{end}}{{.name}}{{end}}", "p");
        check("{{.a.b | len | printf \"%03d\"}}", "001");
        check("{{printf \"%*d|%[2]d %[1]d\" 3 7}}", "  7|7 3");
        check("{{eq .a.b \"y\" \"x\"}}", "true");
        let failed = "template: output:1:2: executing \"output\" at ";
        check("{{lt .a .a}}", &format!("{failed}<lt .a .a>: error calling lt: invalid type for comparison"));
        check(
            "{{.a.b 1}}",
            "template: output:1:4: executing \"output\" at <.a.b>: b is not a method but has arguments",
        );
        check("{{len 3}}", &format!("{failed}<len 3>: error calling len: len of type int"));
        check("{{define x}}{{end}}", "template: output:1: unexpected \"x\" in define clause");
        check("{{.bad", "template: output:1: unclosed action");
        check("{{nofunc 1}}", "template: output:1: function \"nofunc\" not defined");
        check("{{if .a}}x", "template: output:1: unexpected EOF");
    }

    #[test]
    fn malformed_templates_do_not_panic() {
        for text in [
            "{{",
            "{{(",
            "{{.a.b.c.d}}",
            "{{index .items 9}}",
            "{{slice .a 1}}",
            "{{range}}",
            "{{end}}",
            "{{\"",
            "{{printf}}",
            "{{template \"x\"}}",
            "{{$}}",
            "{{$x}}",
            "{{1 | }}",
            "{{.a | .b}}",
            "{{call .a}}",
        ] {
            if let Ok(template) = GoTemplate::parse(text) {
                let _ = template.execute(&json!({"a": 1, "items": []}));
            }
        }
    }
}
