//! `-o custom-columns` and `-o custom-columns-file`.

use std::cell::RefCell;

use api::Value;

use crate::{
    errors::{CommandError, CommandResult},
    jsonpath::{JsonPath, relaxed_expression},
    object,
    tab_writer::TabWriter,
};

/// Columns with a header and a path each.
#[derive(Debug)]
pub struct CustomColumns {
    headers: Vec<String>,
    paths: Vec<JsonPath>,
    no_headers: bool,
    last_kind: RefCell<Option<(String, String, String)>>,
}

fn column(header: &str, path: &str) -> CommandResult<(String, JsonPath)> {
    let wrong = |error: crate::jsonpath::JsonPathError| CommandError::new(error.to_string());
    let path = JsonPath::parse(&relaxed_expression(path).map_err(wrong)?).map_err(wrong)?;
    Ok((header.to_owned(), path))
}

impl CustomColumns {
    /// Parses `HEADER:path,…`.
    pub fn from_spec(spec: &str, no_headers: bool) -> CommandResult<Self> {
        if spec.is_empty() {
            crate::bail!("custom-columns format specified but no custom columns given");
        }
        let mut columns = Vec::new();
        for part in spec.split(',') {
            let Some((header, path)) = part.split_once(':') else {
                crate::bail!("unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>");
            };
            columns.push(column(header, path)?);
        }
        Ok(Self::new(columns, no_headers))
    }

    /// Parses a line of headers and a line of paths.
    pub fn from_template(text: &str, no_headers: bool) -> CommandResult<Self> {
        let expected =
            "Expected format is one line of space separated headers, one line of space separated column specs.";
        let mut lines = text.lines();
        let (Some(headers), specs) = (lines.next(), lines.next()) else {
            crate::bail!("invalid template, missing header line. {expected}");
        };
        let Some(specs) = specs else { crate::bail!("invalid template, missing spec line. {expected}") };
        let (headers, specs): (Vec<&str>, Vec<&str>) =
            (headers.split_whitespace().collect(), specs.split_whitespace().collect());
        if headers.len() != specs.len() {
            crate::bail!(
                "number of headers ({}) and field specifications ({}) don't match",
                headers.len(),
                specs.len()
            );
        }
        let columns: CommandResult<Vec<_>> =
            headers.iter().zip(specs).map(|(header, spec)| column(header, spec)).collect();
        Ok(Self::new(columns?, no_headers))
    }

    fn new(columns: Vec<(String, JsonPath)>, no_headers: bool) -> Self {
        let (headers, paths) = columns.into_iter().unzip();
        CustomColumns { headers, paths, no_headers, last_kind: RefCell::new(None) }
    }

    /// Adds the rows of an object, or of the items of a list.
    pub fn write_rows(&self, writer: &mut TabWriter, value: &Value) -> CommandResult {
        let kind = object::group_version_kind(value);
        if !self.no_headers && self.last_kind.borrow().as_ref() != Some(&kind) {
            writer.push_row(&self.headers);
            *self.last_kind.borrow_mut() = Some(kind);
        }
        if object::is_list(value) {
            for item in value.get("items").and_then(Value::as_array).into_iter().flatten() {
                self.write_row(writer, item)?;
            }
            return Ok(());
        }
        self.write_row(writer, value)
    }

    fn write_row(&self, writer: &mut TabWriter, object: &Value) -> CommandResult {
        let mut cells = Vec::new();
        for path in &self.paths {
            let results = path.find_results(object).map_err(|error| CommandError::new(error.to_string()))?;
            let mut texts: Vec<String> = results
                .iter()
                .flatten()
                .map(|value| crate::output::escape_terminal(&api::json::go_value(value)))
                .collect();
            if results.first().is_none_or(Vec::is_empty) {
                texts.insert(0, "<none>".to_owned());
            }
            cells.push(texts.join(","));
        }
        writer.push_row(&cells);
        Ok(())
    }
}
