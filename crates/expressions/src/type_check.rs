//! Type checking of policies: compiles their expressions with the types of the matched kinds, for the warnings in the
//! policy's status. Mismatches do not reject the policy.

use std::collections::BTreeSet;

use api::{Value as Json, meta, schema::schema};

use crate::{
    admission::{ExpressionCompiler, OptionalVars, TypeOverwrites, policy_variables},
    types,
};

/// Maximum number of kinds that a policy is checked with.
const MAX_KINDS: usize = 10;

/// A warning about an expression, for `status.typeChecking.expressionWarnings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// The path of the expression.
    pub field: String,
    /// The compile errors of each kind that the expression fails for.
    pub text: String,
}

/// Group, version and kind; warnings are sorted in this order.
type GroupVersionKind = (String, String, String);

/// Type-checks the expressions of a `ValidatingAdmissionPolicy`.
pub fn check_policy_types(policy: &Json) -> Vec<ExpressionWarning> {
    let kinds = matched_kinds(policy);
    let mut warnings = Vec::new();
    for (at, validation) in meta::list_at(policy, &["spec", "validations"]).iter().enumerate() {
        for name in ["expression", "messageExpression"] {
            let source = meta::string_at(validation, &[name]);
            if source.is_empty() && name == "messageExpression" {
                continue;
            }
            let messages: Vec<String> =
                kinds.iter().filter_map(|kind| type_check_expression(policy, kind, source)).collect();
            if !messages.is_empty() {
                warnings.push(ExpressionWarning {
                    field: format!("spec.validations[{at}].{name}"),
                    text: messages.join("\n"),
                });
            }
        }
    }
    warnings
}

/// Type-checks an expression against one kind and returns its warning.
fn type_check_expression(policy: &Json, (group, version, kind): &GroupVersionKind, source: &str) -> Option<String> {
    let params = meta::value_at(policy, &["spec", "paramKind"]);
    let (params_group, params_version) = params.map_or(("", ""), |params| {
        let text = meta::string_at(params, &["apiVersion"]);
        text.split_once('/').unwrap_or(("", text))
    });
    let subject = TypeOverwrites {
        object: types::type_of_kind(group, version, kind),
        params: params
            .and_then(|params| types::type_of_kind(params_group, params_version, meta::string_at(params, &["kind"]))),
    };
    let uses = OptionalVars { params: params.is_some(), authorizer: true, patches: false };
    let mut compiler = ExpressionCompiler::with_types(&subject);
    drop(compiler.compile_variables(policy_variables(policy), uses));
    let environment = compiler.build_environment(uses).without_variable("authorizer.requestResource");
    let issues = environment.compile(source).err()?;
    Some(format!("{group}/{version}, Kind={kind}: {issues}\n"))
}

/// Returns the kinds that the policy's rules match; rules with wildcards are skipped.
fn matched_kinds(policy: &Json) -> BTreeSet<GroupVersionKind> {
    let mut kinds = BTreeSet::new();
    for rule in meta::list_at(policy, &["spec", "matchConstraints", "resourceRules"]) {
        let names = |field: &str| {
            let mut names: Vec<&str> = meta::list_at(rule, &[field]).iter().filter_map(Json::as_str).collect();
            names.sort_unstable();
            names
        };
        let (groups, versions, mut resources) = (names("apiGroups"), names("apiVersions"), names("resources"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        resources.retain(|name| !name.contains(['*', '/']));
        let mut count = 0;
        for (group, version, resource) in cartesian_product(&groups, &versions, &resources) {
            for row in schema().resources() {
                // An empty group matches any group, as in upstream's lookup of kinds.
                if row.name != resource || row.version != version || !(group.is_empty() || row.group == group) {
                    continue;
                }
                kinds.insert((row.group.to_owned(), row.version.to_owned(), row.kind.to_owned()));
                count += 1;
                if count == MAX_KINDS {
                    return kinds;
                }
            }
        }
    }
    kinds
}

fn cartesian_product<'a>(
    groups: &'a [&'a str],
    versions: &'a [&'a str],
    resources: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    let versioned = groups.iter().flat_map(move |group| versions.iter().map(move |version| (*group, *version)));
    versioned.flat_map(move |(group, version)| resources.iter().map(move |resource| (group, version, *resource)))
}
