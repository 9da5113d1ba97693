//! Deletion conditions in a namespace's status: remaining content and failures.

use std::collections::BTreeMap;

use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, NamespaceCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::discovery::DiscoveredResource;

/// Content left in a namespace after a deletion pass.
#[derive(Default)]
pub(super) struct RemainingContent {
    pub(super) pods: usize,
    pub(super) failures: Vec<String>,
    /// Group versions whose resources are unknown, because their server is unavailable.
    pub(super) undiscovered: Vec<String>,
    objects: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

/// `(type, reason and message if true, reason and message if false)`.
type ConditionTexts = (&'static str, Option<(&'static str, String)>, (&'static str, &'static str));

impl RemainingContent {
    /// Starts a pass in which these group versions are unknown.
    pub(super) fn with_undiscovered(undiscovered: Vec<String>) -> Self {
        Self { undiscovered, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods == 0 && self.objects.is_empty() && self.failures.is_empty() && self.undiscovered.is_empty()
    }

    /// Records the remaining objects of a resource, given the finalizers of each; returns their number.
    pub(super) fn record_resource(&mut self, kind: &DiscoveredResource, left: Vec<Vec<String>>) -> usize {
        self.record_finalizers(kind.group_resource(), left)
    }

    fn record_finalizers(&mut self, kind: String, left: Vec<Vec<String>>) -> usize {
        let count = left.len();
        if count > 0 {
            self.objects.insert(kind, count);
        }
        left.into_iter().flatten().for_each(|finalizer| *self.finalizers.entry(finalizer).or_default() += 1);
        count
    }

    fn condition_texts(&self) -> [ConditionTexts; 5] {
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
        let undiscovered = (!self.undiscovered.is_empty()).then(|| {
            let failure = |version: &String| format!("{version}: stale GroupVersion discovery: {version}");
            let (count, all) = (self.undiscovered.len(), self.undiscovered.iter().map(failure).collect::<Vec<_>>());
            let all = all.join(", ");
            let cause = format!("unable to retrieve the complete list of server APIs: {all}");
            ("DiscoveryFailed", format!("Discovery failed for some groups, {count} failing: {cause}"))
        });
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                undiscovered,
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

/// Writes the conditions if they changed.
pub(super) async fn write_conditions(
    client: &Client,
    namespace: &Namespace,
    remaining: &RemainingContent,
) -> Result<(), kube::Error> {
    let mut update = namespace.clone();
    if !set_conditions(&mut update, remaining, Timestamp::now()) {
        return Ok(());
    }
    let api: Api<Namespace> = Api::all(client.clone());
    match api.replace_status(&namespace.name_any(), &PostParams::default(), &update).await {
        // The newer version is queued by its event.
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        result => result.map(drop),
    }
}

fn set_conditions(namespace: &mut Namespace, remaining: &RemainingContent, now: Timestamp) -> bool {
    let conditions = namespace.status.get_or_insert_default().conditions.get_or_insert_default();
    let mut changed = false;
    for (type_, active, inactive) in remaining.condition_texts() {
        let status = if active.is_some() { "True" } else { "False" };
        let (reason, message) = active.unwrap_or_else(|| (inactive.0, inactive.1.to_owned()));
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
    fn remaining_content_sets_and_clears_conditions() {
        let mut namespace = Namespace::default();
        let mut remaining = RemainingContent::default();
        remaining.record_finalizers("configmaps.".into(), vec![vec!["x/y".into()], vec![]]);
        assert!(set_conditions(&mut namespace, &remaining, Timestamp::UNIX_EPOCH));
        let message = |namespace: &Namespace, type_: &str| {
            let conditions = namespace.status.as_ref().unwrap().conditions.clone().unwrap();
            conditions.into_iter().find(|condition| condition.type_ == type_).unwrap().message.unwrap()
        };
        let active = message(&namespace, "NamespaceContentRemaining");
        assert_eq!(active, "Some resources are remaining: configmaps. has 2 resource instances");
        let active = message(&namespace, "NamespaceFinalizersRemaining");
        assert_eq!(active, "Some content in the namespace has finalizers remaining: x/y in 1 resource instances");
        assert!(!set_conditions(&mut namespace, &remaining, Timestamp::UNIX_EPOCH));
        assert!(set_conditions(&mut namespace, &RemainingContent::default(), Timestamp::UNIX_EPOCH));
        assert_eq!(message(&namespace, "NamespaceContentRemaining"), "All content successfully removed");
    }

    #[test]
    fn unavailable_group_keeps_the_namespace() {
        let remaining = RemainingContent::with_undiscovered(vec!["example.com/v1".into()]);
        assert!(!remaining.is_empty() && RemainingContent::default().is_empty());
        let mut namespace = Namespace::default();
        assert!(set_conditions(&mut namespace, &remaining, Timestamp::UNIX_EPOCH));
        let condition = namespace.status.unwrap().conditions.unwrap().remove(0);
        assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("True", Some("DiscoveryFailed")));
        assert_eq!(
            condition.message.as_deref(),
            Some(
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                 example.com/v1: stale GroupVersion discovery: example.com/v1"
            )
        );
    }
}
