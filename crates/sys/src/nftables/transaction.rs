//! Transactions: changes of the ruleset that the kernel applies together or not at all.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    sync::OnceLock,
};

use rustix::net::{RecvFlags, sockopt};

use super::{BaseChain, ChainType, Expression, Hook, NftError, SetElement, SetSpec, TableName, Verdict};
use crate::netlink::{self, AttributeBuffer, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, NetlinkSocket, append_request};

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
/// The number of nf_tables among the subsystems of nfnetlink.
pub(super) const SUBSYSTEM: u16 = 10;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_DELCHAIN: u16 = 5;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_DELRULE: u16 = 8;
const NFT_MSG_NEWSET: u16 = 9;
const NFT_MSG_DELSET: u16 = 11;
const NFT_MSG_NEWSETELEM: u16 = 12;
const NFT_MSG_DELSETELEM: u16 = 14;
const NFTA_LIST_ELEM: u16 = 1;
/// An attribute holds at most 64 KiB; a list of elements is split before.
const MAX_ELEMENT_BYTES: usize = 48 * 1024;
/// Room for a transaction in the socket.
const SMALLEST_SEND_BUFFER: usize = 1 << 20;

/// Changes that are applied atomically by [`Transaction::commit`].
#[derive(Debug, Default)]
pub struct Transaction {
    bytes: Vec<u8>,
    /// The operation of each message, for errors.
    operations: Vec<Operation>,
    sets: u32,
}

/// The verb and object of a message.
#[derive(Clone, Debug)]
struct Operation {
    verb: &'static str,
    table: String,
    object: String,
}

impl Transaction {
    /// A transaction without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it has no changes.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Adds a table unless it exists.
    pub fn add_table(&mut self, table: &TableName) {
        let mut body = body(table);
        body.put_text(1, &table.name);
        self.push(NFT_MSG_NEWTABLE, NLM_F_CREATE, &body, "add", table, "table");
    }

    /// Deletes a table with all it has. An absent table fails the transaction.
    pub fn delete_table(&mut self, table: &TableName) {
        let mut body = body(table);
        body.put_text(1, &table.name);
        self.push(NFT_MSG_DELTABLE, 0, &body, "delete", table, "table");
    }

    /// Makes a table empty, whether it exists or not.
    pub fn replace_table(&mut self, table: &TableName) {
        self.add_table(table);
        self.delete_table(table);
        self.add_table(table);
    }

    /// Adds a chain unless it exists; with `base`, one that the kernel calls at a hook.
    pub fn add_chain(&mut self, table: &TableName, chain: &str, base: Option<BaseChain>) {
        let mut body = body(table);
        body.put_text(1, &table.name).put_text(3, chain);
        if let Some(base) = base {
            let hook = match base.hook {
                Hook::Prerouting => 0,
                Hook::Input => 1,
                Hook::Forward => 2,
                Hook::Output => 3,
                Hook::Postrouting => 4,
            };
            let kind = match base.kind {
                ChainType::Filter => "filter",
                ChainType::Nat => "nat",
                ChainType::Route => "route",
            };
            body.nest(4, |out| {
                out.put_be32(1, hook).put_be32(2, base.priority as u32);
            });
            body.put_text(7, kind);
        }
        self.push(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &body, "add chain", table, chain);
    }

    /// Deletes a chain, which must be unused.
    pub fn delete_chain(&mut self, table: &TableName, chain: &str) {
        let mut body = body(table);
        body.put_text(1, &table.name).put_text(3, chain);
        self.push(NFT_MSG_DELCHAIN, 0, &body, "delete chain", table, chain);
    }

    /// Deletes the rules of a chain.
    pub fn flush_chain(&mut self, table: &TableName, chain: &str) {
        let mut body = body(table);
        body.put_text(1, &table.name).put_text(2, chain);
        self.push(NFT_MSG_DELRULE, 0, &body, "flush chain", table, chain);
    }

    /// Appends a rule to a chain.
    pub fn add_rule(&mut self, table: &TableName, chain: &str, expressions: &[Expression]) {
        let mut body = body(table);
        body.put_text(1, &table.name).put_text(2, chain).nest(4, |list| {
            for expression in expressions {
                list.nest(NFTA_LIST_ELEM, |out| expression.encode(out));
            }
        });
        self.push(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &body, "add a rule to", table, chain);
    }

    /// Appends a rule that is a verdict.
    pub fn add_verdict(&mut self, table: &TableName, chain: &str, verdict: Verdict) {
        self.add_rule(table, chain, &[Expression::Verdict(verdict)]);
    }

    /// Adds a set unless it exists.
    pub fn add_set(&mut self, table: &TableName, set: &SetSpec) {
        self.sets += 1;
        let mut body = body(table);
        body.put_text(1, &table.name);
        set.encode(self.sets, &mut body);
        self.push(NFT_MSG_NEWSET, NLM_F_CREATE, &body, "add set", table, &set.name);
    }

    /// Deletes a set, which must be unused.
    pub fn delete_set(&mut self, table: &TableName, set: &str) {
        let mut body = body(table);
        body.put_text(1, &table.name).put_text(2, set);
        self.push(NFT_MSG_DELSET, 0, &body, "delete set", table, set);
    }

