//! Execution of templates.

use std::collections::HashMap;

use api::{Value, json::go_type};

use super::{
    TemplateError,
    format_verbs::type_name,
    functions,
    lexer::TemplatePosition,
    parser::{Command, Operand, OperandKind, Pipeline, TemplateNode},
    value_text,
};

/// Output beyond this size ends the execution.
const MAX_OUTPUT: usize = 256 << 20;
const MAX_CALLS: usize = 100;

struct TemplateRun<'a> {
    defined: &'a HashMap<String, Vec<TemplateNode>>,
    variables: Vec<(String, Value)>,
    strict: bool,
    out: String,
    depth: usize,
}

/// Outcome of executing a list of nodes.
#[derive(PartialEq)]
enum ControlFlow {
    Next,
    Break,
    Continue,
}

/// The value of a field that does not exist.
const NO_VALUE: &str = "<no value>";

/// Executes nodes; returns the output and the outcome.
pub fn run_template(
    nodes: &[TemplateNode],
    defined: &HashMap<String, Vec<TemplateNode>>,
    value: &Value,
    strict: bool,
) -> (String, Result<(), TemplateError>) {
    let variables = vec![("$".to_owned(), value.clone())];
    let mut run = TemplateRun { defined, variables, strict, out: String::new(), depth: 0 };
    let outcome = run.walk(nodes, Some(value)).map(|_| ());
    (run.out, outcome)
}

/// An error at a node: its place, its text and what is wrong.
fn fault<T>(
    place: TemplatePosition,
    node: &dyn std::fmt::Display,
    text: impl std::fmt::Display,
) -> Result<T, TemplateError> {
    let TemplatePosition { line, column } = place;
    Err(TemplateError(format!("template: output:{line}:{column}: executing \"output\" at <{node}>: {text}")))
}

type Evaluated = Result<Option<Value>, TemplateError>;

