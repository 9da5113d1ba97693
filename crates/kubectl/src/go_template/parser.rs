//! The parser: tokens to nodes.

use std::{collections::HashMap, fmt};

use super::{
    TemplateError, functions,
    lexer::{PlacedToken, TemplatePosition, TemplateToken, describe_token, error_at},
};

/// A node of a template.
#[derive(Clone, Debug)]
pub enum TemplateNode {
    /// Text.
    Text(String),
    /// A pipeline whose value is printed.
    Action(Pipeline),
    /// `if`, with the branch for true and the one for false.
    If(Pipeline, Vec<TemplateNode>, Vec<TemplateNode>),
    /// `with`
    With(Pipeline, Vec<TemplateNode>, Vec<TemplateNode>),
    /// `range`
    Range(Pipeline, Vec<TemplateNode>, Vec<TemplateNode>),
    /// `template`, with the place of the name
    Call(String, TemplatePosition, Option<Pipeline>),
    /// `break`
    Break,
    /// `continue`
    Continue,
}

/// Commands joined by bars, with the variables they are assigned to.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// The position of its first byte.
    pub place: TemplatePosition,
    /// The variables.
    pub variables: Vec<String>,
    /// Whether the variables are declared here.
    pub declares: bool,
    /// The commands.
    pub commands: Vec<Command>,
}

/// A function with its arguments, or a value.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// The position of its first byte.
    pub place: TemplatePosition,
    /// The operands.
    pub operands: Vec<Operand>,
}

/// An operand of a command and its place: where the fields after the first begin, if it has some.
#[derive(Clone, Debug)]
pub struct Operand {
    /// The position that errors name.
    pub place: TemplatePosition,
    /// The kind of node.
    pub kind: OperandKind,
}

/// The kinds of operands.
#[derive(Clone, Debug)]
pub enum OperandKind {
    /// `.`
    Dot,
    /// `nil`
    Nil,
    /// A constant, with its text.
    Constant(api::Value, String),
    /// A function.
    Function(String),
    /// `.a.b` from the dot.
    Fields(Vec<String>),
    /// `$x.a.b`
    Variable(String, Vec<String>),
    /// `(pipeline).a.b`
    Nested(Box<Pipeline>, Vec<String>),
}

impl Pipeline {
    /// The operand that is evaluated last, to which Go attributes errors of the whole.
    pub fn last_operand(&self) -> Option<&Operand> {
        let operand = self.commands.last()?.operands.last()?;
        match &operand.kind {
            OperandKind::Nested(inner, fields) if fields.is_empty() => inner.last_operand().or(Some(operand)),
            _ => Some(operand),
        }
    }
}

impl OperandKind {
    /// The name of the field that the operand ends with.
    pub fn last_field(&self) -> Option<&str> {
        match self {
            OperandKind::Fields(fields) | OperandKind::Variable(_, fields) | OperandKind::Nested(_, fields) => {
                fields.last().map(String::as_str)
            }
            _ => None,
        }
    }
}

