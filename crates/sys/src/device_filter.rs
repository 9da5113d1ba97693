//! Which devices the processes of a control group of version 2 may use: a BPF program, where version 1 has files.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// A rule; the last one that matches counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFilterRule {
    /// Allows, or denies.
    pub allow: bool,
    /// Block devices (true) or character devices; none: both.
    pub is_block: Option<bool>,
    /// Major number; none: all.
    pub major: Option<u32>,
    /// Minor number; none: all.
    pub minor: Option<u32>,
    /// Some of [`DEVICE_MAKE`], [`DEVICE_READ`] and [`DEVICE_WRITE`].
    pub access: u32,
}

/// A node may be made.
pub const DEVICE_MAKE: u32 = 1;
/// The device may be read.
pub const DEVICE_READ: u32 = 2;
/// The device may be written.
pub const DEVICE_WRITE: u32 = 4;
const ALL_ACCESS: u32 = DEVICE_MAKE | DEVICE_READ | DEVICE_WRITE;

const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;
const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;
/// Opcodes of BPF.
const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const AND_VALUE: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_UNEQUAL: u8 = 0x55;
const JUMP_EQUAL: u8 = 0x15;
const EXIT: u8 = 0x95;

/// An instruction as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BpfInstruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// Lets the processes of a group use the devices of the rules only; without a matching rule nothing is allowed.
pub fn set_device_filter(group: BorrowedFd<'_>, rules: &[DeviceFilterRule]) -> io::Result<()> {
    let program = load_program(&compile_rules(rules))?;
    attach_program(group, &program)
}

fn instruction(code: u8, target: u8, source: u8, offset: i16, value: i32) -> BpfInstruction {
    BpfInstruction { code, registers: source << 4 | target, offset, value }
}

/// Registers: 2 the type, 3 the access, 4 the major and 5 the minor number.
fn compile_rules(rules: &[DeviceFilterRule]) -> Vec<BpfInstruction> {
    let mut program = vec![
        instruction(LOAD_WORD, 2, 1, 0, 0),
        instruction(MOVE, 3, 2, 0, 0),
        instruction(AND_VALUE, 2, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, 3, 0, 0, 16),
        instruction(LOAD_WORD, 4, 1, 4, 0),
        instruction(LOAD_WORD, 5, 1, 8, 0),
    ];
    for rule in rules.iter().rev() {
        let mut checks = Vec::new();
        if let Some(is_block) = rule.is_block {
            checks.push(vec![(JUMP_UNEQUAL, 2, if is_block { BLOCK } else { CHARACTER })]);
        }
        if rule.access & ALL_ACCESS != ALL_ACCESS {
            // Allowed if nothing else is wanted; denied if something of it is wanted.
            let (mask, jump) =
                if rule.allow { (!rule.access & ALL_ACCESS, JUMP_UNEQUAL) } else { (rule.access, JUMP_EQUAL) };
            checks.push(vec![(MOVE, 6, 3), (AND_VALUE, 6, mask as i32), (jump, 6, 0)]);
        }
        for (register, number) in [(4, rule.major), (5, rule.minor)] {
            if let Some(number) = number {
                checks.push(vec![(JUMP_UNEQUAL, register, number as i32)]);
            }
        }
        let checks: Vec<(u8, u8, i32)> = checks.into_iter().flatten().collect();
        for (index, (code, register, value)) in checks.iter().enumerate() {
            // A check that fails goes on behind the two instructions of the verdict.
            let offset = (checks.len() - index + 1) as i16;
            program.push(match *code {
                MOVE => instruction(MOVE, *register, *value as u8, 0, 0),
                AND_VALUE => instruction(AND_VALUE, *register, 0, 0, *value),
                jump => instruction(jump, *register, 0, offset, *value),
            });
        }
        program.push(instruction(MOVE_VALUE, 0, 0, 0, i32::from(rule.allow)));
        program.push(instruction(EXIT, 0, 0, 0, 0));
        if checks.is_empty() {
            // The kernel refuses instructions that are never reached.
            return program;
        }
    }
    program.push(instruction(MOVE_VALUE, 0, 0, 0, 0));
    program.push(instruction(EXIT, 0, 0, 0, 0));
    program
}

#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct AttachAttributes {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

#[allow(unsafe_code)]
fn load_program(instructions: &[BpfInstruction]) -> io::Result<OwnedFd> {
    let attributes = LoadAttributes {
        program_type: PROG_TYPE_CGROUP_DEVICE,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Apache".as_ptr() as u64,
        ..Default::default()
    };
    let size = size_of::<LoadAttributes>();
    // SAFETY: the attributes and what they point to live until the call returns, and their size is theirs.
    let descriptor = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attributes, size) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

#[allow(unsafe_code)]
fn attach_program(group: BorrowedFd<'_>, program: &OwnedFd) -> io::Result<()> {
    let attributes = AttachAttributes {
        target: group.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        attach_type: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    let size = size_of::<AttachAttributes>();
    // SAFETY: the attributes live until the call returns, and their size is theirs.
    let done = unsafe { libc::syscall(libc::SYS_bpf, PROG_ATTACH, &raw const attributes, size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd, path::Path, process::Command};

    use super::*;

    #[test]
    fn only_listed_devices_can_be_used() {
        let tree = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let Some(tree) = tree.into_iter().find(|tree| tree.join("cgroup.controllers").exists()) else {
            return skip::skip_test("no control groups of version 2");
        };
        let group = tree.join(format!("ferry-device-filter-{}", std::process::id()));
        if fs::create_dir(&group).is_err() {
            return skip::skip_test("control groups need root");
        }
        let allow = |major, minor, access| DeviceFilterRule {
            allow: true,
            is_block: Some(false),
            major: Some(major),
            minor: Some(minor),
            access,
        };
        let nothing = DeviceFilterRule { allow: false, is_block: None, major: None, minor: None, access: ALL_ACCESS };
        let rules = [nothing, allow(1, 3, ALL_ACCESS), allow(1, 5, DEVICE_READ)];
        let opened = fs::File::open(&group).unwrap();
        let set = set_device_filter(opened.as_fd(), &rules);
        let run = |command: &str| {
            let script = format!("echo $$ > {}/cgroup.procs && {command}", group.display());
            Command::new("sh").args(["-c", &script]).output().unwrap().status.success()
        };
        let found = set.as_ref().map(|()| {
            ["echo x > /dev/null", "head -c1 < /dev/zero", "echo x > /dev/zero", "head -c1 < /dev/urandom"].map(run)
        });
        fs::remove_dir(&group).unwrap();
        if set.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
            return skip::skip_test("this process may not load BPF programs");
        }
        assert_eq!(found.unwrap(), [true, true, false, false]);
    }
}
