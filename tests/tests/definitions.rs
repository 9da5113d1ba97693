//! Definitions of others, from their Go modules, in the shipped API server.

use ferry_tests::definitions::Modules;

#[test]
fn the_modules_have_the_definitions_that_are_counted() {
    let Some(modules) = Modules::fetch() else { return };
    let found = modules.definitions();
    assert_eq!(found.counted.len(), 94);
    assert!(!found.more.is_empty() && !found.refused.is_empty());
}
