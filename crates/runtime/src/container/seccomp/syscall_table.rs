//! Numbers of system calls by name and architecture.

use std::{collections::HashMap, sync::LazyLock};

static TABLE: LazyLock<HashMap<&'static str, [Option<u32>; 3]>> = LazyLock::new(|| {
    let lines = include_str!("syscalls.txt").lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let mut fields = line.split(' ');
        let name = fields.next()?;
        let mut number = || fields.next().and_then(|field| field.parse().ok());
        Some((name, [number(), number(), number()]))
    };
    lines.filter_map(row).collect()
});

/// An architecture of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallArchitecture {
    /// x86-64.
    X86_64,
    /// 32-bit programs on x86.
    X86,
    /// 64-bit ARM.
    Aarch64,
}

impl SyscallArchitecture {
    /// The architecture of this program.
    pub fn native() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The kernel's number of the architecture.
    pub fn audit_number(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The number of a system call; none if there is no such call.
    pub fn syscall_number(self, name: &str) -> Option<u32> {
        TABLE.get(name)?[self as usize]
    }

    /// The highest number that is known.
    pub fn highest_number(self) -> u32 {
        TABLE.values().filter_map(|numbers| numbers[self as usize]).max().unwrap_or(0)
    }
}
