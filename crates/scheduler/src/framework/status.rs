//! The result of a plug-in, and why a pod fits on no node.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write};

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    /// An internal or external error; the pod is tried again after a back-off.
    Error,
    /// The pod cannot be scheduled; preemption may help.
    Unschedulable,
    /// The pod cannot be scheduled, and preemption does not help.
    UnschedulableAndUnresolvable,
    /// The pod waits for something outside of the scheduler, and is tried at once when that happens.
    Pending,
}

/// A plug-in's failure.
#[derive(Clone, Debug)]
pub struct Status {
    /// The kind.
    pub code: StatusCode,
    /// Why, for users.
    pub reasons: Reasons,
    /// The plug-in; empty if the framework itself failed.
    pub plugin: &'static str,
}

/// Reasons of a status; most have one that is fixed.
#[derive(Clone, Debug)]
pub enum Reasons {
    /// One reason.
    One(Cow<'static, str>),
    /// Several reasons.
    Many(Vec<Cow<'static, str>>),
}

impl Reasons {
    /// The reasons in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let reasons = match self {
            Self::One(reason) => std::slice::from_ref(reason),
            Self::Many(reasons) => reasons.as_slice(),
        };
        reasons.iter().map(AsRef::as_ref)
    }
}

impl Status {
    /// A status with one reason.
    pub fn new(code: StatusCode, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code, reasons: Reasons::One(reason.into()), plugin: "" }
    }

    /// Unschedulable, for a reason that preemption may remove.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::Unschedulable, reason)
    }

    /// Unschedulable, for a reason that preemption does not remove.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UnschedulableAndUnresolvable, reason)
    }

    /// An error.
    pub fn error(error: impl ToString) -> Self {
        Self::new(StatusCode::Error, error.to_string())
    }

    /// The same status of a plug-in.
    pub fn with_plugin(self, plugin: &'static str) -> Self {
        Self { plugin, ..self }
    }

    /// The reasons, with commas between them.
    pub fn message(&self) -> String {
        self.reasons.iter().collect::<Vec<_>>().join(", ")
    }

    /// Whether the pod was rejected, as opposed to an error.
    pub fn is_rejected(&self) -> bool {
        self.code != StatusCode::Error
    }
}

/// Why nodes do not fit, by their positions in the snapshot.
#[derive(Clone, Debug, Default)]
pub struct NodeStatuses {
    statuses: Vec<(usize, Status)>,
    /// The status of all other nodes.
    absent: Option<Status>,
}

impl NodeStatuses {
    /// Sets the status of a node that has none.
    pub fn set(&mut self, position: usize, status: Status) {
        self.statuses.push((position, status));
    }

    /// Sets the status of the nodes without one.
    pub fn set_absent(&mut self, status: Status) {
        self.absent = Some(status);
    }

    /// Number of nodes with a status of their own.
    pub fn len(&self) -> usize {
        self.statuses.len()
    }

    /// Returns the code of a node; nodes that were not tried count as unresolvable.
    pub fn code(&self, position: usize) -> StatusCode {
        let own = self.statuses.iter().find(|(known, _)| *known == position).map(|(_, status)| status);
        own.or(self.absent.as_ref()).map_or(StatusCode::UnschedulableAndUnresolvable, |status| status.code)
    }

