//! nf_tables: transactions, sets, maps and notice of foreign changes.

use std::process::Command;

use ferry_sys::{
    netns::NetworkNamespace,
    nftables::{
        BaseChain, ChainType, DataType, Expression, Family, Hook, MetaKey, PayloadBase, SetElement, SetKind, SetSpec,
        TableMonitor, TableName, Transaction, Verdict, count_elements, list_tables,
    },
};

/// Runs `work` in a namespace of its own; skips without the right to make one.
fn check(work: impl FnOnce() + Send) {
    match NetworkNamespace::new() {
        Ok(namespace) => namespace.run(work).unwrap(),
        Err(error) => skip::skip_test(format!("a network namespace cannot be made: {error}")),
    }
}

fn table() -> TableName {
    TableName::new(Family::Ip, "t")
}

fn add_service_map(changes: &mut Transaction) {
    changes.add_table(&table());
    changes.add_chain(&table(), "found", None);
    let key = [DataType::Ipv4Address, DataType::Protocol, DataType::Port];
    changes.add_set(&table(), &SetSpec::new("services", &key, SetKind::VerdictMap));
    let nat = BaseChain { kind: ChainType::Nat, hook: Hook::Prerouting, priority: -100 };
    changes.add_chain(&table(), "pre", Some(nat));
    let network = |offset, length, into| Expression::Payload { base: PayloadBase::Network, offset, length, into };
    let lookup = [
        network(16, 4, 0),
        Expression::Meta { key: MetaKey::L4Proto, into: 1 },
        Expression::Payload { base: PayloadBase::Transport, offset: 2, length: 2, into: 2 },
        Expression::VerdictMap { map: "services".into(), from: 0 },
    ];
    changes.add_rule(&table(), "pre", &lookup);
}

fn service(last: u8) -> SetElement {
    let key = vec![10, 96, 0, last, 6, 0, 0, 0, 0, 80, 0, 0];
    SetElement::verdict(key, Verdict::Goto("found".into()))
}

#[test]
fn elements_are_changed_one_by_one() {
    check(|| {
        let mut changes = Transaction::new();
        add_service_map(&mut changes);
        changes.add_elements(&table(), "services", &(1..=200).map(service).collect::<Vec<_>>());
        changes.commit().unwrap();
        assert_eq!(count_elements(&table(), "services").unwrap(), 200);
        let mut changes = Transaction::new();
        changes.delete_elements(&table(), "services", &[service(7), service(8)]);
        changes.add_elements(&table(), "services", &[service(201)]);
        changes.commit().unwrap();
        assert_eq!(count_elements(&table(), "services").unwrap(), 199);
        assert_eq!(list_tables().unwrap(), [table()]);
    });
}

#[test]
fn refused_transaction_changes_nothing() {
    check(|| {
        let mut changes = Transaction::new();
        add_service_map(&mut changes);
        changes.add_verdict(&table(), "pre", Verdict::Jump("absent".into()));
        let error = changes.commit().unwrap_err().to_string();
        assert!(error.contains("add a rule to t pre"), "{error}");
        assert!(list_tables().unwrap().is_empty());
    });
}

#[test]
fn ruleset_reads_as_nft_writes_it() {
    check(|| {
        let mut changes = Transaction::new();
        add_service_map(&mut changes);
        changes.add_elements(&table(), "services", &[service(1)]);
        let ranges = SetSpec::new("ranges", &[DataType::Ipv4Address], SetKind::Set).with_intervals();
        changes.add_set(&table(), &ranges);
        changes.add_elements(&table(), "ranges", &SetElement::range(vec![10, 42, 0, 0], &[10, 42, 255, 255]));
        let key = [DataType::Ipv4Address, DataType::Port];
        changes.add_set(&table(), &SetSpec::new("both", &key, SetKind::Set).with_intervals());
        let first = vec![10, 0, 0, 0, 0, 80, 0, 0];
        let range = SetElement::concatenated_range(first, vec![10, 0, 0, 255, 0, 90, 0, 0]);
        changes.add_elements(&table(), "both", &[range]);
        let data = SetKind::Map(vec![DataType::Ipv4Address, DataType::Port]);
        let map = SetSpec::new("affinity", &[DataType::Ipv4Address, DataType::Mark], data).with_dynamic_elements();
        changes.add_set(&table(), &map);
        changes.commit().unwrap();
        let Ok(listed) = Command::new("nft").args(["list", "ruleset"]).output() else {
            return skip::skip_test("nft is not installed");
        };
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for line in [
            "ip daddr . meta l4proto . th dport vmap @services",
            "10.96.0.1 . tcp . 80 : goto found",
            "10.42.0.0/16",
            "10.0.0.0/24 . 80-90",
            "type ipv4_addr . mark : ipv4_addr . inet_service",
        ] {
            assert!(listed.contains(line), "{line} is not in:\n{listed}");
        }
    });
}

#[test]
fn foreign_change_is_noticed_and_own_is_not() {
    check(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let monitor = TableMonitor::new(vec![table()]).unwrap();
            let mut changes = Transaction::new();
            add_service_map(&mut changes);
            changes.commit().unwrap();
            let own = tokio::time::timeout(std::time::Duration::from_millis(50), monitor.wait_for_foreign_change());
            assert!(own.await.is_err(), "an own change was reported");
            let mut changes = Transaction::new();
            changes.replace_table(&table());
            add_service_map(&mut changes);
            changes.add_elements(&table(), "services", &(1..=200).map(service).collect::<Vec<_>>());
            changes.commit().unwrap();
            let own = tokio::time::timeout(std::time::Duration::from_millis(50), monitor.wait_for_foreign_change());
            assert!(own.await.is_err(), "an own replacement was reported");
            if Command::new("nft").args(["delete", "table", "ip", "t"]).status().is_err() {
                return skip::skip_test("nft is not installed");
            }
            monitor.wait_for_foreign_change().await.unwrap();
        });
    });
}
