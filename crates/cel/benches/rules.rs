//! Fifty realistic rules against a custom resource: compiled once, evaluated per object.

#[path = "../tests/shared/mod.rs"]
mod shared;

use divan::{Bencher, counter::ItemsCount};
use ferry_cel::{Activation, CostTracker, Program};
use shared::TestFixture;

const RULES: [&str; 50] = [
    "self.spec.replicas <= 10",
    "self.spec.replicas >= 1",
    "self.spec.name != ''",
    "self.spec.name.size() <= 63",
    "self.spec.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "self.spec.kind in ['red', 'green', 'blue']",
    "has(self.spec.labels)",
    "!has(self.spec.absent)",
    "has(self.spec.labels) ? self.spec.labels.size() <= 10 : true",
    "self.spec.labels.all(k, k.size() <= 63)",
    "self.spec.labels.all(k, self.spec.labels[k].size() <= 63)",
    "'app' in self.spec.labels",
    "self.spec.labels['app'] == self.spec.name",
    "self.spec.containers.size() > 0",
    "self.spec.containers.all(c, c.name != '')",
    "self.spec.containers.all(c, has(c.image) && c.image.size() > 0)",
    "self.spec.containers.all(c, !c.image.endsWith(':latest'))",
    "self.spec.containers.exists(c, c.name == 'main')",
    "self.spec.containers.exists_one(c, c.name == 'main')",
    "self.spec.containers.map(c, c.name).size() == self.spec.containers.size()",
    "self.spec.containers.all(c, !has(c.ports) || c.ports.all(p, p.port > 0 && p.port < 65536))",
    "self.spec.containers.all(c, !has(c.ports) || c.ports.all(p, p.protocol in ['TCP', 'UDP']))",
    "self.spec.containers.filter(c, has(c.ports)).size() >= 1",
    "self.spec.numbers.all(n, n >= 0)",
    "self.spec.numbers.sum() < 100",
    "self.spec.numbers.max() <= 5",
    "self.spec.names.all(n, n.matches('^[a-z]$'))",
    "self.spec.names.join(',').size() < 100",
    "self.spec.set.all(s, s in ['x', 'y', 'z'])",
    "self.spec.ratio > 0.0 && self.spec.ratio < 10.0",
    "self.spec.enabled || self.spec.replicas == 0",
    "!(self.spec.enabled && self.spec.replicas == 0)",
    "self.spec.enabled ? self.spec.replicas > 0 : self.spec.replicas == 0",
    "type(self.spec.port) == int ? self.spec.port > 0 : true",
    "type(self.spec.portName) == string && self.spec.portName.size() <= 15",
    "self.spec.every >= duration('1m')",
    "self.spec.since > timestamp('2020-01-01T00:00:00Z')",
    "self.spec.data.size() < 1024",
    "self.spec.nested.all(k, self.spec.nested[k].x > 0)",
    "self.spec.nested.all(k, v, v.x < 10)",
    "self.spec.?absent.orValue('x') == 'x'",
    "self.spec.text.contains('Hello')",
    "self.spec.text.startsWith('Hello') || self.spec.text.startsWith('Bye')",
    "self.spec.__namespace__ == 'default'",
    "self.metadata.name.startsWith('thing')",
    "self.status.conditions.all(c, c.status in ['True', 'False', 'Unknown'])",
    "self.status.conditions.exists(c, c.type == 'Ready')",
    "!self.status.ready || self.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
    "quantity('100m').isLessThan(quantity('1'))",
    "isIP('10.0.0.1') && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
];

fn main() {
    divan::main();
}

fn compile_rules(fixture: &TestFixture) -> Vec<Program> {
    let program = |rule: &&str| {
        let checked = fixture.environment.compile(rule).unwrap_or_else(|issues| panic!("{issues}"));
        checked.plan_program().expect("a rule has a program")
    };
    RULES.iter().map(program).collect()
}

/// Evaluates all rules on one object.
#[divan::bench]
fn validate_object(bencher: Bencher<'_, '_>) {
    let fixture = TestFixture::new();
    let programs = compile_rules(&fixture);
    bencher.counter(ItemsCount::new(RULES.len())).bench_local(|| {
        let mut activation = Activation::new();
        for (name, value) in fixture.variable_values() {
            activation.bind_value(fixture.environment.variable_number(name).expect("the variable is declared"), value);
        }
        let mut spent = 0;
        for program in &programs {
            let mut budget = CostTracker::new(1_000_000);
            assert!(program.run(&activation, &mut budget).is_ok());
            spent += budget.actual_cost();
        }
        spent
    });
}

/// Parses, checks, estimates and plans all rules.
#[divan::bench]
fn compile_all_rules(bencher: Bencher<'_, '_>) {
    let fixture = TestFixture::new();
    bencher.counter(ItemsCount::new(RULES.len())).bench_local(|| {
        let each = |rule: &&str| {
            let checked = fixture.environment.compile(rule).unwrap_or_else(|issues| panic!("{issues}"));
            let estimate = checked.estimate_cost(&fixture);
            (checked.plan_program().expect("a rule has a program"), estimate)
        };
        RULES.iter().map(each).collect::<Vec<_>>()
    });
}
