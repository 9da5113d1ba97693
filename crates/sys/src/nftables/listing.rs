//! Listing of tables and set elements.

use std::io;

use super::{ElementData, Family, SetElement, TableName, transaction::SUBSYSTEM};
use crate::netlink::{AttributeBuffer, NLM_F_DUMP, NLM_F_REQUEST, NetlinkSocket, parse_attributes, read_text};

const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_GETSETELEM: u16 = 13;
const HEADER: usize = 4;
const NFTA_DATA_VALUE: u16 = 1;

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

/// Lists the elements of a set: keys, ends of concatenated ranges, and the bytes of data in maps.
pub fn list_elements(table: &TableName, set: &str) -> io::Result<Vec<SetElement>> {
    let mut body = AttributeBuffer::with_header(&[table.family.number(), 0, 0, 0]);
    body.put_text(1, &table.name).put_text(2, set);
    let messages = NetlinkSocket::netfilter()?.exchange(
        SUBSYSTEM << 8 | NFT_MSG_GETSETELEM,
        NLM_F_REQUEST | NLM_F_DUMP,
        body.as_bytes(),
    )?;
    let mut elements = Vec::new();
    for message in &messages {
        for (_, list) in parse_attributes(message, HEADER)?.into_iter().filter(|(kind, _)| *kind == 3) {
            for (_, element) in parse_attributes(list, 0)? {
                elements.extend(parse_element(element)?);
            }
        }
    }
    Ok(elements)
}

fn parse_element(element: &[u8]) -> io::Result<Option<SetElement>> {
    let (mut key, mut key_end, mut data) = (None, None, None);
    for (kind, value) in parse_attributes(element, 0)? {
        let bytes = || -> io::Result<Option<Vec<u8>>> {
            let found = parse_attributes(value, 0)?.into_iter().find(|(kind, _)| *kind == NFTA_DATA_VALUE);
            Ok(found.map(|(_, bytes)| bytes.to_vec()))
        };
        match kind {
            1 => key = bytes()?,
            2 => data = bytes()?.map(ElementData::Value),
            10 => key_end = bytes()?,
            _ => {}
        }
    }
    Ok(key.map(|key| SetElement { data, key_end, ..SetElement::key(key) }))
}

/// Counts the elements of a set.
pub fn count_elements(table: &TableName, set: &str) -> io::Result<usize> {
    list_elements(table, set).map(|elements| elements.len())
}
