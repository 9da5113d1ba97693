//! The kernel's tables kept in step with the plans of services, by difference.
//!
//! Guarantee: after a transaction that the kernel refused, the next one replaces the whole table, so that table and plans
//! never drift apart.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use sys::nftables::{NftError, SetElement, Transaction};

use super::{
    elements::{EndpointChain, PlacedElement, PlanElements, SetName, hairpin_element},
    endpoints::UsableEndpoints,
    family_service::{FamilyService, FamilyServicePort},
    plan::{Frontend, ServicePlan},
    table::ProxyTable,
};
use crate::service_protocol::ServiceProtocol;

/// Namespace and name of a service.
pub(crate) type ServiceKey = Arc<str>;

/// A service as it is now, or gone.
pub(crate) struct ServiceChange {
    pub key: ServiceKey,
    pub service: Option<FamilyService>,
    /// The usable endpoints of each port, in the order of the ports.
    pub endpoints: Vec<UsableEndpoints>,
}

/// A plan before and after a change.
pub(crate) struct PlanChange {
    pub before: Option<ServicePlan>,
    pub after: Option<ServicePlan>,
}

/// The table of one IP family and the plans in it.
pub(crate) struct TableProgrammer {
    table: ProxyTable,
    plans: HashMap<ServiceKey, ServicePlan>,
    /// The service of each frontend that has an address.
    claims: HashMap<Frontend, ServiceKey>,
    /// Services without a frontend that another one has claimed.
    waiting: HashSet<ServiceKey>,
    /// Number of service ports that each local endpoint belongs to.
    hairpin: HashMap<(IpAddr, ServiceProtocol, u16), u32>,
    chains: HashSet<EndpointChain>,
    /// Elements that no service brings: ranges and node addresses.
    fixed: Vec<PlacedElement>,
    must_replace: bool,
}

impl TableProgrammer {
    /// A table that is created by the first [`TableProgrammer::apply`].
    pub fn new(table: ProxyTable, fixed: Vec<PlacedElement>) -> Self {
        Self {
            table,
            plans: HashMap::new(),
            claims: HashMap::new(),
            waiting: HashSet::new(),
            hairpin: HashMap::new(),
            chains: HashSet::new(),
            fixed,
            must_replace: true,
        }
    }

    /// Makes the next change replace the whole table.
    pub fn replace_on_next_apply(&mut self) {
        self.must_replace = true;
    }

    /// Whether the table is not known to be as planned.
    pub fn is_behind(&self) -> bool {
        self.must_replace
    }

    /// Sets the elements that no service brings; true if they changed.
    pub fn set_fixed(&mut self, fixed: Vec<PlacedElement>) -> bool {
        let changed = self.fixed != fixed;
        self.fixed = fixed;
        self.must_replace |= changed;
        changed
    }

    /// The plan of a service.
    pub fn plan(&self, key: &str) -> Option<&ServicePlan> {
        self.plans.get(key)
    }

    /// Plans the changes and applies them in one transaction. Returns what changed.
    ///
    /// # Errors
    /// The kernel refused the transaction; the plans are kept and the next call replaces the table.
    pub fn apply(&mut self, changes: Vec<ServiceChange>) -> Result<Vec<PlanChange>, NftError> {
        let mut difference = ElementDifference::default();
        let mut planned: Vec<PlanChange> = Vec::new();
        let mut has_released = false;
        for change in changes {
            let (plan_change, released) = self.plan_change(change, &mut difference);
            planned.extend(plan_change);
            has_released |= released;
        }
        if has_released {
            self.retry_claims(&mut difference);
        }
        let mut transaction = Transaction::new();
        if self.must_replace {
            self.write_table(&mut transaction);
        } else {
            self.write_difference(&mut transaction, difference);
        }
        let outcome = transaction.commit();
        self.must_replace = outcome.is_err();
        outcome.map(|()| planned)
    }

    /// Plans one service; returns the change and whether a frontend became free.
    fn plan_change(&mut self, change: ServiceChange, out: &mut ElementDifference) -> (Option<PlanChange>, bool) {
        let ServiceChange { key, service, endpoints } = change;
        let before = self.plans.remove(&key);
        let after = service.as_ref().map(|service| {
            let usable = |port: &FamilyServicePort| {
                let index = service.ports.iter().position(|candidate| candidate == port);
                index.and_then(|index| endpoints.get(index)).cloned().unwrap_or_default()
            };
            ServicePlan::new(service, usable, before.as_ref())
        });
        if before == after {
            self.plans.extend(after.map(|after| (key, after)));
            return (None, false);
        }
        let removed = before.as_ref().map(|plan| self.elements_of(&key, plan)).unwrap_or_default();
        let released = self.release_claims(&key, before.as_ref(), after.as_ref());
        let added = after.as_ref().map(|plan| self.claim_and_list(&key, plan)).unwrap_or_default();
        self.count_hairpin(before.as_ref(), after.as_ref(), out);
        out.record(removed.elements, added);
        self.plans.extend(after.clone().map(|after| (key, after)));
        (Some(PlanChange { before, after }), released)
    }

    fn elements_of(&self, key: &ServiceKey, plan: &ServicePlan) -> PlanElements {
        PlanElements::of_plan(plan, |frontend| match frontend {
            Frontend::NodePort(..) => true,
            Frontend::Address(..) => self.claims.get(frontend) == Some(key),
        })
    }

