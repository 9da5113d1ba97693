//! The record of addresses in files, one per address, named after it; in the reference plug-in's form.
//!
//! Guarantees: an address is never recorded twice, because a record appears under its name at once and complete or not at
//! all; concurrent calls wait for each other by a lock that the kernel drops when a process dies.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::address_range::AddressRange;
use crate::plugin_error::PluginError;

/// The container and interface that addresses belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressOwner {
    pub container: String,
    pub interface: String,
}

impl AddressOwner {
    fn record(&self) -> String {
        format!("{}\r\n{}", self.container, self.interface)
    }

    fn owns(&self, record: &str) -> bool {
        let mut lines = record.lines().map(str::trim);
        let (container, interface) = (lines.next().unwrap_or_default(), lines.next());
        // Records of old versions name no interface.
        container == self.container && interface.is_none_or(|interface| interface == self.interface)
    }
}

/// The directory of a network's records.
#[derive(Clone, Debug)]
pub struct AddressStore {
    directory: PathBuf,
}

/// The directory while this process has the lock.
pub struct LockedStore {
    directory: PathBuf,
    _lock: File,
}

impl AddressStore {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Result<LockedStore, PluginError> {
        let failed = |error: io::Error| PluginError::io(self.directory.display(), &error);
        fs::create_dir_all(&self.directory).map_err(failed)?;
        let lock = File::options().create(true).truncate(false).write(true).open(self.directory.join("lock"));
        let lock = lock.map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(LockedStore { directory: self.directory.clone(), _lock: lock })
    }
}

impl LockedStore {
    /// Takes `wanted`, or the next free address behind the one that was taken last.
    pub fn allocate(
        &self,
        ranges: &[AddressRange],
        index: usize,
        wanted: Option<IpAddr>,
        attachment: &AddressOwner,
    ) -> Result<(AddressRange, IpAddr), PluginError> {
        let in_ranges = |ip: IpAddr| ranges.iter().find(|range| range.contains(ip));
        let known = self.addresses_of(attachment)?;
        if let Some(duplicate) = known.into_iter().find(|ip| in_ranges(*ip).is_some()) {
            return Err(PluginError::mismatch(format!(
                "{duplicate} has been allocated to {}, duplicate allocation is not allowed",
                attachment.container
            )));
        }
        if let Some(ip) = wanted {
            let range = in_ranges(ip).filter(|range| range.gateway != ip);
            let range =
                range.ok_or_else(|| PluginError::invalid(format!("requested IP address {ip} is not available")))?;
            return match self.record(ip, attachment)? {
                true => Ok((range.clone(), ip)),
                false => Err(PluginError::mismatch(format!("requested IP address {ip} is not available in range set"))),
            };
        }
        let last = self.last_reserved(index);
        let first_range = last.and_then(|last| ranges.iter().position(|range| range.contains(last))).unwrap_or(0);
        let order = ranges.iter().cycle().skip(first_range).take(ranges.len());
        for (position, range) in order.enumerate() {
            let after = last.filter(|_| position == 0);
            for ip in range.addresses_after(after) {
                if self.record(ip, attachment)? {
                    self.remember_last(index, ip)?;
                    return Ok((range.clone(), ip));
                }
            }
        }
        let shown: Vec<String> = ranges.iter().map(|range| range.subnet.to_string()).collect();
        Err(PluginError::mismatch(format!("no IP addresses available in range set: {}", shown.join(", "))))
    }

