//! The parser: recursive descent over CEL's small grammar.
//!
//! `cel-go` parses with ANTLR, and its messages reach users, so this parser recovers from a syntax error as ANTLR does:
//! it skips a token that stands before the expected one, assumes a missing token if the current one may follow it, and
//! otherwise abandons the operand and resumes where one may end, suppressing messages until a token matches again.
//! Nesting depth, size and the number of nodes created by macros are limited.

mod lexer;
mod literal;
mod macros;
mod operand;

use self::lexer::{Lexeme, TokenKind};
use crate::{
    ast::{Ast, Expr, ExprId, NO_OFFSET},
    issue::Issues,
};

const MOST_CHARACTERS: usize = 100_000;
const MOST_NODES: usize = 100_000;
const DEEPEST: u16 = 250;

/// Tokens that may start an operand.
const FIRST: [TokenKind; 15] = [
    TokenKind::LeftBracket,
    TokenKind::LeftBrace,
    TokenKind::LeftParen,
    TokenKind::Dot,
    TokenKind::Minus,
    TokenKind::Not,
    TokenKind::True,
    TokenKind::False,
    TokenKind::Null,
    TokenKind::Float,
    TokenKind::Int,
    TokenKind::Uint,
    TokenKind::String,
    TokenKind::Bytes,
    TokenKind::Identifier,
];

/// Parsing stopped; the cause is among the issues.
struct ParseAborted;

type ParseResult<T = ExprId> = Result<T, ParseAborted>;

struct Parser<'s> {
    source: &'s str,
    lexemes: Vec<Lexeme>,
    at: usize,
    issues: Issues,
    ast: Ast,
    /// Depth of operators and selections nested in each node, indexed by node.
    depths: Vec<u16>,
    nesting: u16,
    /// Tokens that may end each open expression, innermost last.
    ends: Vec<&'static [TokenKind]>,
    /// Error recovery is active: a token was wrong, and none has matched since.
    lost: bool,
    /// A limit was exceeded; parsing has stopped.
    refused: bool,
}

/// Parses an expression.
pub(crate) fn parse_expression(source: &str) -> Result<Ast, Issues> {
    let mut issues = Issues::new(source);
    let size = source.chars().count();
    if size > MOST_CHARACTERS {
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MOST_CHARACTERS}");
        issues.report_error(NO_OFFSET, message);
        return Err(issues);
    }
    let lexemes = lexer::tokenize(source, &mut issues);
    let mut parser = Parser {
        source,
        lexemes,
        at: 0,
        issues,
        ast: Ast::default(),
        depths: Vec::new(),
        nesting: 0,
        ends: Vec::new(),
        lost: false,
        refused: false,
    };
    if let Ok(root) = parser.parse_all() {
        parser.ast.root = root;
    }
    if parser.issues.is_empty() { Ok(parser.ast) } else { Err(parser.issues.into_sorted()) }
}

