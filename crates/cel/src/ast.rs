//! The abstract syntax tree (AST): nodes in one arena, identified by their index, so that the type checker's results
//! are a parallel table. Macros are expanded during parsing; the AST holds only what is evaluated.

use std::sync::Arc;

/// Identifies a node of an [`Ast`].
pub(crate) type ExprId = u32;

/// Source offset of nodes without a source position.
pub(crate) const NO_OFFSET: u32 = u32::MAX;

/// Name of a comprehension's accumulator variable; the grammar has no way to write it.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The AST of an expression, with macros expanded.
#[derive(Debug, Default)]
pub(crate) struct Ast {
    nodes: Vec<Expr>,
    /// Byte offsets into the source, indexed by node.
    offsets: Vec<u32>,
    pub(crate) root: ExprId,
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    /// Placeholder for a part that failed to parse.
    Missing,
    Literal(Literal),
    Ident(Box<str>),
    Select {
        operand: ExprId,
        field: Box<str>,
        test: bool,
    },
    Call {
        function: Box<str>,
        target: Option<ExprId>,
        args: Vec<ExprId>,
    },
    List(Vec<ListElement>),
    Map(Vec<MapEntry>),
    Struct {
        name: Box<str>,
        fields: Vec<StructField>,
    },
    Fold(Box<Comprehension>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ListElement {
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: ExprId,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct StructField {
    /// Byte offset of the entry's colon.
    pub(crate) offset: u32,
    pub(crate) name: Box<str>,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

/// A comprehension over a list or map: `step` computes a new `accu` for each element while `condition` holds.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: ExprId,
    pub(crate) iter: Box<str>,
    /// Second iteration variable: if present, `iter` is the index or key, and this is the element or value.
    pub(crate) iter2: Option<Box<str>>,
    pub(crate) accu: Box<str>,
    pub(crate) init: ExprId,
    pub(crate) condition: ExprId,
    pub(crate) step: ExprId,
    pub(crate) result: ExprId,
}

impl Comprehension {
    /// Whether this is a `cel.bind` instead of a loop: the range is empty and the condition is constant `false`.
    pub(crate) fn is_binding(&self, ast: &Ast) -> bool {
        matches!(ast.expr(self.range), Expr::List(items) if items.is_empty())
            && matches!(ast.expr(self.condition), Expr::Literal(Literal::Bool(false)))
    }
}

impl Ast {
    pub(crate) fn expr(&self, id: ExprId) -> &Expr {
        &self.nodes[id as usize]
    }

    pub(crate) fn source_offset(&self, id: ExprId) -> u32 {
        self.offsets[id as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn add_expr(&mut self, expr: Expr, offset: u32) -> ExprId {
        self.nodes.push(expr);
        self.offsets.push(offset);
        (self.nodes.len() - 1) as ExprId
    }

    /// Deep-copies a node, for macros that use an argument twice.
    pub(crate) fn copy_expr(&mut self, id: ExprId) -> ExprId {
        let mut expr = self.expr(id).clone();
        let offset = self.source_offset(id);
        match &mut expr {
            Expr::Missing | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => *operand = self.copy_expr(*operand),
            Expr::Call { target, args, .. } => {
                *target = target.map(|target| self.copy_expr(target));
                args.iter_mut().for_each(|arg| *arg = self.copy_expr(*arg));
            }
            Expr::List(items) => items.iter_mut().for_each(|item| item.value = self.copy_expr(item.value)),
            Expr::Map(entries) => entries.iter_mut().for_each(|entry| {
                entry.key = self.copy_expr(entry.key);
                entry.value = self.copy_expr(entry.value);
            }),
            Expr::Struct { fields, .. } => {
                fields.iter_mut().for_each(|field| field.value = self.copy_expr(field.value))
            }
            Expr::Fold(fold) => {
                for part in [&mut fold.range, &mut fold.init, &mut fold.condition, &mut fold.step, &mut fold.result] {
                    *part = self.copy_expr(*part);
                }
            }
        }
        self.add_expr(expr, offset)
    }

    /// Returns the dotted name spelled by a chain of identifiers and selections; `None` for other nodes.
    pub(crate) fn qualified_name(&self, id: ExprId) -> Option<String> {
        match self.expr(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, test: false } => {
                self.qualified_name(*operand).map(|name| format!("{name}.{field}"))
            }
            _ => None,
        }
    }
}
