//! Type checking of policies: their expressions are compiled once more with the types of what they are about, and what does not
//! fit is told in the policy's status. It is a help for whoever writes policies: nothing is refused for it.

use std::collections::BTreeSet;

use api::{Value as Json, meta, schema::schema};

use crate::{
    admission::{Compiler, Subject, Uses, variables},
    types,
};

/// How many kinds a policy is checked with.
const MOST: usize = 10;

/// Something about an expression that may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The path of the expression.
    pub field: String,
    /// What may be wrong, for each kind that it is wrong for.
    pub text: String,
}

/// A kind with its group and version, in the order in which they are told.
type Kind = (String, String, String);

/// What may be wrong with the expressions of a `ValidatingAdmissionPolicy`.
pub fn check(policy: &Json) -> Vec<Warning> {
    let kinds = kinds(policy);
    let mut warnings = Vec::new();
    for (at, validation) in meta::list_at(policy, &["spec", "validations"]).iter().enumerate() {
        for name in ["expression", "messageExpression"] {
            let source = meta::string_at(validation, &[name]);
            if source.is_empty() && name == "messageExpression" {
                continue;
            }
            let told: Vec<String> = kinds.iter().filter_map(|kind| told(policy, kind, source)).collect();
            if !told.is_empty() {
                warnings.push(Warning { field: format!("spec.validations[{at}].{name}"), text: told.join("\n") });
            }
        }
    }
    warnings
}

/// What may be wrong with an expression about objects of a kind.
fn told(policy: &Json, (group, version, kind): &Kind, source: &str) -> Option<String> {
    let params = meta::value_at(policy, &["spec", "paramKind"]);
    let (params_group, params_version) = params.map_or(("", ""), |params| {
        let text = meta::string_at(params, &["apiVersion"]);
        text.split_once('/').unwrap_or(("", text))
    });
    let subject = Subject {
        object: types::of_kind(group, version, kind),
        params: params
            .and_then(|params| types::of_kind(params_group, params_version, meta::string_at(params, &["kind"]))),
    };
    let uses = Uses { params: params.is_some(), authorizer: true, patches: false };
    let mut compiler = Compiler::typed(&subject);
    drop(compiler.variables(variables(policy), uses));
    let environment = compiler.environment(uses).without("authorizer.requestResource");
    let issues = environment.compile(source).err()?;
    Some(format!("{group}/{version}, Kind={kind}: {issues}\n"))
}

/// The kinds that a policy's rules name; wildcards name none.
fn kinds(policy: &Json) -> BTreeSet<Kind> {
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
        for (group, version, resource) in product(&groups, &versions, &resources) {
            for row in schema().resources() {
                // No group is any group, as upstream looks up kinds.
                if row.name != resource || row.version != version || !(group.is_empty() || row.group == group) {
                    continue;
                }
                kinds.insert((row.group.to_owned(), row.version.to_owned(), row.kind.to_owned()));
                count += 1;
                if count == MOST {
                    return kinds;
                }
            }
        }
    }
    kinds
}

fn product<'a>(
    groups: &'a [&'a str],
    versions: &'a [&'a str],
    resources: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    let versioned = groups.iter().flat_map(move |group| versions.iter().map(move |version| (*group, *version)));
    versioned.flat_map(move |(group, version)| resources.iter().map(move |resource| (group, version, *resource)))
}