    /// Claims free frontends, then lists the elements of the plan.
    fn claim_and_list(&mut self, key: &ServiceKey, plan: &ServicePlan) -> PlanElements {
        let mut is_waiting = false;
        for (frontend, _) in plan.ports.iter().flat_map(|port| &port.frontends) {
            if matches!(frontend, Frontend::Address(..)) {
                is_waiting |= self.claims.entry(*frontend).or_insert_with(|| key.clone()) != key;
            }
        }
        if is_waiting {
            tracing::warn!(service = %key, "service proxy: another service has one of its addresses and ports");
            self.waiting.insert(key.clone());
        } else {
            self.waiting.remove(key);
        }
        self.elements_of(key, plan)
    }

    fn release_claims(&mut self, key: &ServiceKey, before: Option<&ServicePlan>, after: Option<&ServicePlan>) -> bool {
        let frontends = |plan: Option<&ServicePlan>| -> HashSet<Frontend> {
            plan.iter().flat_map(|plan| &plan.ports).flat_map(|port| &port.frontends).map(|(at, _)| *at).collect()
        };
        let kept = frontends(after);
        let mut released = false;
        for frontend in frontends(before).difference(&kept) {
            if self.claims.get(frontend) == Some(key) {
                self.claims.remove(frontend);
                released = true;
            }
        }
        if after.is_none() {
            self.waiting.remove(key);
        }
        released
    }

    /// Gives free frontends to services that wait for them.
    fn retry_claims(&mut self, out: &mut ElementDifference) {
        for key in self.waiting.clone() {
            let Some(plan) = self.plans.get(&key).cloned() else { continue };
            let removed = self.elements_of(&key, &plan);
            let added = self.claim_and_list(&key, &plan);
            out.record(removed.elements, added);
        }
    }

    /// Counts the uses of local endpoints: two services may have the same one.
    fn count_hairpin(
        &mut self,
        before: Option<&ServicePlan>,
        after: Option<&ServicePlan>,
        out: &mut ElementDifference,
    ) {
        let endpoints = |plan: Option<&ServicePlan>| -> Vec<(IpAddr, ServiceProtocol, u16)> {
            let ports = plan.iter().flat_map(|plan| &plan.ports);
            ports.flat_map(|port| port.hairpin.iter().map(|(ip, number)| (*ip, port.protocol, *number))).collect()
        };
        for endpoint in endpoints(after) {
            let count = self.hairpin.entry(endpoint).or_default();
            *count += 1;
            if *count == 1 {
                out.add(SetName::Hairpin, hairpin_element(endpoint.0, endpoint.1, endpoint.2));
            }
        }
        for endpoint in endpoints(before) {
            if let Some(count) = self.hairpin.get_mut(&endpoint) {
                *count -= 1;
                if *count == 0 {
                    self.hairpin.remove(&endpoint);
                    out.remove(SetName::Hairpin, hairpin_element(endpoint.0, endpoint.1, endpoint.2));
                }
            }
        }
    }

    fn write_difference(&mut self, transaction: &mut Transaction, difference: ElementDifference) {
        for chain in &difference.chains {
            if self.chains.insert(*chain) {
                self.table.add_endpoint_chain(transaction, chain);
            }
        }
        let (removed, added) = difference.split();
        for (set, elements) in group_by_set(removed) {
            transaction.delete_elements(&self.table.table, set.name(), &elements);
        }
        for (set, elements) in group_by_set(added) {
            transaction.add_elements(&self.table.table, set.name(), &elements);
        }
    }

    fn write_table(&mut self, transaction: &mut Transaction) {
        self.table.create(transaction);
        let mut elements = self.fixed.clone();
        self.chains.clear();
        for (key, plan) in &self.plans {
            let listed = self.elements_of(key, plan);
            self.chains.extend(listed.chains);
            elements.extend(listed.elements);
        }
        let hairpin = self.hairpin.keys().map(|(ip, protocol, port)| hairpin_element(*ip, *protocol, *port));
        elements.extend(hairpin.map(|element| (SetName::Hairpin, element)));
        for chain in &self.chains {
            self.table.add_endpoint_chain(transaction, chain);
        }
        for (set, elements) in group_by_set(elements) {
            transaction.add_elements(&self.table.table, set.name(), &elements);
        }
    }
}

/// Elements to remove and to add.
#[derive(Debug, Default)]
struct ElementDifference {
    removed: HashSet<PlacedElement>,
    added: HashSet<PlacedElement>,
    chains: HashSet<EndpointChain>,
}

impl ElementDifference {
    fn record(&mut self, removed: Vec<PlacedElement>, added: PlanElements) {
        removed.into_iter().for_each(|(set, element)| self.remove(set, element));
        added.elements.into_iter().for_each(|(set, element)| self.add(set, element));
        self.chains.extend(added.chains);
    }

    fn add(&mut self, set: SetName, element: SetElement) {
        let placed = (set, element);
        if !self.removed.remove(&placed) {
            self.added.insert(placed);
        }
    }

    fn remove(&mut self, set: SetName, element: SetElement) {
        let placed = (set, element);
        if !self.added.remove(&placed) {
            self.removed.insert(placed);
        }
    }

    fn split(self) -> (Vec<PlacedElement>, Vec<PlacedElement>) {
        (self.removed.into_iter().collect(), self.added.into_iter().collect())
    }
}

fn group_by_set(elements: Vec<PlacedElement>) -> HashMap<SetName, Vec<SetElement>> {
    let mut groups: HashMap<SetName, Vec<SetElement>> = HashMap::new();
    for (set, element) in elements {
        groups.entry(set).or_default().push(element);
    }
    groups
}