impl fmt::Display for OperandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let push_fields =
            |f: &mut fmt::Formatter<'_>, fields: &[String]| fields.iter().try_for_each(|field| write!(f, ".{field}"));
        match self {
            OperandKind::Dot => f.write_str("."),
            OperandKind::Nil => f.write_str("nil"),
            OperandKind::Constant(_, text) | OperandKind::Function(text) => f.write_str(text),
            OperandKind::Fields(fields) => push_fields(f, fields),
            OperandKind::Variable(name, fields) => {
                f.write_str(name)?;
                push_fields(f, fields)
            }
            OperandKind::Nested(pipeline, fields) => {
                write!(f, "({pipeline})")?;
                push_fields(f, fields)
            }
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, operand) in self.operands.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { " " } else { "" }, operand.kind)?;
        }
        Ok(())
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            write!(f, "{} {} ", self.variables.join(", "), if self.declares { ":=" } else { "=" })?;
        }
        for (at, command) in self.commands.iter().enumerate() {
            write!(f, "{}{command}", if at > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}

type Defined = HashMap<String, Vec<TemplateNode>>;

struct TemplateParser {
    tokens: std::iter::Peekable<std::vec::IntoIter<PlacedToken>>,
    line: usize,
    place: TemplatePosition,
    defined: Defined,
    variables: Vec<String>,
    ranges: usize,
    depth: usize,
}

/// The way a list of nodes ended.
#[derive(PartialEq)]
enum BlockEnd {
    Input,
    End,
    Else,
}

const MAX_DEPTH: usize = 200;

/// Parses tokens; returns the nodes and the defined templates.
pub fn parse_tokens(tokens: Vec<PlacedToken>) -> Result<(Vec<TemplateNode>, Defined), TemplateError> {
    let mut parser = TemplateParser {
        tokens: tokens.into_iter().peekable(),
        line: 1,
        place: TemplatePosition::default(),
        defined: HashMap::new(),
        variables: vec!["$".to_owned()],
        ranges: 0,
        depth: 0,
    };
    let (nodes, end) = parser.parse_nodes()?;
    match end {
        BlockEnd::Input => Ok((nodes, parser.defined)),
        BlockEnd::End => error_at(parser.line, "unexpected {{end}}"),
        BlockEnd::Else => error_at(parser.line, "unexpected {{else}}"),
    }
}

impl TemplateParser {
    fn next(&mut self) -> Option<TemplateToken> {
        let (token, place) = self.tokens.next()?;
        self.line = place.line;
        self.place = place;
        Some(token)
    }

    fn next_solid(&mut self) -> Option<TemplateToken> {
        loop {
            match self.next()? {
                TemplateToken::Space => {}
                token => return Some(token),
            }
        }
    }

    fn peek_solid(&mut self) -> Option<&TemplateToken> {
        while matches!(self.tokens.peek(), Some((TemplateToken::Space, _))) {
            self.tokens.next();
        }
        self.tokens.peek().map(|(token, _)| token)
    }

    /// The place of the next token that is not space.
    fn peek_place(&mut self) -> TemplatePosition {
        self.peek_solid();
        self.tokens.peek().map_or(self.place, |(_, place)| *place)
    }

    fn parse_nodes(&mut self) -> Result<(Vec<TemplateNode>, BlockEnd), TemplateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return error_at(self.line, "template is nested too deeply");
        }
        let mut nodes = Vec::new();
        let end = loop {
            match self.next() {
                None => break BlockEnd::Input,
                Some(TemplateToken::Text(text)) => nodes.push(TemplateNode::Text(text)),
                Some(_) => match self.parse_action(&mut nodes)? {
                    Some(end) => break end,
                    None => continue,
                },
            }
        };
        self.depth -= 1;
        Ok((nodes, end))
    }

    fn parse_action(&mut self, nodes: &mut Vec<TemplateNode>) -> Result<Option<BlockEnd>, TemplateError> {
        let word = match self.peek_solid() {
            Some(TemplateToken::Word(word)) => word.clone(),
            _ => String::new(),
        };
        match word.as_str() {
            "if" | "with" | "range" => {
                self.next_solid();
                nodes.push(self.parse_control(&word)?);
            }
            "end" => {
                self.next_solid();
                self.expect_right("end")?;
                return Ok(Some(BlockEnd::End));
            }
            "else" => {
                self.next_solid();
                return Ok(Some(BlockEnd::Else));
            }
            "break" | "continue" => {
                self.next_solid();
                self.expect_right(&word)?;
                if self.ranges == 0 {
                    return error_at(self.line, format!("{{{{{word}}}}} outside {{{{range}}}}"));
                }
                nodes.push(if word == "break" { TemplateNode::Break } else { TemplateNode::Continue });
            }
            "define" | "block" => {
                self.next_solid();
                self.parse_definition(word == "block", nodes)?;
            }
            "template" => {
                self.next_solid();
                let place = self.peek_place();
                let name = self.parse_name("template clause")?;
                let pipeline = match self.peek_solid() {
                    Some(TemplateToken::Right) => {
                        self.next_solid();
                        None
                    }
                    _ => Some(self.parse_pipeline("template clause", &TemplateToken::Right)?),
                };
                nodes.push(TemplateNode::Call(name, place, pipeline));
            }
            _ => {
                let pipeline = self.parse_pipeline("command", &TemplateToken::Right)?;
                nodes.push(TemplateNode::Action(pipeline));
            }
        }
        Ok(None)
    }

    fn expect_right(&mut self, context: &str) -> Result<(), TemplateError> {
        match self.next_solid() {
            Some(TemplateToken::Right) => Ok(()),
            token => error_at(self.line, format!("unexpected {} in {context}", describe_token(token.as_ref()))),
        }
    }

    fn parse_name(&mut self, context: &str) -> Result<String, TemplateError> {
        match self.next_solid() {
            Some(TemplateToken::Text2(name)) => Ok(name),
            token => error_at(self.line, format!("unexpected {} in {context}", describe_token(token.as_ref()))),
        }
    }

    fn parse_definition(&mut self, block: bool, nodes: &mut Vec<TemplateNode>) -> Result<(), TemplateError> {
        let name = self.parse_name("define clause")?;
        if block {
            let pipeline = self.parse_pipeline("block clause", &TemplateToken::Right)?;
            nodes.push(TemplateNode::Call(name.clone(), self.place, Some(pipeline)));
        } else {
            self.expect_right("define clause")?;
        }
        let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let (body, end) = self.parse_nodes()?;
        self.variables = outer;
        if end != BlockEnd::End {
            return error_at(self.line, "unexpected EOF");
        }
        self.defined.insert(name, body);
        Ok(())
    }

    fn parse_control(&mut self, word: &str) -> Result<TemplateNode, TemplateError> {
        let scope = self.variables.len();
        let pipeline = self.parse_pipeline(word, &TemplateToken::Right)?;
        self.ranges += usize::from(word == "range");
        let (body, end) = self.parse_nodes()?;
        self.ranges -= usize::from(word == "range");
        let other = match end {
            BlockEnd::End => Vec::new(),
            BlockEnd::Input => return error_at(self.line, "unexpected EOF"),
            BlockEnd::Else => self.parse_else(word)?,
        };
        self.variables.truncate(scope);
        Ok(match word {
            "if" => TemplateNode::If(pipeline, body, other),
            "with" => TemplateNode::With(pipeline, body, other),
            _ => TemplateNode::Range(pipeline, body, other),
        })
    }

    /// Parses what follows `else`: another condition, or a block.
    fn parse_else(&mut self, word: &str) -> Result<Vec<TemplateNode>, TemplateError> {
        if word != "range"
            && let Some(TemplateToken::Word(next)) = self.peek_solid()
            && next == word
        {
            self.next_solid();
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return error_at(self.line, "template is nested too deeply");
            }
            let nested = self.parse_control(word)?;
            self.depth -= 1;
            return Ok(vec![nested]);
        }
        self.expect_right("else")?;
        match self.parse_nodes()? {
            (nodes, BlockEnd::End) => Ok(nodes),
            (_, BlockEnd::Else) => error_at(self.line, "expected end; found {{else}}"),
            (_, BlockEnd::Input) => error_at(self.line, "unexpected EOF"),
        }
    }

    fn parse_pipeline(&mut self, context: &str, close: &TemplateToken) -> Result<Pipeline, TemplateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return error_at(self.line, "template is nested too deeply");
        }
        let mut pipeline = Pipeline { place: self.peek_place(), ..Default::default() };
        self.parse_declaration(&mut pipeline, context)?;
        loop {
            let command = self.parse_command(close)?;
            if command.operands.is_empty() {
                return error_at(self.line, format!("missing value for {context}"));
            }
            pipeline.commands.push(command);
            match self.next_solid() {
                Some(TemplateToken::Sign("|")) => {}
                Some(token) if token == *close => break,
                Some(token) => {
                    return error_at(self.line, format!("unexpected {} in {context}", describe_token(Some(&token))));
                }
                None => return error_at(self.line, "unclosed action"),
            }
        }
        self.depth -= 1;
        Ok(pipeline)
    }

    fn parse_declaration(&mut self, pipeline: &mut Pipeline, context: &str) -> Result<(), TemplateError> {
        let Some(TemplateToken::Variable(_)) = self.peek_solid() else { return Ok(()) };
        // A declaration is recognised by what follows the variables.
        let ahead: Vec<TemplateToken> = self
            .tokens
            .clone()
            .map(|(token, _)| token)
            .filter(|token| *token != TemplateToken::Space)
            .take(4)
            .collect();
        let name = |token: &TemplateToken| match token {
            TemplateToken::Variable(name) => name.clone(),
            _ => String::new(),
        };
        if context == "range"
            && matches!(
                ahead.as_slice(),
                [_, TemplateToken::Sign(","), TemplateToken::Variable(_), TemplateToken::Sign(",")]
            )
        {
            return error_at(self.line, format!("too many declarations in {context}"));
        }
        let (count, sign) = match ahead.as_slice() {
            [_, TemplateToken::Sign(sign @ (":=" | "=")), ..] => (1, *sign),
            [_, TemplateToken::Sign(","), TemplateToken::Variable(_), TemplateToken::Sign(sign @ (":=" | "="))]
                if context == "range" =>
            {
                (2, *sign)
            }
            _ => return Ok(()),
        };
        for at in 0..count {
            pipeline.variables.push(name(&ahead[at * 2]));
        }
        for _ in 0..count * 2 {
            self.next_solid();
        }
        pipeline.declares = sign == ":=";
        if pipeline.declares {
            self.variables.extend(pipeline.variables.iter().cloned());
        }
        Ok(())
    }

    fn parse_command(&mut self, close: &TemplateToken) -> Result<Command, TemplateError> {
        let place = self.peek_place();
        let mut operands = Vec::new();
        loop {
            match self.peek_solid() {
                None => return error_at(self.line, "unclosed action"),
                Some(TemplateToken::Sign("|")) => return Ok(Command { place, operands }),
                Some(token) if token == close => return Ok(Command { place, operands }),
                Some(_) => operands.push(self.parse_operand()?),
            }
        }
    }

    fn parse_operand(&mut self) -> Result<Operand, TemplateError> {
        let Some(token) = self.next_solid() else { return error_at(self.line, "unclosed action") };
        let mut place = self.place;
        let kind = match token {
            TemplateToken::Dot => OperandKind::Dot,
            TemplateToken::Field(name) => {
                let mut fields = vec![name];
                fields.extend(self.parse_fields(&mut place));
                OperandKind::Fields(fields)
            }
            TemplateToken::Variable(name) => {
                if !self.variables.contains(&name) {
                    return error_at(self.line, format!("undefined variable \"{name}\""));
                }
                OperandKind::Variable(name, self.parse_fields(&mut place))
            }
            TemplateToken::Word(word) => match word.as_str() {
                "nil" => OperandKind::Nil,
                "true" | "false" => OperandKind::Constant((word == "true").into(), word),
                _ if functions::is_function(&word) => OperandKind::Function(word),
                _ => return error_at(self.line, format!("function {} not defined", api::json::go_quote(&word))),
            },
            TemplateToken::Text2(text) => {
                let shown = api::json::go_quote(&text);
                OperandKind::Constant(text.into(), shown)
            }
            TemplateToken::Char(code) => OperandKind::Constant(code.into(), code.to_string()),
            TemplateToken::Number(text) => match parse_number(&text) {
                Some(number) => OperandKind::Constant(number, text),
                None => return error_at(self.line, format!("bad number syntax: {}", api::json::go_quote(&text))),
            },
            TemplateToken::Sign("(") => {
                let pipeline = self.parse_pipeline("parenthesized pipeline", &TemplateToken::Sign(")"))?;
                OperandKind::Nested(Box::new(pipeline), self.parse_fields(&mut place))
            }
            TemplateToken::Sign(sign) => {
                return error_at(self.line, format!("unexpected \"{sign}\" in operand"));
            }
            token => return error_at(self.line, format!("unexpected {} in operand", describe_token(Some(&token)))),
        };
        Ok(Operand { place, kind })
    }

    /// The fields that follow an operand without a space; the first of them is the place of the operand in errors.
    fn parse_fields(&mut self, place: &mut TemplatePosition) -> Vec<String> {
        let mut fields = Vec::new();
        while let Some((TemplateToken::Field(name), field_place)) = self.tokens.peek() {
            if fields.is_empty() {
                *place = *field_place;
            }
            fields.push(name.clone());
            self.tokens.next();
        }
        fields
    }
}

fn parse_number(text: &str) -> Option<api::Value> {
    if let Ok(number) = crate::flag_value::parse_int(text, 64) {
        return Some(number.into());
    }
    text.replace('_', "").parse::<f64>().ok().map(api::Value::from)
}