    /// Adds elements. One with the same key and other data fails the transaction.
    pub fn add_elements(&mut self, table: &TableName, set: &str, elements: &[SetElement]) {
        self.change_elements(NFT_MSG_NEWSETELEM, NLM_F_CREATE, "add elements to", table, set, elements);
    }

    /// Deletes elements. An absent one fails the transaction.
    pub fn delete_elements(&mut self, table: &TableName, set: &str, elements: &[SetElement]) {
        self.change_elements(NFT_MSG_DELSETELEM, 0, "delete elements of", table, set, elements);
    }

    /// Deletes all elements of a set.
    pub fn flush_set(&mut self, table: &TableName, set: &str) {
        let mut body = body(table);
        body.put_text(1, &table.name).put_text(2, set);
        self.push(NFT_MSG_DELSETELEM, 0, &body, "flush set", table, set);
    }

    fn change_elements(
        &mut self,
        kind: u16,
        flags: u16,
        verb: &'static str,
        table: &TableName,
        set: &str,
        elements: &[SetElement],
    ) {
        let mut elements = elements.iter().peekable();
        while elements.peek().is_some() {
            let mut list = AttributeBuffer::default();
            while list.as_bytes().len() < MAX_ELEMENT_BYTES
                && let Some(element) = elements.next()
            {
                element.encode(&mut list);
            }
            let mut body = body(table);
            body.put_text(1, &table.name).put_text(2, set).put(3 | 0x8000, list.as_bytes());
            self.push(kind, flags, &body, verb, table, set);
        }
    }

    fn push(
        &mut self,
        kind: u16,
        flags: u16,
        body: &AttributeBuffer,
        verb: &'static str,
        table: &TableName,
        object: &str,
    ) {
        self.operations.push(Operation { verb, table: table.name.clone(), object: object.into() });
        let sequence = sequence_number(self.operations.len());
        append_request(&mut self.bytes, SUBSYSTEM << 8 | kind, NLM_F_REQUEST | flags, sequence, body.as_bytes());
    }

    /// Applies all changes.
    ///
    /// # Errors
    /// The first change that the kernel refused; nothing was changed then.
    pub fn commit(self) -> Result<(), NftError> {
        if self.is_empty() {
            return Ok(());
        }
        let socket = NetlinkSocket::netfilter()?;
        let size = self.bytes.len() + 256;
        if size > SMALLEST_SEND_BUFFER / 8 {
            sockopt::set_socket_send_buffer_size_force(socket.as_fd(), size * 2).map_err(io::Error::from)?;
        }
        let mut batch = Vec::with_capacity(size);
        let control = [0, 0, 0, SUBSYSTEM as u8];
        append_request(&mut batch, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, sequence_number(0), &control);
        batch.extend(&self.bytes);
        let last = sequence_number(self.operations.len() + 1);
        append_request(&mut batch, NFNL_MSG_BATCH_END, NLM_F_REQUEST, last, &control);
        socket.send(&batch)?;
        self.read_outcome(&socket)
    }

    /// Reads the errors. The kernel has processed the transaction when the send returns, so what there is to read is there.
    fn read_outcome(&self, socket: &NetlinkSocket) -> Result<(), NftError> {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let received = match socket.receive(&mut buffer, RecvFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                received => received?,
            };
            for message in netlink::split_datagram(buffer.get(..received).unwrap_or_default()) {
                let message = message?;
                if let Some(code) = message.error_code().filter(|code| *code != 0) {
                    return Err(self.refused(message.sequence, code));
                }
            }
        }
    }

    fn refused(&self, sequence: u32, code: i32) -> NftError {
        let operation =
            ((sequence & SEQUENCE_MASK) as usize).checked_sub(1).and_then(|index| self.operations.get(index));
        let operation = operation.map_or_else(
            || "apply a transaction".to_owned(),
            |operation| format!("{} {} {}", operation.verb, operation.table, operation.object),
        );
        NftError::Refused { operation, source: io::Error::from_raw_os_error(code) }
    }
}

/// Starts a message body with the header of nfnetlink.
fn body(table: &TableName) -> AttributeBuffer {
    AttributeBuffer::with_header(&[table.family.number(), 0, 0, 0])
}

/// The bits of a sequence number that count messages; the others tell this process's transactions from those of others.
const SEQUENCE_MASK: u32 = (1 << 20) - 1;

fn sequence_number(message: usize) -> u32 {
    process_tag() | (message as u32 & SEQUENCE_MASK)
}

/// Whether an event was caused by a transaction of this process.
pub(super) fn is_own(sequence: u32) -> bool {
    sequence & !SEQUENCE_MASK == process_tag()
}

/// A random number in the upper bits that is not zero, which other programs use.
fn process_tag() -> u32 {
    static TAG: OnceLock<u32> = OnceLock::new();
    *TAG.get_or_init(|| ((RandomState::new().hash_one(0) as u32) | 1 << 31) & !SEQUENCE_MASK)
}
