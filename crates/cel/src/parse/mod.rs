//! The parser: recursive descent over CEL's small grammar.
//!
//! `cel-go` parses with ANTLR, and its messages reach users, so this parser recovers from a syntax error as ANTLR does:
//! it skips a token that stands before the expected one, assumes a missing token if the current one may follow it, and
//! otherwise abandons the operand and resumes where one may end, suppressing messages until a token matches again.
//! Nesting depth, size and the number of nodes created by macros are limited.

mod lex;
mod literal;
mod macros;
mod operand;

use self::lex::{Lexeme, Token};
use crate::{
    ast::{Ast, Expr, Id, NOWHERE},
    issue::Issues,
};

const MOST_CHARACTERS: usize = 100_000;
const MOST_NODES: usize = 100_000;
const DEEPEST: u16 = 250;

/// Tokens that may start an operand.
const FIRST: [Token; 15] = [
    Token::LeftBracket,
    Token::LeftBrace,
    Token::LeftParen,
    Token::Dot,
    Token::Minus,
    Token::Not,
    Token::True,
    Token::False,
    Token::Null,
    Token::Float,
    Token::Int,
    Token::Uint,
    Token::String,
    Token::Bytes,
    Token::Identifier,
];

/// Parsing stopped; the cause is among the issues.
struct Stop;

type Parsed<T = Id> = Result<T, Stop>;

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
    ends: Vec<&'static [Token]>,
    /// Error recovery is active: a token was wrong, and none has matched since.
    lost: bool,
    /// A limit was exceeded; parsing has stopped.
    refused: bool,
}

/// Parses an expression.
pub(crate) fn parse(source: &str) -> Result<Ast, Issues> {
    let mut issues = Issues::new(source);
    let size = source.chars().count();
    if size > MOST_CHARACTERS {
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MOST_CHARACTERS}");
        issues.add(NOWHERE, message);
        return Err(issues);
    }
    let lexemes = lex::lex(source, &mut issues);
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
    if let Ok(root) = parser.whole() {
        parser.ast.root = root;
    }
    if parser.issues.is_empty() { Ok(parser.ast) } else { Err(parser.issues.finish()) }
}

