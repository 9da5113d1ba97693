//! Compiles a profile to a program of the kernel's packet filter.
//!
//! Each rule is a comparison of the call's number, comparisons of its arguments, and a return. The kernel remembers which
//! numbers are always allowed, so the length of the chain costs nothing for them.

use super::{
    SeccompError,
    profile::{ArgumentCondition, SeccompProfile, SyscallRule},
    syscall_table::SyscallArchitecture,
};
use crate::container::spec::seccomp_program::SeccompProgram;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const JUMP: u16 = 0x05;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

/// Offsets in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const ACTION_ALLOW: u32 = 0x7fff_0000;
const ACTION_ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Numbers with this bit are those of the x32 interface.
const X32: u32 = 0x4000_0000;
/// The kernel's limit.
const LONGEST_PROGRAM: usize = 4096;

type Instruction = (u16, u8, u8, u32);

/// Compiles a profile for this machine's architecture.
pub fn compile_profile(profile: &SeccompProfile) -> Result<SeccompProgram, SeccompError> {
    let Some(native) = SyscallArchitecture::native() else {
        return Err(SeccompError::Unsupported(std::env::consts::ARCH.into()));
    };
    let default = action(&profile.default_action, profile.default_errno_ret)?;
    let mut sections = vec![(native, compile_section(profile, native, default)?)];
    let has = |name: &str| profile.architectures.iter().any(|one| one == name);
    if native == SyscallArchitecture::X86_64 && has("SCMP_ARCH_X86") {
        let compat = SyscallArchitecture::X86;
        sections.push((compat, compile_section(profile, compat, default)?));
    }
    let mut program = vec![(LOAD, 0, 0, ARCHITECTURE)];
    for (architecture, section) in sections {
        // Conditional jumps are too short for a section.
        program.push((JUMP_EQUAL, 1, 0, architecture.audit_number()));
        program.push((JUMP, 0, 0, section.len() as u32));
        program.extend(section);
    }
    program.push((RETURN, 0, 0, default));
    if program.len() > LONGEST_PROGRAM {
        return Err(SeccompError::TooLong);
    }
    Ok(SeccompProgram { instructions: program, flags: flags(&profile.flags)? })
}

fn flags(names: &[String]) -> Result<u64, SeccompError> {
    let flag = |name: &String| match name.as_str() {
        "SECCOMP_FILTER_FLAG_TSYNC" => Ok(1),
        "SECCOMP_FILTER_FLAG_LOG" => Ok(2),
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => Ok(4),
        _ => Err(SeccompError::Unsupported(name.clone())),
    };
    names.iter().try_fold(0, |all, name| Ok(all | flag(name)?))
}

fn action(name: &str, errno: Option<u32>) -> Result<u32, SeccompError> {
    match name {
        "SCMP_ACT_ALLOW" => Ok(ACTION_ALLOW),
        "SCMP_ACT_ERRNO" => Ok(ACTION_ERRNO | errno.unwrap_or(EPERM) & 0xffff),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Ok(0),
        "SCMP_ACT_KILL_PROCESS" => Ok(0x8000_0000),
        "SCMP_ACT_TRAP" => Ok(0x0003_0000),
        "SCMP_ACT_TRACE" => Ok(0x7ff0_0000 | errno.unwrap_or(EPERM) & 0xffff),
        "SCMP_ACT_LOG" => Ok(0x7ffc_0000),
        _ => Err(SeccompError::Unsupported(name.into())),
    }
}

fn compile_section(
    profile: &SeccompProfile,
    architecture: SyscallArchitecture,
    default: u32,
) -> Result<Vec<Instruction>, SeccompError> {
    let mut program = vec![(LOAD, 0, 0, NUMBER)];
    if architecture == SyscallArchitecture::X86_64 {
        program.push((JUMP_GREATER_EQUAL, 0, 1, X32));
        program.push((RETURN, 0, 0, default));
    }
    // Calls that are newer than the profile look as on an old kernel, so that programs fall back.
    if default != ACTION_ALLOW {
        program.push((JUMP_GREATER, 0, 1, architecture.highest_number()));
        program.push((RETURN, 0, 0, ACTION_ERRNO | ENOSYS));
    }
    // Rules with conditions first: a later one without would hide them, as libseccomp has it too.
    let (conditional, plain): (Vec<_>, Vec<_>) = profile.syscalls.iter().partition(|rule| !rule.args.is_empty());
    for rule in conditional.into_iter().chain(plain) {
        let action = action(&rule.action, rule.errno_ret)?;
        if action == default {
            continue;
        }
        for number in rule.names.iter().filter_map(|name| architecture.syscall_number(name)) {
            compile_rule(&mut program, rule, number, action)?;
        }
    }
    program.push((RETURN, 0, 0, default));
    Ok(program)
}

