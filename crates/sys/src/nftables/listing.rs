//! Listing of tables and set elements.

use std::io;

use super::{Family, TableName, transaction::SUBSYSTEM};
use crate::netlink::{AttributeBuffer, NLM_F_DUMP, NLM_F_REQUEST, NetlinkSocket, parse_attributes, read_text};

const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_GETSETELEM: u16 = 13;
const HEADER: usize = 4;

/// Lists the tables of the families that this module knows.
pub fn list_tables() -> io::Result<Vec<TableName>> {
    let messages =
        NetlinkSocket::netfilter()?.exchange(SUBSYSTEM << 8 | NFT_MSG_GETTABLE, NLM_F_REQUEST | NLM_F_DUMP, &[0; 4])?;
    let mut tables = Vec::new();
    for message in &messages {
        let family = match message.first() {
            Some(1) => Family::Inet,
            Some(2) => Family::Ip,
            Some(10) => Family::Ip6,
            _ => continue,
        };
        let name = parse_attributes(message, HEADER)?.into_iter().find(|(kind, _)| *kind == 1);
        tables.extend(name.map(|(_, name)| TableName::new(family, read_text(name))));
    }
    Ok(tables)
}

/// Counts the elements of a set.
pub fn count_elements(table: &TableName, set: &str) -> io::Result<usize> {
    let mut body = AttributeBuffer::with_header(&[table.family.number(), 0, 0, 0]);
    body.put_text(1, &table.name).put_text(2, set);
    let messages = NetlinkSocket::netfilter()?.exchange(
        SUBSYSTEM << 8 | NFT_MSG_GETSETELEM,
        NLM_F_REQUEST | NLM_F_DUMP,
        body.as_bytes(),
    )?;
    let mut count = 0;
    for message in &messages {
        for (_, list) in parse_attributes(message, HEADER)?.into_iter().filter(|(kind, _)| *kind == 3) {
            count += parse_attributes(list, 0)?.len();
        }
    }
    Ok(count)
}