impl TemplateRun<'_> {
    fn walk(&mut self, nodes: &[TemplateNode], dot: Option<&Value>) -> Result<ControlFlow, TemplateError> {
        for node in nodes {
            if self.out.len() > MAX_OUTPUT {
                return Err(TemplateError("template: output: output is too long".to_owned()));
            }
            match node {
                TemplateNode::Text(text) => self.out.push_str(text),
                TemplateNode::Action(pipeline) => {
                    let value = self.evaluate(pipeline, dot)?;
                    if pipeline.variables.is_empty() {
                        let text = value.as_ref().map_or_else(|| NO_VALUE.to_owned(), value_text::print_value);
                        self.out.push_str(&text);
                    }
                }
                TemplateNode::If(pipeline, body, other) => {
                    let scope = self.variables.len();
                    let value = self.evaluate(pipeline, dot)?;
                    let chosen = if functions::is_true(value.as_ref()) { body } else { other };
                    let flow = self.walk(chosen, dot)?;
                    self.variables.truncate(scope);
                    if flow != ControlFlow::Next {
                        return Ok(flow);
                    }
                }
                TemplateNode::With(pipeline, body, other) => {
                    let scope = self.variables.len();
                    let value = self.evaluate(pipeline, dot)?;
                    let flow = if functions::is_true(value.as_ref()) {
                        self.walk(body, value.as_ref())?
                    } else {
                        self.walk(other, dot)?
                    };
                    self.variables.truncate(scope);
                    if flow != ControlFlow::Next {
                        return Ok(flow);
                    }
                }
                TemplateNode::Range(pipeline, body, other) => self.walk_range(pipeline, body, other, dot)?,
                TemplateNode::Call(name, place, pipeline) => {
                    self.call_template((name, *place), pipeline.as_ref(), dot)?
                }
                TemplateNode::Break => return Ok(ControlFlow::Break),
                TemplateNode::Continue => return Ok(ControlFlow::Continue),
            }
        }
        Ok(ControlFlow::Next)
    }

    fn call_template(
        &mut self,
        (name, place): (&str, TemplatePosition),
        pipeline: Option<&Pipeline>,
        dot: Option<&Value>,
    ) -> Result<(), TemplateError> {
        let arguments = pipeline.map(|pipeline| format!(" {pipeline}")).unwrap_or_default();
        let node = format!("{{{{template {}{arguments}}}}}", api::json::go_quote(name));
        let Some(nodes) = self.defined.get(name) else {
            return fault(place, &node, format!("template {} not defined", api::json::go_quote(name)));
        };
        let value = match pipeline {
            Some(pipeline) => self.evaluate(pipeline, dot)?,
            None => None,
        };
        self.depth += 1;
        if self.depth > MAX_CALLS {
            return fault(place, &node, "exceeded maximum template depth (100000)");
        }
        let start = vec![("$".to_owned(), value.clone().unwrap_or_default())];
        let outer = std::mem::replace(&mut self.variables, start);
        self.walk(nodes, value.as_ref())?;
        self.variables = outer;
        self.depth -= 1;
        Ok(())
    }

    fn walk_range(
        &mut self,
        pipeline: &Pipeline,
        body: &[TemplateNode],
        other: &[TemplateNode],
        dot: Option<&Value>,
    ) -> Result<(), TemplateError> {
        let scope = self.variables.len();
        let value = self.evaluate_commands(pipeline, dot)?;
        let items: Vec<(Value, Value)> = match value {
            Some(Value::Array(items)) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Some(Value::Object(map)) => map.into_iter().map(|(key, value)| (key.into(), value)).collect(),
            Some(Value::Number(count)) if count.is_i64() || count.is_u64() => {
                let count = count.as_i64().unwrap_or(0).clamp(0, 1 << 20);
                (0..count).map(|at| (at.into(), at.into())).collect()
            }
            None | Some(Value::Null) => Vec::new(),
            Some(other) => {
                let text = format!("range can't iterate over {}", value_text::print_value(&other));
                return match pipeline.last_operand() {
                    Some(operand) => fault(operand.place, &operand.kind, text),
                    None => fault(pipeline.place, pipeline, text),
                };
            }
        };
        if items.is_empty() {
            self.walk(other, dot)?;
        }
        for (key, item) in items {
            match pipeline.variables.as_slice() {
                [one] => self.variables.push((one.clone(), item.clone())),
                [first, second] => {
                    self.variables.push((first.clone(), key));
                    self.variables.push((second.clone(), item.clone()));
                }
                _ => {}
            }
            let flow = self.walk(body, Some(&item))?;
            self.variables.truncate(scope);
            if flow == ControlFlow::Break {
                break;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, pipeline: &Pipeline, dot: Option<&Value>) -> Evaluated {
        let value = self.evaluate_commands(pipeline, dot)?;
        for name in &pipeline.variables {
            let new = value.clone().unwrap_or_default();
            let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
            match known.filter(|_| !pipeline.declares) {
                Some((_, slot)) => *slot = new,
                None => self.variables.push((name.clone(), new)),
            }
        }
        Ok(value)
    }

    fn evaluate_commands(&mut self, pipeline: &Pipeline, dot: Option<&Value>) -> Evaluated {
        let mut value: Option<Option<Value>> = None;
        for command in &pipeline.commands {
            value = Some(self.evaluate_command(command, dot, value)?);
        }
        Ok(value.flatten())
    }

    fn evaluate_command(&mut self, command: &Command, dot: Option<&Value>, last: Option<Option<Value>>) -> Evaluated {
        let Some((first, rest)) = command.operands.split_first() else { return Ok(None) };
        if let OperandKind::Function(name) = &first.kind {
            return self.call_function(name, rest, (command.place, command), dot, last);
        }
        if !rest.is_empty() || last.is_some() {
            if let Some(field) = first.kind.last_field() {
                self.evaluate_operand(first, dot)?;
                return fault(first.place, &first.kind, format!("{field} is not a method but has arguments"));
            }
            return fault(first.place, &first.kind, format!("can't give argument to non-function {}", first.kind));
        }
        if matches!(first.kind, OperandKind::Nil) {
            return fault(first.place, &first.kind, "nil is not a command");
        }
        self.evaluate_operand(first, dot)
    }

    fn call_function(
        &mut self,
        name: &str,
        arguments: &[Operand],
        (place, node): (TemplatePosition, &dyn std::fmt::Display),
        dot: Option<&Value>,
        last: Option<Option<Value>>,
    ) -> Evaluated {
        let mut values = Vec::new();
        for argument in arguments {
            let value = self.evaluate_operand(argument, dot)?;
            // `and` and `or` stop at the first value that decides.
            let decided = match name {
                "and" => !functions::is_true(value.as_ref()),
                "or" => functions::is_true(value.as_ref()),
                _ => false,
            };
            values.push(value);
            if decided {
                return Ok(values.pop().flatten());
            }
        }
        values.extend(last);
        if let Some(text) = functions::check_arguments(name, values.len()) {
            return fault(place, &name, text);
        }
        if let ("call", Some(Some(value))) = (name, values.first())
            && !value.is_null()
        {
            let shown = arguments.first().map(|operand| operand.kind.to_string()).unwrap_or_default();
            let text = format!("error calling call: non-function {shown} of type {}", type_name(value));
            return fault(place, node, text);
        }
        functions::call(name, &values).or_else(|error| fault(place, node, format!("error calling {name}: {error}")))
    }

    fn evaluate_operand(&mut self, operand: &Operand, dot: Option<&Value>) -> Evaluated {
        match &operand.kind {
            OperandKind::Dot => Ok(dot.cloned()),
            OperandKind::Nil => Ok(None),
            OperandKind::Constant(value, _) => Ok(Some(value.clone())),
            OperandKind::Function(name) => self.call_function(name, &[], (operand.place, &operand.kind), dot, None),
            OperandKind::Fields(fields) => self.follow_fields(dot.cloned(), fields, operand),
            OperandKind::Variable(name, fields) => {
                let value =
                    self.variables.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone());
                self.follow_fields(value, fields, operand)
            }
            OperandKind::Nested(pipeline, fields) => {
                let value = self.evaluate(pipeline, dot)?;
                self.follow_fields(value, fields, operand)
            }
        }
    }

    fn follow_fields(&self, start: Option<Value>, fields: &[String], operand: &Operand) -> Evaluated {
        let mut value = start;
        for (at, name) in fields.iter().enumerate() {
            value = match value {
                Some(Value::Object(mut map)) => match map.remove(name) {
                    Some(value) => Some(value),
                    None if self.strict => {
                        let text = format!("map has no entry for key {}", api::json::go_quote(name));
                        return fault(operand.place, &operand.kind, text);
                    }
                    None => None,
                },
                None => None,
                Some(Value::Null) if at == 0 => None,
                Some(Value::Null) => {
                    let text = format!("nil pointer evaluating interface {{}}.{name}");
                    return fault(operand.place, &operand.kind, text);
                }
                Some(other) => {
                    let kind = if at == 0 { go_type(&other) } else { "interface {}" };
                    return fault(operand.place, &operand.kind, format!("can't evaluate field {name} in type {kind}"));
                }
            };
        }
        Ok(value)
    }
}