    /// Records an address; false if it is taken.
    fn record(&self, ip: IpAddr, attachment: &AddressOwner) -> Result<bool, PluginError> {
        let path = self.directory.join(file_name(ip));
        let failed = |error: io::Error| PluginError::io(path.display(), &error);
        if path.exists() {
            return Ok(false);
        }
        // Complete under another name first: a crash leaves no empty record.
        let draft = self.directory.join("draft");
        let mut file = File::create(&draft).map_err(failed)?;
        file.write_all(attachment.record().as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
        match fs::hard_link(&draft, &path) {
            Ok(()) => fs::remove_file(&draft).map(|()| true).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn last_reserved(&self, index: usize) -> Option<IpAddr> {
        fs::read_to_string(self.last_file(index)).ok()?.trim().parse().ok()
    }

    fn remember_last(&self, index: usize, ip: IpAddr) -> Result<(), PluginError> {
        let path = self.last_file(index);
        fs::write(&path, ip.to_string()).map_err(|error| PluginError::io(path.display(), &error))
    }

    fn last_file(&self, index: usize) -> PathBuf {
        self.directory.join(format!("last_reserved_ip.{index}"))
    }

    /// The addresses of an attachment.
    pub fn addresses_of(&self, attachment: &AddressOwner) -> Result<Vec<IpAddr>, PluginError> {
        Ok(self.records()?.into_iter().filter(|(_, record)| attachment.owns(record)).map(|(ip, _)| ip).collect())
    }

    /// Gives back the addresses of an attachment.
    pub fn release(&self, attachment: &AddressOwner) -> Result<(), PluginError> {
        self.release_where(|record| attachment.owns(record))
    }

    /// Gives back the addresses of all but these attachments.
    pub fn release_others(&self, valid: &[AddressOwner]) -> Result<(), PluginError> {
        self.release_where(|record| !valid.iter().any(|attachment| attachment.owns(record)))
    }

    fn release_where(&self, is_released: impl Fn(&str) -> bool) -> Result<(), PluginError> {
        for (ip, record) in self.records()? {
            if is_released(&record) {
                let path = self.directory.join(file_name(ip));
                fs::remove_file(&path).map_err(|error| PluginError::io(path.display(), &error))?;
            }
        }
        Ok(())
    }

    fn records(&self) -> Result<Vec<(IpAddr, String)>, PluginError> {
        let failed = |error: io::Error| PluginError::io(self.directory.display(), &error);
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(ip) = name.to_str().and_then(address_of_file) {
                let record = fs::read_to_string(Path::new(&self.directory).join(&name)).map_err(failed)?;
                records.push((ip, record));
            }
        }
        Ok(records)
    }
}

fn file_name(ip: IpAddr) -> String {
    ip.to_string()
}

fn address_of_file(name: &str) -> Option<IpAddr> {
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::host_local::address_range::RangeConfig;

    fn ranges(subnet: &str) -> Vec<AddressRange> {
        vec![AddressRange::from_config(&RangeConfig { subnet: subnet.into(), ..Default::default() }).unwrap()]
    }

    fn attachment(name: &str) -> AddressOwner {
        AddressOwner { container: name.into(), interface: "eth0".into() }
    }

    #[test]
    fn concurrent_calls_take_different_addresses() {
        let directory = tempfile::tempdir().unwrap();
        let store = AddressStore::new(directory.path().join("net"));
        let taken: Vec<IpAddr> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..50)
                .map(|number| {
                    let store = store.clone();
                    scope.spawn(move || {
                        let locked = store.lock().unwrap();
                        locked.allocate(&ranges("10.0.0.0/24"), 0, None, &attachment(&format!("c{number}"))).unwrap().1
                    })
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let unique: std::collections::HashSet<_> = taken.iter().collect();
        assert_eq!(unique.len(), 50);
    }

    #[test]
    fn released_address_is_used_last() {
        let directory = tempfile::tempdir().unwrap();
        let store = AddressStore::new(directory.path().into());
        let locked = store.lock().unwrap();
        let take = |name: &str| {
            locked.allocate(&ranges("10.0.0.0/29"), 0, None, &attachment(name)).map(|(_, ip)| ip.to_string())
        };
        assert_eq!(take("a").unwrap(), "10.0.0.2");
        assert!(take("a").unwrap_err().message.contains("duplicate allocation is not allowed"));
        locked.release(&attachment("a")).unwrap();
        let rest: Vec<String> = ["b", "c", "d", "e", "f"].map(|name| take(name).unwrap()).into();
        assert_eq!(rest, ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.2"]);
        assert!(take("g").unwrap_err().message.contains("no IP addresses available"));
        locked.release_others(&[attachment("b")]).unwrap();
        assert_eq!(locked.records().unwrap().len(), 1);
    }
}
