//! Notice of changes that other processes make to a table.

use std::io;

use rustix::net::{RecvFlags, netlink, sockopt};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    TableName,
    listing::list_tables,
    transaction::{SUBSYSTEM, is_own},
};
use crate::netlink::{NetlinkSocket, parse_attributes, read_text, split_datagram};

/// The multicast group of nf_tables, as a bit.
const NFNLGRP_NFTABLES: u32 = 1 << 6;
const NFT_MSG_NEWGEN: u16 = 15;
/// Room for events of our own transactions, which are read later.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Waits for changes of tables by other processes of this network namespace.
pub struct TableMonitor {
    socket: AsyncFd<std::os::fd::OwnedFd>,
    tables: Vec<TableName>,
}

impl TableMonitor {
    /// Watches `tables` from now on. Must be called within a tokio runtime.
    #[allow(unsafe_code)]
    pub fn new(tables: Vec<TableName>) -> io::Result<Self> {
        let socket = NetlinkSocket::subscribe(Some(netlink::NETFILTER), NFNLGRP_NFTABLES)?.into_fd();
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
        // SAFETY: an `OwnedFd` always returns the same descriptor, which stays open until it is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { socket, tables })
    }

    /// Waits until another process has changed one of the tables. After a loss of events, as large changes of our own
    /// cause, the tables are only looked for.
    pub async fn wait_for_foreign_change(&self) -> io::Result<()> {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let mut ready = self.socket.readable().await?;
            match rustix::net::recv(ready.get_inner(), &mut buffer[..], RecvFlags::DONTWAIT) {
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::NOBUFS) => {
                    drop(ready);
                    let existing = list_tables()?;
                    if !self.tables.iter().all(|table| existing.contains(table)) {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
                Ok((received, _)) => {
                    drop(ready);
                    if self.has_foreign_change(buffer.get(..received).unwrap_or_default())? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Forgets the events so far: a replacement of the tables answers all of them.
    pub fn discard_events(&self) {
        let mut buffer = vec![0; 256 * 1024];
        while !matches!(
            rustix::net::recv(self.socket.get_ref(), &mut buffer[..], RecvFlags::DONTWAIT),
            Err(rustix::io::Errno::AGAIN)
        ) {}
    }

    /// Reads events; true if another process changed a table.
    fn has_foreign_change(&self, datagram: &[u8]) -> io::Result<bool> {
        for message in split_datagram(datagram) {
            let message = message?;
            // Elements of a table that is deleted are reported without the request that did it.
            if message.sequence == 0 {
                continue;
            }
            if message.kind >> 8 != SUBSYSTEM || message.kind & 0xff == NFT_MSG_NEWGEN || is_own(message.sequence) {
                continue;
            }
            let family = message.body.first().copied();
            let attributes = parse_attributes(message.body, 4)?;
            let name = attributes.iter().find(|(kind, _)| *kind == 1).map(|(_, name)| read_text(name));
            let is_change =
                |table: &TableName| Some(table.family.number()) == family && Some(&table.name) == name.as_ref();
            if self.tables.iter().any(is_change) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