impl Parser<'_> {
    fn whole(&mut self) -> Parsed {
        let root = self.expression(&[Token::End])?;
        self.expect(Token::End, |_, _| false)?;
        Ok(root)
    }

    /// Parses `condition ? then : otherwise`, or an expression without it. `ends` are the tokens that may follow.
    fn expression(&mut self, ends: &'static [Token]) -> Parsed {
        self.nesting += 1;
        if self.nesting > DEEPEST {
            return self.refuse(format!("expression recursion limit exceeded: {DEEPEST}"));
        }
        self.ends.push(ends);
        let parsed = self.conditional();
        self.ends.pop();
        self.nesting -= 1;
        parsed
    }

    fn conditional(&mut self) -> Parsed {
        let condition = self.disjunction()?;
        if self.peek() != Token::Question {
            return Ok(condition);
        }
        let place = self.advance().start;
        self.ends.push(&[Token::Colon]);
        let then = self.disjunction();
        self.ends.pop();
        let then = then?;
        if self.expect(Token::Colon, |_, found| FIRST.contains(&found)).is_err() {
            return self.recover(place, false);
        }
        let ends = self.ends.last().copied().unwrap_or(&[]);
        let otherwise = self.expression(ends)?;
        self.call(place, "_?_:_", None, vec![condition, then, otherwise], 1)
    }

    fn disjunction(&mut self) -> Parsed {
        let mut terms = vec![self.conjunction()?];
        let place = self.lexemes[self.at].start;
        while self.peek() == Token::Or {
            self.advance();
            terms.push(self.conjunction()?);
        }
        if terms.len() == 1 { Ok(terms[0]) } else { self.call(place, "_||_", None, terms, 0) }
    }

    fn conjunction(&mut self) -> Parsed {
        let mut terms = vec![self.binary(0)?];
        let place = self.lexemes[self.at].start;
        while self.peek() == Token::And {
            self.advance();
            terms.push(self.binary(0)?);
        }
        if terms.len() == 1 { Ok(terms[0]) } else { self.call(place, "_&&_", None, terms, 0) }
    }

    /// Parses binary operators with at least the precedence `least`.
    fn binary(&mut self, least: u8) -> Parsed {
        let mut left = self.unary()?;
        while let Some((level, function)) = operator(self.peek()).filter(|(level, _)| *level >= least) {
            let place = self.advance().start;
            let right = self.binary(level + 1)?;
            left = self.call(place, function, None, vec![left, right], 1)?;
        }
        Ok(left)
    }

    /// Creates a call or expands it as a macro; `deeper` is the nesting depth that it adds to its operands.
    fn call(&mut self, place: u32, function: &str, target: Option<Id>, args: Vec<Id>, deeper: u16) -> Parsed {
        let depth = self.depth(target.iter().chain(&args), deeper);
        let id = match macros::expand(self, place, function, target, &args) {
            Some(expanded) => expanded,
            None => self.ast.add(Expr::Call { function: function.into(), target, args }, place),
        };
        self.settle(id, depth)
    }

    fn node(&mut self, expr: Expr, place: u32, depth: u16) -> Parsed {
        let id = self.ast.add(expr, place);
        self.settle(id, depth)
    }

    fn depth<'i>(&self, parts: impl Iterator<Item = &'i Id>, deeper: u16) -> u16 {
        parts.map(|id| self.depths.get(*id as usize).copied().unwrap_or(0)).max().unwrap_or(0) + deeper
    }

    /// Records the depth of a finished node; fails if the depth or the number of nodes exceeds its limit.
    fn settle(&mut self, id: Id, depth: u16) -> Parsed {
        self.depths.resize(self.ast.len(), 0);
        self.depths[id as usize] = depth;
        if depth > DEEPEST {
            return self.refuse("max recursion depth exceeded");
        }
        if self.ast.len() > MOST_NODES {
            return self.refuse(format!("expression has more than {MOST_NODES} parts"));
        }
        Ok(id)
    }

    fn refuse<T>(&mut self, message: impl Into<String>) -> Parsed<T> {
        self.issues.add(NOWHERE, message);
        self.refused = true;
        Err(Stop)
    }

    /// Skips to a token that may end an operand, or an expression, and continues as if one had been parsed.
    fn recover(&mut self, start: u32, operand: bool) -> Parsed {
        if self.refused {
            return Err(Stop);
        }
        while !(self.may_end() || operand && self.may_follow(self.peek())) {
            self.at += 1;
        }
        self.node(Expr::Missing, start, 0)
    }

    /// Whether an open expression may end here.
    fn may_end(&self) -> bool {
        self.peek() == Token::End || self.ends.iter().any(|ends| ends.contains(&self.peek()))
    }

    /// Records an issue, unless it is a consequence of an earlier one.
    fn report(&mut self, place: u32, message: String) {
        if !self.lost {
            self.issues.add(place, message);
        }
        self.lost = true;
    }

    fn peek(&self) -> Token {
        self.lexemes[self.at].token
    }

    fn peek_at(&self, ahead: usize) -> Token {
        self.lexemes.get(self.at + ahead).map_or(Token::End, |lexeme| lexeme.token)
    }

    fn advance(&mut self) -> Lexeme {
        self.lost = false;
        let lexeme = self.lexemes[self.at];
        self.at = (self.at + 1).min(self.lexemes.len() - 1);
        lexeme
    }

    /// Consumes a token, recovering if another one is present. `follows` tests the tokens that may come after a missing
    /// one.
    fn expect(&mut self, token: Token, follows: impl Fn(&Self, Token) -> bool) -> Parsed<Lexeme> {
        if self.peek() == token {
            return Ok(self.advance());
        }
        let here = self.lexemes[self.at];
        if here.token != Token::End && self.peek_at(1) == token {
            self.unexpected("extraneous", &[token]);
            self.advance();
            return Ok(self.advance());
        }
        if follows(self, here.token) {
            let message = format!("Syntax error: missing {} at {}", token.name(), self.shown(here));
            self.report(here.start, message);
            return Ok(here);
        }
        self.unexpected("mismatched", &[token]);
        Err(Stop)
    }

    /// Ensures that one of `expected` comes next, skipping one token if that helps.
    fn expect_any(&mut self, expected: &[Token]) -> Parsed<()> {
        if expected.contains(&self.peek()) {
            return Ok(());
        }
        if self.peek() != Token::End && expected.contains(&self.peek_at(1)) {
            self.unexpected("extraneous", expected);
            self.advance();
            return Ok(());
        }
        self.unexpected("mismatched", expected);
        Err(Stop)
    }

    /// Ensures that an operand or one of `others` comes next.
    fn expect_operand(&mut self, others: &[Token]) -> Parsed<()> {
        if FIRST.contains(&self.peek()) || others.contains(&self.peek()) {
            return Ok(());
        }
        self.expect_any(&[&FIRST, others].concat())
    }

    fn unexpected(&mut self, how: &str, expected: &[Token]) {
        let here = self.lexemes[self.at];
        let mut expected = expected.to_vec();
        expected.sort_by_key(|token| *token as u8);
        let names: Vec<_> = expected.iter().map(|token| token.name()).collect();
        let names = if names.len() == 1 { names[0].to_owned() } else { format!("{{{}}}", names.join(", ")) };
        let message = format!("Syntax error: {how} input {} expecting {names}", self.shown(here));
        self.report(here.start, message);
    }

    fn text(&self, lexeme: Lexeme) -> &str {
        &self.source[lexeme.start as usize..lexeme.end as usize]
    }

    fn shown(&self, lexeme: Lexeme) -> String {
        match lexeme.token {
            Token::End => "'<EOF>'".into(),
            _ => quote(self.text(lexeme)),
        }
    }

    /// Whether a token may follow an operand that ends here.
    fn may_follow(&self, token: Token) -> bool {
        let ends = self.ends.last().copied().unwrap_or(&[]);
        let conditional = token == Token::Question && ends != [Token::Colon];
        let access = [Token::And, Token::Or, Token::Dot, Token::LeftBracket].contains(&token);
        operator(token).is_some() || conditional || access || ends.contains(&token)
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t"))
}

/// Returns the precedence of an operator and its function name.
fn operator(token: Token) -> Option<(u8, &'static str)> {
    Some(match token {
        Token::Less => (0, "_<_"),
        Token::LessEquals => (0, "_<=_"),
        Token::GreaterEquals => (0, "_>=_"),
        Token::Greater => (0, "_>_"),
        Token::Equals => (0, "_==_"),
        Token::NotEquals => (0, "_!=_"),
        Token::In => (0, "@in"),
        Token::Plus => (1, "_+_"),
        Token::Minus => (1, "_-_"),
        Token::Star => (2, "_*_"),
        Token::Slash => (2, "_/_"),
        Token::Percent => (2, "_%_"),
        _ => return None,
    })
}