    /// Returns the errors among the statuses, as upstream joins them.
    pub fn error(&self) -> Option<String> {
        let errors = self.statuses.iter().filter(|(_, status)| !status.is_rejected());
        let mut messages: Vec<String> = Vec::new();
        for (_, status) in errors {
            let message = status.message();
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        match messages.as_slice() {
            [] => None,
            [message] => Some(message.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }

    /// Returns the positions of the nodes that preemption may help on, of `nodes` nodes.
    pub fn resolvable_nodes(&self, nodes: usize) -> Vec<usize> {
        let is_resolvable = |status: &Status| status.code == StatusCode::Unschedulable;
        let mut resolvable = vec![self.absent.as_ref().is_some_and(is_resolvable); nodes];
        for (position, status) in &self.statuses {
            if let Some(entry) = resolvable.get_mut(*position) {
                *entry = is_resolvable(status);
            }
        }
        (0..nodes).filter(|position| resolvable[*position]).collect()
    }

    fn count_reasons(&self, nodes: usize) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (_, status) in &self.statuses {
            status.reasons.iter().for_each(|reason| *counts.entry(reason).or_insert(0) += 1);
        }
        if let Some(absent) = self.absent.as_ref().filter(|_| self.len() < nodes) {
            absent.reasons.iter().for_each(|reason| *counts.entry(reason).or_insert(0) += nodes - self.len());
        }
        counts
    }
}

/// Diagnosis of a search for a node.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// Why nodes do not fit.
    pub nodes: NodeStatuses,
    /// Plug-ins that rejected the pod.
    pub unschedulable_plugins: Vec<&'static str>,
    /// Plug-ins that wait for something outside of the scheduler.
    pub pending_plugins: Vec<&'static str>,
    /// The message of a plug-in that rejected the pod before any node was tried.
    pub pre_filter_message: String,
    /// The message of preemption.
    pub post_filter_message: String,
}

impl Diagnosis {
    /// Notes the plug-in of a status.
    pub fn add_plugin(&mut self, status: &Status) {
        let plugins = match status.code {
            _ if status.plugin.is_empty() => return,
            StatusCode::Pending => &mut self.pending_plugins,
            StatusCode::Error => return,
            _ => &mut self.unschedulable_plugins,
        };
        if !plugins.contains(&status.plugin) {
            plugins.push(status.plugin);
        }
        if status.code == StatusCode::Pending && !self.unschedulable_plugins.contains(&status.plugin) {
            self.unschedulable_plugins.push(status.plugin);
        }
    }

    /// Renders upstream's message: reasons with their numbers of nodes, sorted as text.
    pub fn render_message(&self, nodes: usize) -> String {
        let mut message = format!("0/{nodes} nodes are available:");
        if self.pre_filter_message.is_empty() {
            let counts = self.nodes.count_reasons(nodes);
            let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            parts.sort();
            if !parts.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(message, " {}.", parts.join(", "));
            }
        } else {
            let _ = write!(message, " {}.", self.pre_filter_message);
        }
        if !self.post_filter_message.is_empty() {
            let _ = write!(message, " {}", self.post_filter_message);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_counts_reasons_in_text_order() {
        let mut diagnosis = Diagnosis::default();
        for position in 0..12 {
            diagnosis.nodes.set(position, Status::unschedulable("Insufficient cpu"));
        }
        let many = vec!["Insufficient cpu".into(), "Insufficient memory".into()];
        let status =
            Status { code: StatusCode::Unschedulable, reasons: Reasons::Many(many), plugin: "NodeResourcesFit" };
        diagnosis.add_plugin(&status);
        diagnosis.nodes.set(12, status);
        diagnosis.nodes.set_absent(Status::unresolvable("node(s) were unschedulable"));
        diagnosis.post_filter_message = "preemption: none".into();
        assert_eq!(
            diagnosis.render_message(15),
            "0/15 nodes are available: 1 Insufficient memory, 13 Insufficient cpu, 2 node(s) were unschedulable. preemption: none"
        );
        assert_eq!(diagnosis.unschedulable_plugins, ["NodeResourcesFit"]);
        diagnosis.pre_filter_message = "no".into();
        assert!(diagnosis.render_message(15).starts_with("0/15 nodes are available: no. preemption"));
    }

    #[test]
    fn errors_are_joined() {
        let mut statuses = NodeStatuses::default();
        statuses.set(0, Status::unschedulable("no"));
        assert_eq!(statuses.error(), None);
        statuses.set(1, Status::error("a"));
        statuses.set(2, Status::error("a"));
        assert_eq!(statuses.error().as_deref(), Some("a"));
        statuses.set(3, Status::error("b"));
        assert_eq!(statuses.error().as_deref(), Some("[a, b]"));
    }
}
