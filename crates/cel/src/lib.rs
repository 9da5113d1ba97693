//! The Common Expression Language (CEL) as Kubernetes 1.36 uses it: one environment for CRD validation rules, admission
//! policies, match conditions and authentication mappings. No IO, no async, and no knowledge of API kinds.
//!
//! ```
//! use ferry_cel::{Bindings, Budget, Environment, Type, Value};
//!
//! let environment = Environment::new().variable("object", Type::Dyn);
//! let checked = environment.compile("object.replicas <= 5").unwrap();
//! assert!(checked.output().is_bool());
//! let program = checked.program().unwrap();
//! let document = serde_json::json!({"replicas": 3});
//! let mut bindings = Bindings::new();
//! bindings.set(0, Value::document(&document, None).unwrap());
//! let mut budget = Budget::new(1_000_000);
//! assert_eq!(program.run(&bindings, &mut budget), Ok(Value::Bool(true)));
//! assert_eq!(budget.spent(), 3);
//! ```
//!
//! `cel-go` and the libraries in `k8s.io/apiserver` are the specification for messages, costs and constant folding. The
//! `cel` crate does not fit: its parser lacks upstream's error messages and positions (or pulls in ANTLR), it has no
//! type checker and no cost model, and its values copy documents. The grammar is small, so all of it is here:
//! [`Environment::compile`] parses (`parse`) and type-checks (`check`), [`Checked::estimate`] estimates the worst-case
//! cost (`cost`), [`Checked::program`] plans and [`Program::run`] evaluates (`program`). `library` contains the
//! functions.

mod ast;
mod check;
mod cost;
mod environment;
mod error;
mod escape;
mod issue;
mod library;
mod parse;
mod program;
mod types;
mod value;

pub use check::Checked;
pub use cost::{Range, Sizes, Unlimited};
pub use environment::{Environment, TypeResolver};
pub use error::Error;
pub use escape::{escape, unescape};
pub use issue::{Issue, Issues};
pub use library::{Authorizer, Check, Decision, Resource, Target, native::Native};
pub use program::{Bindings, Budget, Composition, Program};
pub use types::{ObjectType, Type};
pub use value::{Created, Duration, Form, Key, List, Map, Schema, Text, Timestamp, Value};
