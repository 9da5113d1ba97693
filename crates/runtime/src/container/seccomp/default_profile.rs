//! The default profile, the same as containerd's.

use super::profile::{ArgumentCondition, SeccompProfile, SyscallRule};

/// Flags of `clone` that make namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
const AF_VSOCK: u64 = 40;
const ENOSYS: u32 = 38;
/// Values of `personality` that are harmless.
const PERSONALITIES: [u64; 5] = [0, 8, 0x20000, 0x20008, 0xffff_ffff];

/// Returns the profile for a container with this bounding set of capabilities.
pub fn default_profile(bounding: u64) -> SeccompProfile {
    let has = |name: &str| sys::credentials::capability_bit(name).is_some_and(|bit| bounding & bit != 0);
    let architecture = if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" };
    let mut names = Vec::new();
    let mut included = true;
    for line in include_str!("default_profile.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('@') {
            Some(section) => included = section == architecture || (section.starts_with("CAP_") && has(section)),
            None if included => names.extend(line.split_whitespace().map(str::to_owned)),
            None => {}
        }
    }
    let allow = |name: &str, condition| SyscallRule {
        names: vec![name.into()],
        action: "SCMP_ACT_ALLOW".into(),
        errno_ret: None,
        args: vec![condition],
    };
    let condition = |op: &str, value| ArgumentCondition { index: 0, value, value_two: 0, op: op.into() };
    let mut syscalls = vec![SyscallRule { names, action: "SCMP_ACT_ALLOW".into(), ..Default::default() }];
    syscalls.push(allow("socket", condition("SCMP_CMP_NE", AF_VSOCK)));
    syscalls.extend(PERSONALITIES.map(|value| allow("personality", condition("SCMP_CMP_EQ", value))));
    if !has("CAP_SYS_ADMIN") {
        syscalls.push(allow("clone", condition("SCMP_CMP_MASKED_EQ", NEW_NAMESPACES)));
        // Programs fall back to clone, whose flags can be looked at.
        syscalls.push(SyscallRule {
            names: vec!["clone3".into()],
            action: "SCMP_ACT_ERRNO".into(),
            errno_ret: Some(ENOSYS),
            args: Vec::new(),
        });
    }
    SeccompProfile {
        default_action: "SCMP_ACT_ERRNO".into(),
        architectures: vec!["SCMP_ARCH_X86_64".into(), "SCMP_ARCH_X86".into()],
        syscalls,
        ..Default::default()
    }
}
