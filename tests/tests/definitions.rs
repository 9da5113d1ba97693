//! Definitions of others, from their Go modules, in the shipped API server.

use ferry_tests::definitions::Modules;

#[test]
fn the_modules_have_the_definitions_that_are_counted() {
    let Some(modules) = Modules::fetch() else { return };
    let found = modules.definitions();
    let lengths = [&found.counted, &found.more, &found.refused, &found.outdated].map(Vec::len);
    assert_eq!(lengths, [94, 1, 8, 5]);
}
