//! Users, groups, capabilities and system call filters of the calling process, which has a single thread.

use std::{collections::BTreeSet, io};

use rustix::thread::{CapabilitySet, CapabilitySets};

/// Names of the capabilities by number.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Sets of capabilities, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Those that programs can have at all.
    pub bounding: u64,
    /// Those that count.
    pub effective: u64,
    /// Those that programs with file capabilities inherit.
    pub inheritable: u64,
    /// Those that can become effective.
    pub permitted: u64,
    /// Those that programs without file capabilities keep.
    pub ambient: u64,
}

/// Returns the bit of a capability by its name, with or without `CAP_`, in any case.
pub fn capability_bit(name: &str) -> Option<u64> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    CAPABILITIES.iter().position(|known| *known == name).map(|number| 1 << number)
}

/// Returns the names of a set, with `CAP_`.
pub fn capability_names(set: u64) -> BTreeSet<String> {
    let named = CAPABILITIES.iter().enumerate().filter(|(number, _)| set >> number & 1 == 1);
    named.map(|(_, name)| format!("CAP_{name}")).collect()
}

/// Returns all capabilities that the calling process can give.
pub fn bounding_capabilities() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let set = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapBnd:")?.trim(), 16).ok());
    set.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Drops capabilities from the bounding set; done while the process still has all.
pub fn limit_capabilities(bounding: u64) -> io::Result<()> {
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if bounding >> number & 1 == 1 {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel knows no more capabilities.
            Err(rustix::io::Errno::INVAL) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Sets users and groups; capabilities survive until [`set_capabilities`].
pub fn set_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    use rustix::fs::{Gid, Uid};
    rustix::thread::set_keep_capabilities(true)?;
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Sets all sets but the bounding one.
pub fn set_capabilities(sets: &Capabilities) -> io::Result<()> {
    let set = CapabilitySet::from_bits_retain;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: set(sets.effective),
            permitted: set(sets.permitted),
            inheritable: set(sets.inheritable),
        },
    )?;
    rustix::thread::clear_ambient_capability_set()?;
    for number in (0..64).filter(|number| sets.ambient >> number & 1 == 1) {
        rustix::thread::configure_capability_in_ambient_set(set(1 << number), true)?;
    }
    Ok(())
}

/// One instruction of a system call filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterInstruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if true.
    pub jump_true: u8,
    /// Instructions to skip if false.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// Installs a system call filter for this process and its descendants.
#[allow(unsafe_code)]
pub fn install_filter(program: &[FilterInstruction], flags: u64) -> io::Result<()> {
    let instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|one| libc::sock_filter { code: one.code, jt: one.jump_true, jf: one.jump_false, k: one.operand })
        .collect();
    let length = u16::try_from(instructions.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_ptr().cast_mut() };
    // SAFETY: the program and its instructions outlive the call; the kernel copies and checks them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_names_and_bits() {
        assert_eq!(capability_bit("CAP_CHOWN"), Some(1));
        assert_eq!(capability_bit("net_admin"), Some(1 << 12));
        assert_eq!(capability_bit("CAP_CHECKPOINT_RESTORE"), Some(1 << 40));
        assert_eq!(capability_bit("CAP_NONE"), None);
        assert_eq!(capability_names(0b1001).into_iter().collect::<Vec<_>>(), ["CAP_CHOWN", "CAP_FOWNER"]);
    }
}
