//! What a namespace's status says about its deletion: what is left in it and what went wrong.

use std::collections::BTreeMap;

use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, NamespaceCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::discovery::Kind;

/// What is left in a namespace after everything was asked to go.
#[derive(Default)]
pub(super) struct Remaining {
    pub(super) pods: usize,
    pub(super) failures: Vec<String>,
    objects: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

/// `(type, reason and message if something is to be told, reason and message if not)`.
type Condition = (&'static str, Option<(&'static str, String)>, (&'static str, &'static str));

impl Remaining {
    pub(super) fn is_nothing(&self) -> bool {
        self.pods == 0 && self.objects.is_empty() && self.failures.is_empty()
    }

    /// Counts the objects left of a kind, given the finalizers of each.
    pub(super) fn note(&mut self, kind: &Kind, left: Vec<Vec<String>>) -> usize {
        self.count(kind.name(), left)
    }

    fn count(&mut self, kind: String, left: Vec<Vec<String>>) -> usize {
        let count = left.len();
        if count > 0 {
            self.objects.insert(kind, count);
        }
        left.into_iter().flatten().for_each(|finalizer| *self.finalizers.entry(finalizer).or_default() += 1);
        count
    }

    fn conditions(&self) -> [Condition; 5] {
        let list = |counts: &BTreeMap<String, usize>, verb: &str| {
            let lines: Vec<_> =
                counts.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances")).collect();
            lines.join(", ")
        };
        let failures = (!self.failures.is_empty()).then(|| {
            let (count, all) = (self.failures.len(), self.failures.join(", "));
            ("ContentDeletionFailed", format!("Failed to delete all resource types, {count} remaining: {all}"))
        });
        let objects = (!self.objects.is_empty())
            .then(|| ("SomeResourcesRemain", format!("Some resources are remaining: {}", list(&self.objects, "has"))));
        let finalizers = (!self.finalizers.is_empty()).then(|| {
            let all = list(&self.finalizers, "in");
            ("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {all}"))
        });
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                None,
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            (
                "NamespaceDeletionContentFailure",
                failures,
                ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ),
            ("NamespaceContentRemaining", objects, ("ContentRemoved", "All content successfully removed")),
            (
                "NamespaceFinalizersRemaining",
                finalizers,
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ]
    }
}

/// Writes the conditions if they say something new.
pub(super) async fn write(client: &Client, namespace: &Namespace, remaining: &Remaining) -> Result<(), kube::Error> {
    let mut update = namespace.clone();
    if !set(&mut update, remaining, Timestamp::now()) {
        return Ok(());
    }
    let api: Api<Namespace> = Api::all(client.clone());
    match api.replace_status(&namespace.name_any(), &PostParams::default(), &update).await {
        // A newer version wakes the loop again, which then writes what holds.
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        result => result.map(drop),
    }
}

fn set(namespace: &mut Namespace, remaining: &Remaining, now: Timestamp) -> bool {
    let conditions = namespace.status.get_or_insert_default().conditions.get_or_insert_default();
    let mut changed = false;
    for (type_, told, untold) in remaining.conditions() {
        let status = if told.is_some() { "True" } else { "False" };
        let (reason, message) = told.unwrap_or_else(|| (untold.0, untold.1.to_owned()));
        let mut condition = NamespaceCondition {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|old| old.type_ == type_) {
            None => conditions.push(condition),
            Some(old) => {
                if old.status == condition.status {
                    condition.last_transition_time = old.last_transition_time.clone();
                }
                if *old == condition {
                    continue;
                }
                *old = condition;
            }
        }
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_is_told_and_later_untold() {
        let mut namespace = Namespace::default();
        let mut remaining = Remaining::default();
        remaining.count("configmaps.".into(), vec![vec!["x/y".into()], vec![]]);
        assert!(set(&mut namespace, &remaining, Timestamp::UNIX_EPOCH));
        let message = |namespace: &Namespace, type_: &str| {
            let conditions = namespace.status.as_ref().unwrap().conditions.clone().unwrap();
            conditions.into_iter().find(|condition| condition.type_ == type_).unwrap().message.unwrap()
        };
        let told = message(&namespace, "NamespaceContentRemaining");
        assert_eq!(told, "Some resources are remaining: configmaps. has 2 resource instances");
        let told = message(&namespace, "NamespaceFinalizersRemaining");
        assert_eq!(told, "Some content in the namespace has finalizers remaining: x/y in 1 resource instances");
        assert!(!set(&mut namespace, &remaining, Timestamp::UNIX_EPOCH));
        assert!(set(&mut namespace, &Remaining::default(), Timestamp::UNIX_EPOCH));
        assert_eq!(message(&namespace, "NamespaceContentRemaining"), "All content successfully removed");
    }
}
