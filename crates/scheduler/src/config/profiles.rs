//! Which plug-ins a profile has at each extension point: upstream's defaults, merged with the choices of the profile.

use serde::Deserialize;

use super::ConfigError;
use crate::framework::ExtensionPoint;

/// The default plug-ins with their weights, in upstream's order.
pub const DEFAULT_PLUGINS: [(&str, i64); 20] = [
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// A plug-in of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnabledPlugin {
    /// The plug-in; `*` disables all.
    pub name: String,
    /// Its weight; zero means the default.
    pub weight: i64,
}

/// Plug-ins to enable and disable at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginSelection {
    /// Enabled, in order.
    pub enabled: Vec<EnabledPlugin>,
    /// Disabled.
    pub disabled: Vec<EnabledPlugin>,
}

impl PluginSelection {
    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|plugin| plugin.name == name)
    }

    /// Enables a plug-in, unless the selection names it already.
    pub fn add_default(&mut self, name: &str) {
        if !self.disables("*") && !self.disables(name) && self.find(name).is_none() {
            self.enabled.push(EnabledPlugin { name: name.into(), weight: 0 });
        }
    }

    fn find(&self, name: &str) -> Option<&EnabledPlugin> {
        self.enabled.iter().find(|plugin| plugin.name == name)
    }
}

/// The choices of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the extension points")]
pub struct PluginChoices {
    pub pre_enqueue: PluginSelection,
    pub queue_sort: PluginSelection,
    pub pre_filter: PluginSelection,
    pub filter: PluginSelection,
    pub post_filter: PluginSelection,
    pub pre_score: PluginSelection,
    pub score: PluginSelection,
    pub reserve: PluginSelection,
    pub permit: PluginSelection,
    pub pre_bind: PluginSelection,
    pub bind: PluginSelection,
    pub post_bind: PluginSelection,
    /// All points that a plug-in extends.
    pub multi_point: PluginSelection,
}

impl PluginChoices {
    /// The choices at one point.
    pub fn at(&self, point: ExtensionPoint) -> &PluginSelection {
        match point {
            ExtensionPoint::PreEnqueue => &self.pre_enqueue,
            ExtensionPoint::QueueSort => &self.queue_sort,
            ExtensionPoint::PreFilter => &self.pre_filter,
            ExtensionPoint::Filter => &self.filter,
            ExtensionPoint::PostFilter => &self.post_filter,
            ExtensionPoint::PreScore => &self.pre_score,
            ExtensionPoint::Score => &self.score,
            ExtensionPoint::Reserve => &self.reserve,
            ExtensionPoint::Permit => &self.permit,
            ExtensionPoint::PreBind => &self.pre_bind,
            ExtensionPoint::Bind => &self.bind,
            ExtensionPoint::PostBind => &self.post_bind,
        }
    }

    /// Returns the plug-ins that are enabled for all their points: the defaults, changed in place, then further ones.
    pub fn merged_defaults(&self) -> Vec<EnabledPlugin> {
        let choices = &self.multi_point;
        let mut merged = Vec::new();
        if !choices.disables("*") {
            for (name, weight) in DEFAULT_PLUGINS.into_iter().filter(|(name, _)| !choices.disables(name)) {
                let default = EnabledPlugin { name: name.into(), weight };
                merged.push(choices.find(name).cloned().unwrap_or(default));
            }
        }
        let is_new = |plugin: &&EnabledPlugin| !merged.iter().any(|known: &EnabledPlugin| known.name == plugin.name);
        let further: Vec<EnabledPlugin> = choices.enabled.iter().filter(is_new).cloned().collect();
        merged.extend(further);
        merged
    }

    /// Returns the plug-ins of a point: those that are named there and by default first, then the defaults, then
    /// further ones. `extends` tells whether a plug-in extends the point.
    pub fn plugins_at(
        &self,
        point: ExtensionPoint,
        extends: impl Fn(&str) -> bool,
    ) -> Result<Vec<EnabledPlugin>, ConfigError> {
        let choices = self.at(point);
        if let Some(other) = choices.enabled.iter().find(|plugin| !extends(&plugin.name)) {
            let message = format!("plugin {:?} does not extend {point:?} plugin", other.name);
            return Err(ConfigError::Invalid(message));
        }
        let defaults = match choices.disables("*") {
            true => Vec::new(),
            false => self.merged_defaults(),
        };
        let defaults = defaults.into_iter().filter(|plugin| extends(&plugin.name) && !choices.disables(&plugin.name));
        let (named, unnamed): (Vec<_>, Vec<_>) = defaults.partition(|plugin| choices.find(&plugin.name).is_some());
        let by_name = |plugin: &EnabledPlugin| {
            let chosen = choices.find(&plugin.name).map_or(0, |chosen| chosen.weight);
            EnabledPlugin { weight: if chosen == 0 { plugin.weight } else { chosen }, ..plugin.clone() }
        };
        let mut plugins: Vec<EnabledPlugin> = named.iter().map(by_name).chain(unnamed).collect();
        for plugin in &choices.enabled {
            if !named.iter().any(|known| known.name == plugin.name) {
                if plugins.iter().any(|known| known.name == plugin.name) {
                    let message = format!("plugin {:?} already registered as {point:?}", plugin.name);
                    return Err(ConfigError::Invalid(message));
                }
                plugins.push(plugin.clone());
            }
        }
        plugins.iter_mut().filter(|plugin| plugin.weight == 0).for_each(|plugin| plugin.weight = 1);
        Ok(plugins)
    }
}
