//! Parses operands: literals, names, calls, selections, lists, maps and messages.

use formats::names;

use super::{FIRST, Parsed, Parser, Stop, lex::Lexeme, lex::Token, literal, quote};
use crate::ast::{Entry, Expr, Field, Id, Item, Literal};

impl Parser<'_> {
    pub(super) fn unary(&mut self) -> Parsed {
        let start = self.lexemes[self.at].start;
        let depth = self.ends.len();
        let nesting = self.nesting;
        self.operand().or_else(|Stop| {
            self.ends.truncate(depth);
            self.nesting = nesting;
            self.recover(start, true)
        })
    }

    fn operand(&mut self) -> Parsed {
        self.expect_operand(&[])?;
        match self.peek() {
            Token::Not => self.not(),
            Token::Minus => self.minus(),
            _ => self.member(),
        }
    }

    fn not(&mut self) -> Parsed {
        let place = self.lexemes[self.at].start;
        let mut count = 0;
        while self.peek() == Token::Not {
            self.advance();
            count += 1;
        }
        if !FIRST.contains(&self.peek()) {
            self.unexpected("extraneous", &FIRST);
            return Err(Stop);
        }
        let operand = if self.peek() == Token::Minus { self.minus()? } else { self.member()? };
        if count % 2 == 0 { Ok(operand) } else { self.call(place, "!_", None, vec![operand], 0) }
    }

    /// Parses a negative literal or a negation.
    fn minus(&mut self) -> Parsed {
        let first = self.lexemes[self.at];
        let count = self.lexemes[self.at..].iter().take_while(|lexeme| lexeme.token == Token::Minus).count();
        if count == 1 && matches!(self.peek_at(1), Token::Int | Token::Float) {
            return self.member();
        }
        self.at += count;
        if self.peek() == Token::Not || !FIRST.contains(&self.peek()) {
            self.not_viable(self.lexemes[self.at - 1]);
            if self.may_end() {
                self.lost = false;
                self.unexpected("mismatched", &FIRST);
            }
            return Err(Stop);
        }
        let operand = self.member()?;
        if count % 2 == 0 { Ok(operand) } else { self.call(first.start, "-_", None, vec![operand], 0) }
    }

    fn not_viable(&mut self, from: Lexeme) {
        let here = self.lexemes[self.at];
        let end = if here.token == Token::End { self.lexemes[self.at - 1].end } else { here.end };
        let text = quote(&self.source[from.start as usize..end as usize]);
        self.report(here.start, format!("Syntax error: no viable alternative at input {text}"));
    }

    /// Parses an operand with its selections, indexes and member calls.
    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            operand = match self.peek() {
                Token::Dot => self.select(operand)?,
                Token::LeftBracket => self.index(operand)?,
                _ => return Ok(operand),
            }
        }
    }

    fn select(&mut self, operand: Id) -> Parsed {
        let dot = self.advance();
        let optional = self.peek() == Token::Question;
        if optional {
            self.advance();
        }
        let name = self.lexemes[self.at];
        match name.token {
            Token::Identifier if !optional && self.peek_at(1) == Token::LeftParen => {
                self.advance();
                let open = self.advance();
                let function = self.text(name).to_owned();
                let args = self.arguments()?;
                self.call(open.start, &function, Some(operand), args, 1)
            }
            Token::Identifier => {
                self.advance();
                let field = self.text(name).to_owned();
                self.selection(dot, operand, &field, optional.then_some(name))
            }
            Token::Escaped => {
                self.advance();
                self.issues.add(name.start, "unsupported syntax: '`'");
                self.selection(dot, operand, "", optional.then_some(name))
            }
            _ if optional => {
                self.unexpected("mismatched", &[Token::Identifier, Token::Escaped]);
                self.issues.add(name.start, "unsupported ident kind");
                Err(Stop)
            }
            Token::True | Token::False | Token::Null => {
                self.unexpected("mismatched", &[Token::Identifier]);
                Err(Stop)
            }
            _ => {
                self.not_viable(dot);
                Err(Stop)
            }
        }
    }

    fn selection(&mut self, dot: Lexeme, operand: Id, field: &str, optional: Option<Lexeme>) -> Parsed {
        let Some(name) = optional else {
            let depth = self.depth([operand].iter(), 1);
            return self.node(Expr::Select { operand, field: field.into(), test: false }, dot.start, depth);
        };
        let field = self.node(Expr::Literal(Literal::String(field.into())), name.start, 0)?;
        self.call(dot.start, "_?._", None, vec![operand, field], 1)
    }

    fn index(&mut self, operand: Id) -> Parsed {
        let open = self.advance();
        self.expect_operand(&[Token::Question])?;
        let optional = self.peek() == Token::Question;
        if optional {
            self.advance();
        }
        let index = self.expression(&[Token::RightBracket])?;
        self.expect(Token::RightBracket, Self::may_follow)?;
        self.call(open.start, if optional { "_[?_]" } else { "_[_]" }, None, vec![operand, index], 1)
    }

    fn arguments(&mut self) -> Parsed<Vec<Id>> {
        let mut args = Vec::new();
        self.expect_operand(&[Token::RightParen])?;
        if self.peek() != Token::RightParen {
            args.push(self.expression(&[Token::RightParen, Token::Comma])?);
            while self.peek() == Token::Comma {
                self.advance();
                args.push(self.expression(&[Token::RightParen, Token::Comma])?);
            }
        }
        self.expect(Token::RightParen, Self::may_follow)?;
        Ok(args)
    }

    fn primary(&mut self) -> Parsed {
        let here = self.lexemes[self.at];
        match here.token {
            Token::Identifier => self.name("", here.start),
            Token::Dot => {
                self.advance();
                if self.peek() == Token::Identifier {
                    return self.name(".", here.start);
                }
                self.not_viable(here);
                Err(Stop)
            }
            Token::LeftParen => {
                self.advance();
                let inner = self.expression(&[Token::RightParen])?;
                self.expect(Token::RightParen, Self::may_follow)?;
                Ok(inner)
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// Parses a variable, a call or a message, whose name may begin with a dot.
    fn name(&mut self, dot: &str, start: u32) -> Parsed {
        if let Some(brace) = self.message_brace() {
            return self.message(dot, brace);
        }
        let lexeme = self.advance();
        let name = self.text(lexeme);
        let reserved = names::RESERVED.contains(&name).then(|| format!("reserved identifier: {name}"));
        let name = format!("{dot}{name}");
        if self.peek() == Token::LeftParen {
            let open = self.advance();
            let args = self.arguments()?;
            return match reserved {
                Some(message) => self.bad(start, message),
                None => self.call(open.start, &name, None, args, 0),
            };
        }
        match reserved {
            Some(message) => self.bad(start, message),
            None => self.node(Expr::Ident(name.into()), lexeme.start, 0),
        }
    }

    fn bad(&mut self, place: u32, message: String) -> Parsed {
        self.issues.add(place, message);
        self.node(Expr::Missing, place, 0)
    }

    /// Returns the distance to the `{` that makes a qualified name a message literal.
    fn message_brace(&self) -> Option<usize> {
        let mut ahead = 1;
        while self.peek_at(ahead) == Token::Dot && self.peek_at(ahead + 1) == Token::Identifier {
            ahead += 2;
        }
        (self.peek_at(ahead) == Token::LeftBrace).then_some(ahead)
    }

    fn message(&mut self, dot: &str, brace: usize) -> Parsed {
        let names = &self.lexemes[self.at..self.at + brace];
        let name: String = names.iter().map(|lexeme| self.text(*lexeme)).collect();
        self.at += brace;
        let open = self.advance();
        let mut fields: Vec<Field> = Vec::new();
        self.expect_any(&[Token::RightBrace, Token::Comma, Token::Question, Token::Identifier, Token::Escaped])?;
        while !matches!(self.peek(), Token::RightBrace | Token::Comma) {
            fields.push(self.field()?);
            if !self.another_entry(&[Token::Question, Token::Identifier, Token::Escaped])? {
                break;
            }
        }
        self.close(Token::RightBrace)?;
        let depth = self.depth(fields.iter().map(|field| &field.value), 0);
        self.node(Expr::Struct { name: format!("{dot}{name}").into(), fields }, open.start, depth)
    }

    fn field(&mut self) -> Parsed<Field> {
        let optional = self.peek() == Token::Question;
        if optional {
            self.advance();
        }
        self.expect_any(&[Token::Identifier, Token::Escaped])?;
        let name = self.advance();
        if name.token == Token::Escaped {
            self.issues.add(name.start, "unsupported syntax: '`'");
        }
        let name = self.text(name).into();
        let place = self.expect(Token::Colon, |_, found| FIRST.contains(&found))?.start;
        let value = self.expression(&[Token::RightBrace, Token::Comma])?;
        Ok(Field { place, name, value, optional })
    }

    /// Consumes a comma if one of `first` follows it; a trailing comma is left to [`close`](Self::close).
    fn another_entry(&mut self, first: &[Token]) -> Parsed<bool> {
        if self.peek() != Token::Comma || !first.contains(&self.peek_at(1)) {
            return Ok(false);
        }
        self.advance();
        Ok(true)
    }

    /// Parses the end of a list, map or message, with an optional trailing comma.
    fn close(&mut self, token: Token) -> Parsed<()> {
        if self.peek() != token {
            self.expect_any(&[token, Token::Comma])?;
        }
        if self.peek() == Token::Comma {
            self.advance();
        }
        self.expect(token, Self::may_follow).map(|_| ())
    }

    fn list(&mut self) -> Parsed {
        let open = self.advance();
        let mut items = Vec::new();
        self.expect_operand(&[Token::RightBracket, Token::Comma, Token::Question])?;
        while !matches!(self.peek(), Token::RightBracket | Token::Comma) {
            let optional = self.optional();
            items.push(Item { value: self.expression(&[Token::RightBracket, Token::Comma])?, optional });
            if !self.another_entry(&[&FIRST[..], &[Token::Question]].concat())? {
                break;
            }
        }
        self.close(Token::RightBracket)?;
        let depth = self.depth(items.iter().map(|item| &item.value), 0);
        self.node(Expr::List(items), open.start, depth)
    }

    fn optional(&mut self) -> bool {
        let optional = self.peek() == Token::Question;
        if optional {
            self.advance();
        }
        optional
    }

    fn map(&mut self) -> Parsed {
        let open = self.advance();
        let mut entries = Vec::new();
        self.expect_operand(&[Token::RightBrace, Token::Comma, Token::Question])?;
        while !matches!(self.peek(), Token::RightBrace | Token::Comma) {
            let optional = self.optional();
            let key = self.expression(&[Token::Colon])?;
            self.expect(Token::Colon, |_, found| FIRST.contains(&found))?;
            let value = self.expression(&[Token::RightBrace, Token::Comma])?;
            entries.push(Entry { key, value, optional });
            if !self.another_entry(&[&FIRST[..], &[Token::Question]].concat())? {
                break;
            }
        }
        self.close(Token::RightBrace)?;
        let depth = self.depth(entries.iter().flat_map(|entry| [&entry.key, &entry.value]), 0);
        self.node(Expr::Map(entries), open.start, depth)
    }

    fn literal(&mut self) -> Parsed {
        let first = self.advance();
        let number = if first.token == Token::Minus { self.advance() } else { first };
        if first.token == Token::Minus && !matches!(number.token, Token::Int | Token::Float) {
            self.at -= 1;
            self.not_viable(first);
            return Err(Stop);
        }
        let text = self.text(number);
        let read = literal::read(number.token, text, first.token == Token::Minus);
        match read {
            Ok(literal) => self.node(Expr::Literal(literal), first.start, 0),
            Err(message) => self.bad(first.start, message.into()),
        }
    }
}
