//! Capabilities, system call filters and labels of a container.

use std::path::Path;

use sys::credentials::{bounding_capabilities, capability_bit};
use tonic::Status;

use crate::{
    container::{
        seccomp::{SeccompError, SeccompProfile, compile_profile, default_profile},
        spec::seccomp_program::SeccompProgram,
    },
    cri::types::*,
};

/// Capabilities of containers that ask for nothing.
const DEFAULT_CAPABILITIES: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];
/// The largest profile.
const LARGEST_PROFILE: u64 = 4 << 20;
/// Exists where the kernel has AppArmor.
const APPARMOR: &str = "/sys/kernel/security/apparmor";
/// Exists where SELinux is on.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// The security context of a container.
pub fn security_context(config: &ContainerConfig) -> LinuxContainerSecurityContext {
    config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default()
}

/// The sets of capabilities: bounding, effective, inheritable, permitted, ambient.
pub fn capabilities(context: &LinuxContainerSecurityContext) -> Result<[u64; 5], Status> {
    let possible = bounding_capabilities().map_err(|error| Status::internal(format!("capabilities: {error}")))?;
    if context.privileged {
        return Ok([possible, possible, 0, possible, 0]);
    }
    let wanted = context.capabilities.clone().unwrap_or_default();
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
    let mut set = bits(&DEFAULT_CAPABILITIES.map(String::from))?;
    if wanted.add_capabilities.iter().any(is_all) {
        set = possible;
    }
    if wanted.drop_capabilities.iter().any(is_all) {
        set = 0;
    }
    let named = |list: &[String]| bits(&list.iter().filter(|name| !is_all(name)).cloned().collect::<Vec<_>>());
    let ambient = named(&wanted.add_ambient_capabilities)?;
    set |= named(&wanted.add_capabilities)? | ambient;
    set &= !named(&wanted.drop_capabilities)?;
    let ambient = ambient & set;
    Ok([set, set, ambient, set, ambient])
}

fn bits(names: &[String]) -> Result<u64, Status> {
    let bit = |name: &String| {
        capability_bit(name).ok_or_else(|| Status::invalid_argument(format!("unknown capability {name:?}")))
    };
    names.iter().try_fold(0, |set, name| Ok(set | bit(name)?))
}

/// Whether a container gets the default filter.
pub fn wants_default_filter(context: &LinuxContainerSecurityContext) -> bool {
    let kind = context.seccomp.as_ref().map(|profile| profile.profile_type);
    !context.privileged && kind == Some(ProfileType::RuntimeDefault as i32)
}

/// The filter of a container that does not get the default one.
pub fn chosen_filter(context: &LinuxContainerSecurityContext) -> Result<Option<SeccompProgram>, Status> {
    let Some(profile) = context.seccomp.as_ref().filter(|_| !context.privileged) else { return Ok(None) };
    if profile.profile_type != ProfileType::Localhost as i32 {
        return Ok(None);
    }
    let path = Path::new(&profile.localhost_ref);
    let failed = |error: std::io::Error| {
        Status::invalid_argument(format!("seccomp profile {:?} cannot be read: {error}", profile.localhost_ref))
    };
    if std::fs::metadata(path).map_err(failed)?.len() > LARGEST_PROFILE {
        return Err(Status::invalid_argument(format!("seccomp profile {:?} is too large", profile.localhost_ref)));
    }
    let parsed = SeccompProfile::from_json(&std::fs::read(path).map_err(failed)?).map_err(invalid)?;
    compile_profile(&parsed).map(Some).map_err(invalid)
}

/// Compiles the default filter.
pub fn default_filter(bounding: u64) -> Result<SeccompProgram, Status> {
    compile_profile(&default_profile(bounding)).map_err(invalid)
}

fn invalid(error: SeccompError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The AppArmor profile; refused where it cannot be had.
pub fn apparmor_profile(context: &LinuxContainerSecurityContext) -> Result<Option<String>, Status> {
    let Some(profile) = context.apparmor.as_ref().filter(|_| !context.privileged) else { return Ok(None) };
    let is_enabled = Path::new(APPARMOR).is_dir();
    match ProfileType::try_from(profile.profile_type) {
        Ok(ProfileType::Localhost) if is_enabled => Ok(Some(profile.localhost_ref.clone())),
        Ok(ProfileType::Localhost) => Err(Status::invalid_argument("apparmor is not supported")),
        Ok(ProfileType::RuntimeDefault) if is_enabled => {
            Err(Status::unimplemented("this runtime has no default AppArmor profile; name one with type Localhost"))
        }
        _ => Ok(None),
    }
}

/// Refuses labels where SELinux is on: file systems of containers are not labelled.
pub fn check_selinux(context: &LinuxContainerSecurityContext) -> Result<(), Status> {
    let wanted = context.selinux_options.as_ref().is_some_and(|options| *options != SeLinuxOption::default());
    match wanted && Path::new(SELINUX).exists() {
        true => Err(Status::unimplemented("SELinux labels are not supported by this runtime")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_comes_before_single_capabilities() {
        let check = |add: &[&str], drop: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
            let capabilities =
                Capability { add_capabilities: owned(add), drop_capabilities: owned(drop), ..Default::default() };
            let context = LinuxContainerSecurityContext { capabilities: Some(capabilities), ..Default::default() };
            super::capabilities(&context).map(|sets| sys::credentials::capability_names(sets[0]))
        };
        assert_eq!(check(&[], &[]).unwrap().len(), DEFAULT_CAPABILITIES.len());
        assert_eq!(check(&["NET_ADMIN"], &["ALL"]).unwrap(), ["CAP_NET_ADMIN".to_owned()].into());
        assert!(!check(&["ALL"], &["cap_chown"]).unwrap().contains("CAP_CHOWN"));
        assert!(check(&["NONSENSE"], &[]).is_err());
    }
}