fn compile_rule(
    program: &mut Vec<Instruction>,
    rule: &SyscallRule,
    number: u32,
    action: u32,
) -> Result<(), SeccompError> {
    let mut body = Vec::new();
    for condition in &rule.args {
        compile_condition(&mut body, condition)?;
    }
    let length = body.len() as u8;
    body.push((RETURN, 0, 0, action));
    // Failed conditions jump behind the return, where the number is loaded again.
    for (index, instruction) in body.iter_mut().enumerate().take(usize::from(length)) {
        let to_end = length - index as u8;
        if instruction.1 == FAIL {
            instruction.1 = to_end;
        }
        if instruction.2 == FAIL {
            instruction.2 = to_end;
        }
    }
    if !rule.args.is_empty() {
        body.push((LOAD, 0, 0, NUMBER));
    }
    program.push((JUMP_EQUAL, 0, body.len() as u8, number));
    program.extend(body);
    Ok(())
}

/// Stands for the jump to the end of a rule until its length is known.
const FAIL: u8 = 255;

/// Emits comparisons of the two halves of an argument; both must hold to go on.
fn compile_condition(body: &mut Vec<Instruction>, condition: &ArgumentCondition) -> Result<(), SeccompError> {
    if condition.index > 5 {
        return Err(SeccompError::Profile(format!("a system call has no argument {}", condition.index)));
    }
    let low = ARGUMENTS + 8 * condition.index;
    let high = low + 4;
    let halves = |value: u64| ((value >> 32) as u32, value as u32);
    let (value_high, value_low) = halves(condition.value);
    match condition.op.as_str() {
        "SCMP_CMP_EQ" => body.extend([
            (LOAD, 0, 0, high),
            (JUMP_EQUAL, 0, FAIL, value_high),
            (LOAD, 0, 0, low),
            (JUMP_EQUAL, 0, FAIL, value_low),
        ]),
        "SCMP_CMP_NE" => body.extend([
            (LOAD, 0, 0, high),
            (JUMP_EQUAL, 0, 2, value_high),
            (LOAD, 0, 0, low),
            (JUMP_EQUAL, FAIL, 0, value_low),
        ]),
        "SCMP_CMP_MASKED_EQ" => {
            let (wanted_high, wanted_low) = halves(condition.value_two);
            body.extend([
                (LOAD, 0, 0, high),
                (AND, 0, 0, value_high),
                (JUMP_EQUAL, 0, FAIL, wanted_high),
                (LOAD, 0, 0, low),
                (AND, 0, 0, value_low),
                (JUMP_EQUAL, 0, FAIL, wanted_low),
            ]);
        }
        "SCMP_CMP_GT" | "SCMP_CMP_GE" => {
            let last = if condition.op == "SCMP_CMP_GT" { JUMP_GREATER } else { JUMP_GREATER_EQUAL };
            body.extend([
                (LOAD, 0, 0, high),
                (JUMP_GREATER, 3, 0, value_high),
                (JUMP_EQUAL, 0, FAIL, value_high),
                (LOAD, 0, 0, low),
                (last, 0, FAIL, value_low),
            ]);
        }
        "SCMP_CMP_LT" | "SCMP_CMP_LE" => {
            let last = if condition.op == "SCMP_CMP_LT" { JUMP_GREATER_EQUAL } else { JUMP_GREATER };
            body.extend([
                (LOAD, 0, 0, high),
                (JUMP_GREATER, FAIL, 0, value_high),
                (JUMP_EQUAL, 0, 2, value_high),
                (LOAD, 0, 0, low),
                (last, FAIL, 0, value_low),
            ]);
        }
        other => return Err(SeccompError::Unsupported(other.into())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::seccomp::default_profile;

    /// Runs a program as the kernel does.
    fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [0u8; 64];
        data[..4].copy_from_slice(&number.to_le_bytes());
        data[4..8].copy_from_slice(&architecture.to_le_bytes());
        for (index, argument) in arguments.iter().enumerate() {
            data[16 + 8 * index..24 + 8 * index].copy_from_slice(&argument.to_le_bytes());
        }
        let (mut at, mut accumulator) = (0, 0u32);
        loop {
            let (code, yes, no, operand) = program[at];
            at += 1;
            let mut jump = |condition: bool| at += usize::from(if condition { yes } else { no });
            match code {
                LOAD => {
                    let bytes = &data[operand as usize..operand as usize + 4];
                    accumulator = u32::from_le_bytes(bytes.try_into().unwrap());
                }
                AND => accumulator &= operand,
                JUMP_EQUAL => jump(accumulator == operand),
                JUMP_GREATER => jump(accumulator > operand),
                JUMP_GREATER_EQUAL => jump(accumulator >= operand),
                JUMP => at += operand as usize,
                RETURN => return operand,
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn default_profile_decides_as_containerds() {
        let Some(native) = SyscallArchitecture::native() else { return };
        let program = compile_profile(&default_profile(0)).unwrap().instructions;
        let decide = |name: &str, first: u64| {
            let number = native.syscall_number(name).unwrap();
            run(&program, native.audit_number(), number, [first, 0, 0, 0, 0, 0])
        };
        let refused = ACTION_ERRNO | EPERM;
        for name in ["read", "openat", "execve", "futex", "ptrace", "writev"] {
            assert_eq!(decide(name, 0), ACTION_ALLOW, "{name}");
        }
        for name in ["mount", "reboot", "bpf", "keyctl", "add_key", "unshare", "kexec_load", "open_by_handle_at"] {
            assert_eq!(decide(name, 0), refused, "{name}");
        }
        assert_eq!(decide("clone", 0x11), ACTION_ALLOW);
        assert_eq!(decide("clone", 0x1000_0000), refused);
        assert_eq!(decide("clone3", 0), ACTION_ERRNO | ENOSYS);
        assert_eq!(decide("socket", 2), ACTION_ALLOW);
        assert_eq!(decide("socket", AF_VSOCK_TEST), refused);
        assert_eq!(decide("personality", 0xffff_ffff), ACTION_ALLOW);
        assert_eq!(decide("personality", 1), refused);
        assert_eq!(run(&program, native.audit_number(), 100_000, [0; 6]), ACTION_ERRNO | ENOSYS);
        assert_eq!(run(&program, 0x1234, 0, [0; 6]), refused);
        let admin = sys::credentials::capability_bit("SYS_ADMIN").unwrap();
        let program = compile_profile(&default_profile(admin)).unwrap().instructions;
        let number = native.syscall_number("mount").unwrap();
        assert_eq!(run(&program, native.audit_number(), number, [0; 6]), ACTION_ALLOW);
    }

    const AF_VSOCK_TEST: u64 = 40;

    #[test]
    fn comparisons_use_both_halves() {
        let Some(native) = SyscallArchitecture::native() else { return };
        let check = |op: &str, value: u64, argument: u64| {
            let text = format!(
                r#"{{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{{"names":["read"],"action":"SCMP_ACT_ALLOW",
                "args":[{{"index":1,"value":{value},"op":"{op}"}}]}}]}}"#
            );
            let program = compile_profile(&SeccompProfile::from_json(text.as_bytes()).unwrap()).unwrap().instructions;
            let number = native.syscall_number("read").unwrap();
            run(&program, native.audit_number(), number, [0, argument, 0, 0, 0, 0]) == ACTION_ALLOW
        };
        let values = [0, 1, 5, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0005, u64::MAX];
        for value in values {
            for argument in values {
                assert_eq!(check("SCMP_CMP_EQ", value, argument), argument == value, "{argument:#x} == {value:#x}");
                assert_eq!(check("SCMP_CMP_NE", value, argument), argument != value, "{argument:#x} != {value:#x}");
                assert_eq!(check("SCMP_CMP_GT", value, argument), argument > value, "{argument:#x} > {value:#x}");
                assert_eq!(check("SCMP_CMP_GE", value, argument), argument >= value, "{argument:#x} >= {value:#x}");
                assert_eq!(check("SCMP_CMP_LT", value, argument), argument < value, "{argument:#x} < {value:#x}");
                assert_eq!(check("SCMP_CMP_LE", value, argument), argument <= value, "{argument:#x} <= {value:#x}");
            }
        }
    }

    #[test]
    fn unknown_actions_are_refused_by_name() {
        let profile = SeccompProfile::from_json(br#"{"defaultAction":"SCMP_ACT_NOTIFY"}"#).unwrap();
        assert_eq!(compile_profile(&profile), Err(SeccompError::Unsupported("SCMP_ACT_NOTIFY".into())));
        assert!(SeccompProfile::from_json(b"{").is_err());
    }
}
