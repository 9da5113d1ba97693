//! The Common Expression Language (CEL) as Kubernetes 1.36 uses it: one environment for CRD validation rules, admission
//! policies, match conditions and authentication mappings. No IO, no async, and no knowledge of API kinds.
//!
//! ```
//! use ferry_cel::{Activation, CostTracker, Environment, Type, Value};
//!
//! let environment = Environment::new().with_variable("object", Type::Dyn);
//! let checked = environment.compile("object.replicas <= 5").unwrap();
//! assert!(checked.output_type().is_bool());
//! let program = checked.plan_program().unwrap();
//! let document = serde_json::json!({"replicas": 3});
//! let mut activation = Activation::new();
//! activation.bind_value(0, Value::from_json(&document, None).unwrap());
//! let mut budget = CostTracker::new(1_000_000);
//! assert_eq!(program.run(&activation, &mut budget), Ok(Value::Bool(true)));
//! assert_eq!(budget.actual_cost(), 3);
//! ```
//!
//! `cel-go` and the libraries in `k8s.io/apiserver` are the specification for messages, costs and constant folding. The
//! `cel` crate does not fit: its parser lacks upstream's error messages and positions (or pulls in ANTLR), it has no
//! type checker and no cost model, and its values copy documents. The grammar is small, so all of it is here:
//! [`Environment::compile`] parses (`parser`) and type-checks (`checker`), [`CheckedExpr::estimate_cost`] estimates the worst-case
//! cost (`cost`), [`CheckedExpr::plan_program`] plans and [`Program::run`] evaluates (`program`). `library` contains the
//! functions.

mod ast;
mod checker;
mod cost;
mod environment;
mod error;
mod escape;
mod issue;
mod library;
mod parser;
mod program;
mod types;
mod value;

pub use checker::CheckedExpr;
pub use cost::{Estimate, SizeEstimator, UnboundedSizes};
pub use environment::{Environment, TypeResolver};
pub use error::EvalError;
pub use escape::{escape_identifier, unescape_identifier};
pub use issue::{Issue, Issues};
pub use program::{Activation, Composition, CostTracker, Program};
pub use types::{ObjectType, Type};
pub use value::{
    AuthorizationCheck, AuthorizationDecision, Authorizer, CheckTarget, Duration, ListValue, MapKey, MapValue,
    NativeValue, ResourceAttributes, Schema, SchemaType, StringValue, StructValue, Timestamp, Value,
};
