//! Parses operands: literals, names, calls, selections, lists, maps and messages.

use formats::names;

use super::{FIRST, ParseAborted, ParseResult, Parser, lexer::Lexeme, lexer::TokenKind, literal, quote_text};
use crate::ast::{Expr, ExprId, ListElement, Literal, MapEntry, StructField};

impl Parser<'_> {
    pub(super) fn parse_unary(&mut self) -> ParseResult {
        let start = self.lexemes[self.at].start;
        let depth = self.ends.len();
        let nesting = self.nesting;
        self.parse_operand().or_else(|ParseAborted| {
            self.ends.truncate(depth);
            self.nesting = nesting;
            self.skip_to_end(start, true)
        })
    }

    fn parse_operand(&mut self) -> ParseResult {
        self.expect_operand(&[])?;
        match self.peek() {
            TokenKind::Not => self.parse_not(),
            TokenKind::Minus => self.parse_minus(),
            _ => self.parse_member(),
        }
    }

    fn parse_not(&mut self) -> ParseResult {
        let offset = self.lexemes[self.at].start;
        let mut count = 0;
        while self.peek() == TokenKind::Not {
            self.advance();
            count += 1;
        }
        if !FIRST.contains(&self.peek()) {
            self.report_unexpected("extraneous", &FIRST);
            return Err(ParseAborted);
        }
        let operand = if self.peek() == TokenKind::Minus { self.parse_minus()? } else { self.parse_member()? };
        if count % 2 == 0 { Ok(operand) } else { self.add_call(offset, "!_", None, vec![operand], 0) }
    }

    /// Parses a negative literal or a negation.
    fn parse_minus(&mut self) -> ParseResult {
        let first = self.lexemes[self.at];
        let count = self.lexemes[self.at..].iter().take_while(|lexeme| lexeme.token == TokenKind::Minus).count();
        if count == 1 && matches!(self.peek_ahead(1), TokenKind::Int | TokenKind::Float) {
            return self.parse_member();
        }
        self.at += count;
        if self.peek() == TokenKind::Not || !FIRST.contains(&self.peek()) {
            self.report_not_viable(self.lexemes[self.at - 1]);
            if self.can_end() {
                self.lost = false;
                self.report_unexpected("mismatched", &FIRST);
            }
            return Err(ParseAborted);
        }
        let operand = self.parse_member()?;
        if count % 2 == 0 { Ok(operand) } else { self.add_call(first.start, "-_", None, vec![operand], 0) }
    }

    fn report_not_viable(&mut self, from: Lexeme) {
        let here = self.lexemes[self.at];
        let end = if here.token == TokenKind::End { self.lexemes[self.at - 1].end } else { here.end };
        let text = quote_text(&self.source[from.start as usize..end as usize]);
        self.report_error(here.start, format!("Syntax error: no viable alternative at input {text}"));
    }

    /// Parses an operand with its selections, indexes and member calls.
    fn parse_member(&mut self) -> ParseResult {
        let mut operand = self.parse_primary()?;
        loop {
            operand = match self.peek() {
                TokenKind::Dot => self.parse_select(operand)?,
                TokenKind::LeftBracket => self.parse_index(operand)?,
                _ => return Ok(operand),
            }
        }
    }

    fn parse_select(&mut self, operand: ExprId) -> ParseResult {
        let dot = self.advance();
        let optional = self.peek() == TokenKind::Question;
        if optional {
            self.advance();
        }
        let name = self.lexemes[self.at];
        match name.token {
            TokenKind::Identifier if !optional && self.peek_ahead(1) == TokenKind::LeftParen => {
                self.advance();
                let open = self.advance();
                let function = self.token_text(name).to_owned();
                let args = self.parse_arguments()?;
                self.add_call(open.start, &function, Some(operand), args, 1)
            }
            TokenKind::Identifier => {
                self.advance();
                let field = self.token_text(name).to_owned();
                self.add_selection(dot, operand, &field, optional.then_some(name))
            }
            TokenKind::Escaped => {
                self.advance();
                self.issues.report_error(name.start, "unsupported syntax: '`'");
                self.add_selection(dot, operand, "", optional.then_some(name))
            }
            _ if optional => {
                self.report_unexpected("mismatched", &[TokenKind::Identifier, TokenKind::Escaped]);
                self.issues.report_error(name.start, "unsupported ident kind");
                Err(ParseAborted)
            }
            TokenKind::True | TokenKind::False | TokenKind::Null => {
                self.report_unexpected("mismatched", &[TokenKind::Identifier]);
                Err(ParseAborted)
            }
            _ => {
                self.report_not_viable(dot);
                Err(ParseAborted)
            }
        }
    }

    fn add_selection(&mut self, dot: Lexeme, operand: ExprId, field: &str, optional: Option<Lexeme>) -> ParseResult {
        let Some(name) = optional else {
            let depth = self.nested_depth([operand].iter(), 1);
            return self.add_node(Expr::Select { operand, field: field.into(), test: false }, dot.start, depth);
        };
        let field = self.add_node(Expr::Literal(Literal::String(field.into())), name.start, 0)?;
        self.add_call(dot.start, "_?._", None, vec![operand, field], 1)
    }

    fn parse_index(&mut self, operand: ExprId) -> ParseResult {
        let open = self.advance();
        self.expect_operand(&[TokenKind::Question])?;
        let optional = self.peek() == TokenKind::Question;
        if optional {
            self.advance();
        }
        let index = self.parse_expr(&[TokenKind::RightBracket])?;
        self.expect_token(TokenKind::RightBracket, Self::can_follow)?;
        self.add_call(open.start, if optional { "_[?_]" } else { "_[_]" }, None, vec![operand, index], 1)
    }

    fn parse_arguments(&mut self) -> ParseResult<Vec<ExprId>> {
        let mut args = Vec::new();
        self.expect_operand(&[TokenKind::RightParen])?;
        if self.peek() != TokenKind::RightParen {
            args.push(self.parse_expr(&[TokenKind::RightParen, TokenKind::Comma])?);
            while self.peek() == TokenKind::Comma {
                self.advance();
                args.push(self.parse_expr(&[TokenKind::RightParen, TokenKind::Comma])?);
            }
        }
        self.expect_token(TokenKind::RightParen, Self::can_follow)?;
        Ok(args)
    }

    fn parse_primary(&mut self) -> ParseResult {
        let here = self.lexemes[self.at];
        match here.token {
            TokenKind::Identifier => self.parse_name("", here.start),
            TokenKind::Dot => {
                self.advance();
                if self.peek() == TokenKind::Identifier {
                    return self.parse_name(".", here.start);
                }
                self.report_not_viable(here);
                Err(ParseAborted)
            }
            TokenKind::LeftParen => {
                self.advance();
                let inner = self.parse_expr(&[TokenKind::RightParen])?;
                self.expect_token(TokenKind::RightParen, Self::can_follow)?;
                Ok(inner)
            }
            TokenKind::LeftBracket => self.parse_list(),
            TokenKind::LeftBrace => self.parse_map(),
            _ => self.parse_literal(),
        }
    }

    /// Parses a variable, a call or a message, whose name may begin with a dot.
    fn parse_name(&mut self, dot: &str, start: u32) -> ParseResult {
        if let Some(brace) = self.find_message_brace() {
            return self.parse_message(dot, brace);
        }
        let lexeme = self.advance();
        let name = self.token_text(lexeme);
        let reserved = names::CEL_RESERVED.contains(&name).then(|| format!("reserved identifier: {name}"));
        let name = format!("{dot}{name}");
        if self.peek() == TokenKind::LeftParen {
            let open = self.advance();
            let args = self.parse_arguments()?;
            return match reserved {
                Some(message) => self.report_invalid(start, message),
                None => self.add_call(open.start, &name, None, args, 0),
            };
        }
        match reserved {
            Some(message) => self.report_invalid(start, message),
            None => self.add_node(Expr::Ident(name.into()), lexeme.start, 0),
        }
    }

    fn report_invalid(&mut self, offset: u32, message: String) -> ParseResult {
        self.issues.report_error(offset, message);
        self.add_node(Expr::Missing, offset, 0)
    }

    /// Returns the distance to the `{` that makes a qualified name a message literal.
    fn find_message_brace(&self) -> Option<usize> {
        let mut ahead = 1;
        while self.peek_ahead(ahead) == TokenKind::Dot && self.peek_ahead(ahead + 1) == TokenKind::Identifier {
            ahead += 2;
        }
        (self.peek_ahead(ahead) == TokenKind::LeftBrace).then_some(ahead)
    }

    fn parse_message(&mut self, dot: &str, brace: usize) -> ParseResult {
        let names = &self.lexemes[self.at..self.at + brace];
        let name: String = names.iter().map(|lexeme| self.token_text(*lexeme)).collect();
        self.at += brace;
        let open = self.advance();
        let mut fields: Vec<StructField> = Vec::new();
        self.expect_any(&[
            TokenKind::RightBrace,
            TokenKind::Comma,
            TokenKind::Question,
            TokenKind::Identifier,
            TokenKind::Escaped,
        ])?;
        while !matches!(self.peek(), TokenKind::RightBrace | TokenKind::Comma) {
            fields.push(self.parse_field()?);
            if !self.take_entry_separator(&[TokenKind::Question, TokenKind::Identifier, TokenKind::Escaped])? {
                break;
            }
        }
        self.expect_close(TokenKind::RightBrace)?;
        let depth = self.nested_depth(fields.iter().map(|field| &field.value), 0);
        self.add_node(Expr::Struct { name: format!("{dot}{name}").into(), fields }, open.start, depth)
    }

    fn parse_field(&mut self) -> ParseResult<StructField> {
        let optional = self.peek() == TokenKind::Question;
        if optional {
            self.advance();
        }
        self.expect_any(&[TokenKind::Identifier, TokenKind::Escaped])?;
        let name = self.advance();
        if name.token == TokenKind::Escaped {
            self.issues.report_error(name.start, "unsupported syntax: '`'");
        }
        let name = self.token_text(name).into();
        let offset = self.expect_token(TokenKind::Colon, |_, found| FIRST.contains(&found))?.start;
        let value = self.parse_expr(&[TokenKind::RightBrace, TokenKind::Comma])?;
        Ok(StructField { offset, name, value, optional })
    }

    /// Consumes a comma if one of `first` follows it; a trailing comma is left to [`expect_close`](Self::expect_close).
    fn take_entry_separator(&mut self, first: &[TokenKind]) -> ParseResult<bool> {
        if self.peek() != TokenKind::Comma || !first.contains(&self.peek_ahead(1)) {
            return Ok(false);
        }
        self.advance();
        Ok(true)
    }

    /// Parses the end of a list, map or message, with an optional trailing comma.
    fn expect_close(&mut self, token: TokenKind) -> ParseResult<()> {
        if self.peek() != token {
            self.expect_any(&[token, TokenKind::Comma])?;
        }
        if self.peek() == TokenKind::Comma {
            self.advance();
        }
        self.expect_token(token, Self::can_follow).map(|_| ())
    }

    fn parse_list(&mut self) -> ParseResult {
        let open = self.advance();
        let mut items = Vec::new();
        self.expect_operand(&[TokenKind::RightBracket, TokenKind::Comma, TokenKind::Question])?;
        while !matches!(self.peek(), TokenKind::RightBracket | TokenKind::Comma) {
            let optional = self.take_optional_mark();
            items.push(ListElement { value: self.parse_expr(&[TokenKind::RightBracket, TokenKind::Comma])?, optional });
            if !self.take_entry_separator(&[&FIRST[..], &[TokenKind::Question]].concat())? {
                break;
            }
        }
        self.expect_close(TokenKind::RightBracket)?;
        let depth = self.nested_depth(items.iter().map(|item| &item.value), 0);
        self.add_node(Expr::List(items), open.start, depth)
    }

    fn take_optional_mark(&mut self) -> bool {
        let optional = self.peek() == TokenKind::Question;
        if optional {
            self.advance();
        }
        optional
    }

    fn parse_map(&mut self) -> ParseResult {
        let open = self.advance();
        let mut entries = Vec::new();
        self.expect_operand(&[TokenKind::RightBrace, TokenKind::Comma, TokenKind::Question])?;
        while !matches!(self.peek(), TokenKind::RightBrace | TokenKind::Comma) {
            let optional = self.take_optional_mark();
            let key = self.parse_expr(&[TokenKind::Colon])?;
            self.expect_token(TokenKind::Colon, |_, found| FIRST.contains(&found))?;
            let value = self.parse_expr(&[TokenKind::RightBrace, TokenKind::Comma])?;
            entries.push(MapEntry { key, value, optional });
            if !self.take_entry_separator(&[&FIRST[..], &[TokenKind::Question]].concat())? {
                break;
            }
        }
        self.expect_close(TokenKind::RightBrace)?;
        let depth = self.nested_depth(entries.iter().flat_map(|entry| [&entry.key, &entry.value]), 0);
        self.add_node(Expr::Map(entries), open.start, depth)
    }

    fn parse_literal(&mut self) -> ParseResult {
        let first = self.advance();
        let number = if first.token == TokenKind::Minus { self.advance() } else { first };
        if first.token == TokenKind::Minus && !matches!(number.token, TokenKind::Int | TokenKind::Float) {
            self.at -= 1;
            self.report_not_viable(first);
            return Err(ParseAborted);
        }
        let text = self.token_text(number);
        let read = literal::parse_literal(number.token, text, first.token == TokenKind::Minus);
        match read {
            Ok(literal) => self.add_node(Expr::Literal(literal), first.start, 0),
            Err(message) => self.report_invalid(first.start, message.into()),
        }
    }
}
