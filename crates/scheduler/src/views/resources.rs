//! Resource amounts of nodes and pods: the four common resources in fields, all others in a sorted array.

use std::{collections::BTreeMap, sync::Arc};

use api::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use crate::intern::intern;

/// Amounts by resource: CPU in millicores, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Millicores.
    pub milli_cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Number of pods that a node takes.
    pub allowed_pods: i64,
    /// Extended resources, huge pages and attachable volumes, sorted by name.
    pub scalars: Vec<(Arc<str>, i64)>,
}

impl Resource {
    /// Parses a resource list; quantities that do not parse are left out, as validation guarantees that there are none.
    pub fn from_list(list: Option<&BTreeMap<String, QuantityText>>) -> Self {
        let quantities = list.into_iter().flatten();
        Self::from_quantities(quantities.filter_map(|(name, text)| Some((name.as_str(), Quantity::parse(&text.0)?))))
    }

    /// Sums quantities by name; names that the scheduler does not count are left out.
    pub fn from_quantities<'a>(quantities: impl IntoIterator<Item = (&'a str, Quantity)>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in quantities {
            match name {
                "cpu" => amounts.milli_cpu += quantity.millis(),
                "memory" => amounts.memory += quantity.value(),
                "ephemeral-storage" => amounts.ephemeral_storage += quantity.value(),
                "pods" => amounts.allowed_pods += quantity.value(),
                name if is_scalar_resource(name) => amounts.add_scalar(&intern(name), quantity.value()),
                _ => {}
            }
        }
        amounts
    }

    /// Returns the amount of an extended resource.
    pub fn scalar(&self, name: &str) -> i64 {
        self.find_scalar(name).ok().and_then(|found| self.scalars.get(found)).map_or(0, |(_, amount)| *amount)
    }

    /// Whether the amounts have an extended resource of this name.
    pub fn has_scalar(&self, name: &str) -> bool {
        self.find_scalar(name).is_ok()
    }

    /// Adds `sign` times another pod's requests.
    pub fn add_scaled(&mut self, other: &Self, sign: i64) {
        self.milli_cpu += sign * other.milli_cpu;
        self.memory += sign * other.memory;
        self.ephemeral_storage += sign * other.ephemeral_storage;
        other.scalars.iter().for_each(|(name, amount)| self.add_scalar(name, sign * amount));
    }

    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }

    fn add_scalar(&mut self, name: &Arc<str>, amount: i64) {
        match self.find_scalar(name) {
            Ok(found) => self.scalars[found].1 += amount,
            Err(place) => self.scalars.insert(place, (name.clone(), amount)),
        }
    }

    fn find_scalar(&self, name: &str) -> Result<usize, usize> {
        self.scalars.binary_search_by(|(known, _)| known.as_ref().cmp(name))
    }
}

/// Whether the scheduler counts a resource by name: extended resources, huge pages, attachable volumes.
pub fn is_scalar_resource(name: &str) -> bool {
    is_extended_resource(name)
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// Whether the resource has a domain that is not Kubernetes' own.
pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_summed() {
        let list = [("cpu", "1500m"), ("memory", "1Gi"), ("pods", "110"), ("example.com/gpu", "2"), ("odd", "1")];
        let list = list.map(|(name, text)| (name.to_owned(), QuantityText(text.into()))).into();
        let mut node = Resource::from_list(Some(&list));
        assert_eq!((node.milli_cpu, node.memory, node.allowed_pods), (1500, 1 << 30, 110));
        assert_eq!((node.scalar("example.com/gpu"), node.scalar("odd")), (2, 0));
        let pod = Resource::from_quantities([("example.com/gpu", Quantity::from_integer(1))]);
        node.add_scaled(&pod, -1);
        assert_eq!(node.scalar("example.com/gpu"), 1);
    }

    #[test]
    fn scalar_resources_are_told_by_name() {
        for name in
            ["example.com/gpu", "hugepages-2Mi", "attachable-volumes-csi-x", "deviceclass.resource.kubernetes.io/g"]
        {
            assert!(is_scalar_resource(name), "{name}");
        }
        assert!(!is_scalar_resource("odd") && !is_extended_resource("requests.example.com/gpu"));
    }
}