impl Parser<'_> {
    fn parse_all(&mut self) -> ParseResult {
        let root = self.parse_expr(&[TokenKind::End])?;
        self.expect_token(TokenKind::End, |_, _| false)?;
        Ok(root)
    }

    /// Parses `condition ? then : otherwise`, or an expression without it. `ends` are the tokens that may follow.
    fn parse_expr(&mut self, ends: &'static [TokenKind]) -> ParseResult {
        self.nesting += 1;
        if self.nesting > DEEPEST {
            return self.abort_with_error(format!("expression recursion limit exceeded: {DEEPEST}"));
        }
        self.ends.push(ends);
        let parsed = self.parse_conditional();
        self.ends.pop();
        self.nesting -= 1;
        parsed
    }

    fn parse_conditional(&mut self) -> ParseResult {
        let condition = self.parse_disjunction()?;
        if self.peek() != TokenKind::Question {
            return Ok(condition);
        }
        let offset = self.advance().start;
        self.ends.push(&[TokenKind::Colon]);
        let then = self.parse_disjunction();
        self.ends.pop();
        let then = then?;
        if self.expect_token(TokenKind::Colon, |_, found| FIRST.contains(&found)).is_err() {
            return self.skip_to_end(offset, false);
        }
        let ends = self.ends.last().copied().unwrap_or(&[]);
        let otherwise = self.parse_expr(ends)?;
        self.add_call(offset, "_?_:_", None, vec![condition, then, otherwise], 1)
    }

    fn parse_disjunction(&mut self) -> ParseResult {
        let mut terms = vec![self.parse_conjunction()?];
        let offset = self.lexemes[self.at].start;
        while self.peek() == TokenKind::Or {
            self.advance();
            terms.push(self.parse_conjunction()?);
        }
        if terms.len() == 1 { Ok(terms[0]) } else { self.add_call(offset, "_||_", None, terms, 0) }
    }

    fn parse_conjunction(&mut self) -> ParseResult {
        let mut terms = vec![self.parse_binary(0)?];
        let offset = self.lexemes[self.at].start;
        while self.peek() == TokenKind::And {
            self.advance();
            terms.push(self.parse_binary(0)?);
        }
        if terms.len() == 1 { Ok(terms[0]) } else { self.add_call(offset, "_&&_", None, terms, 0) }
    }

    /// Parses binary operators with at least the precedence `least`.
    fn parse_binary(&mut self, least: u8) -> ParseResult {
        let mut left = self.parse_unary()?;
        while let Some((level, function)) = binary_operator(self.peek()).filter(|(level, _)| *level >= least) {
            let offset = self.advance().start;
            let right = self.parse_binary(level + 1)?;
            left = self.add_call(offset, function, None, vec![left, right], 1)?;
        }
        Ok(left)
    }

    /// Creates a call or expands it as a macro; `deeper` is the nesting depth that it adds to its operands.
    fn add_call(
        &mut self,
        offset: u32,
        function: &str,
        target: Option<ExprId>,
        args: Vec<ExprId>,
        deeper: u16,
    ) -> ParseResult {
        let depth = self.nested_depth(target.iter().chain(&args), deeper);
        let id = match macros::expand_macro(self, offset, function, target, &args) {
            Some(expanded) => expanded,
            None => self.ast.add_expr(Expr::Call { function: function.into(), target, args }, offset),
        };
        self.record_depth(id, depth)
    }

    fn add_node(&mut self, expr: Expr, offset: u32, depth: u16) -> ParseResult {
        let id = self.ast.add_expr(expr, offset);
        self.record_depth(id, depth)
    }

    fn nested_depth<'i>(&self, parts: impl Iterator<Item = &'i ExprId>, deeper: u16) -> u16 {
        parts.map(|id| self.depths.get(*id as usize).copied().unwrap_or(0)).max().unwrap_or(0) + deeper
    }

    /// Records the depth of a finished node; fails if the depth or the number of nodes exceeds its limit.
    fn record_depth(&mut self, id: ExprId, depth: u16) -> ParseResult {
        self.depths.resize(self.ast.len(), 0);
        self.depths[id as usize] = depth;
        if depth > DEEPEST {
            return self.abort_with_error("max recursion depth exceeded");
        }
        if self.ast.len() > MOST_NODES {
            return self.abort_with_error(format!("expression has more than {MOST_NODES} parts"));
        }
        Ok(id)
    }

    fn abort_with_error<T>(&mut self, message: impl Into<String>) -> ParseResult<T> {
        self.issues.report_error(NO_OFFSET, message);
        self.refused = true;
        Err(ParseAborted)
    }

    /// Skips to a token that may end an operand, or an expression, and continues as if one had been parsed.
    fn skip_to_end(&mut self, start: u32, operand: bool) -> ParseResult {
        if self.refused {
            return Err(ParseAborted);
        }
        while !(self.can_end() || operand && self.can_follow(self.peek())) {
            self.at += 1;
        }
        self.add_node(Expr::Missing, start, 0)
    }

    /// Whether an open expression may end here.
    fn can_end(&self) -> bool {
        self.peek() == TokenKind::End || self.ends.iter().any(|ends| ends.contains(&self.peek()))
    }

    /// Records an issue, unless it is a consequence of an earlier one.
    fn report_error(&mut self, offset: u32, message: String) {
        if !self.lost {
            self.issues.report_error(offset, message);
        }
        self.lost = true;
    }

    fn peek(&self) -> TokenKind {
        self.lexemes[self.at].token
    }

    fn peek_ahead(&self, ahead: usize) -> TokenKind {
        self.lexemes.get(self.at + ahead).map_or(TokenKind::End, |lexeme| lexeme.token)
    }

    fn advance(&mut self) -> Lexeme {
        self.lost = false;
        let lexeme = self.lexemes[self.at];
        self.at = (self.at + 1).min(self.lexemes.len() - 1);
        lexeme
    }

    /// Consumes a token, recovering if another one is present. `follows` tests the tokens that may come after a missing
    /// one.
    fn expect_token(&mut self, token: TokenKind, follows: impl Fn(&Self, TokenKind) -> bool) -> ParseResult<Lexeme> {
        if self.peek() == token {
            return Ok(self.advance());
        }
        let here = self.lexemes[self.at];
        if here.token != TokenKind::End && self.peek_ahead(1) == token {
            self.report_unexpected("extraneous", &[token]);
            self.advance();
            return Ok(self.advance());
        }
        if follows(self, here.token) {
            let message = format!("Syntax error: missing {} at {}", token.display_name(), self.quoted_token(here));
            self.report_error(here.start, message);
            return Ok(here);
        }
        self.report_unexpected("mismatched", &[token]);
        Err(ParseAborted)
    }

    /// Ensures that one of `expected` comes next, skipping one token if that helps.
    fn expect_any(&mut self, expected: &[TokenKind]) -> ParseResult<()> {
        if expected.contains(&self.peek()) {
            return Ok(());
        }
        if self.peek() != TokenKind::End && expected.contains(&self.peek_ahead(1)) {
            self.report_unexpected("extraneous", expected);
            self.advance();
            return Ok(());
        }
        self.report_unexpected("mismatched", expected);
        Err(ParseAborted)
    }

    /// Ensures that an operand or one of `others` comes next.
    fn expect_operand(&mut self, others: &[TokenKind]) -> ParseResult<()> {
        if FIRST.contains(&self.peek()) || others.contains(&self.peek()) {
            return Ok(());
        }
        self.expect_any(&[&FIRST, others].concat())
    }

    fn report_unexpected(&mut self, how: &str, expected: &[TokenKind]) {
        let here = self.lexemes[self.at];
        let mut expected = expected.to_vec();
        expected.sort_by_key(|token| *token as u8);
        let names: Vec<_> = expected.iter().map(|token| token.display_name()).collect();
        let names = if names.len() == 1 { names[0].to_owned() } else { format!("{{{}}}", names.join(", ")) };
        let message = format!("Syntax error: {how} input {} expecting {names}", self.quoted_token(here));
        self.report_error(here.start, message);
    }

    fn token_text(&self, lexeme: Lexeme) -> &str {
        &self.source[lexeme.start as usize..lexeme.end as usize]
    }

    fn quoted_token(&self, lexeme: Lexeme) -> String {
        match lexeme.token {
            TokenKind::End => "'<EOF>'".into(),
            _ => quote_text(self.token_text(lexeme)),
        }
    }

    /// Whether a token may follow an operand that ends here.
    fn can_follow(&self, token: TokenKind) -> bool {
        let ends = self.ends.last().copied().unwrap_or(&[]);
        let conditional = token == TokenKind::Question && ends != [TokenKind::Colon];
        let access = [TokenKind::And, TokenKind::Or, TokenKind::Dot, TokenKind::LeftBracket].contains(&token);
        binary_operator(token).is_some() || conditional || access || ends.contains(&token)
    }
}

fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t"))
}

/// Returns the precedence of an operator and its function name.
fn binary_operator(token: TokenKind) -> Option<(u8, &'static str)> {
    Some(match token {
        TokenKind::Less => (0, "_<_"),
        TokenKind::LessEquals => (0, "_<=_"),
        TokenKind::GreaterEquals => (0, "_>=_"),
        TokenKind::Greater => (0, "_>_"),
        TokenKind::Equals => (0, "_==_"),
        TokenKind::NotEquals => (0, "_!=_"),
        TokenKind::In => (0, "@in"),
        TokenKind::Plus => (1, "_+_"),
        TokenKind::Minus => (1, "_-_"),
        TokenKind::Star => (2, "_*_"),
        TokenKind::Slash => (2, "_/_"),
        TokenKind::Percent => (2, "_%_"),
        _ => return None,
    })
}
