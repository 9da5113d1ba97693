//! Elements of nf_tables sets that plug-ins keep: listing and deletion where a set may be absent.

use std::io;

use sys::nftables::{self, NftError, SetElement, TableName, Transaction};

/// Lists the elements of a set; an absent one has none.
pub fn list_if_present(table: &TableName, set: &str) -> Result<Vec<SetElement>, NftError> {
    match nftables::list_elements(table, set) {
        Ok(elements) => Ok(elements),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Deletes the elements of a set that are there and match.
pub fn delete_known_elements(
    table: &TableName,
    set: &str,
    matches: impl Fn(&SetElement) -> bool,
    changes: &mut Transaction,
) -> Result<(), NftError> {
    let stale: Vec<SetElement> = list_if_present(table, set)?.into_iter().filter(matches).collect();
    changes.delete_elements(table, set, &stale);
    Ok(())
}
