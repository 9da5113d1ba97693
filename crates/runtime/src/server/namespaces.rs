//! The namespaces that a pod asks for.

use tonic::Status;

use crate::{
    container::spec::{IdMap, UserNamespaceSpec},
    cri::types::*,
};

/// The namespaces that a pod asks for.
pub(super) fn namespaces(config: &PodSandboxConfig) -> NamespaceOption {
    let linux = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    linux.and_then(|context| context.namespace_options.clone()).unwrap_or_default()
}

/// The user namespace that a pod asks for; none: that of the host.
pub(super) fn user_namespace(options: &NamespaceOption) -> Result<Option<UserNamespaceSpec>, Status> {
    let Some(users) = options.userns_options.as_ref().filter(|users| users.mode == NamespaceMode::Pod as i32) else {
        return Ok(None);
    };
    if options.network == NamespaceMode::Node as i32 {
        return Err(Status::unimplemented("user namespaces of pods in the host's network are not supported"));
    }
    let maps = |maps: &[IdMapping]| -> Vec<IdMap> {
        let maps = maps.iter();
        maps.map(|map| IdMap { container: map.container_id, host: map.host_id, length: map.length }).collect()
    };
    let spec = UserNamespaceSpec { uids: maps(&users.uids), gids: maps(&users.gids) };
    if spec.host_owner(0, 0).is_none() {
        return Err(Status::invalid_argument("the mappings of a user namespace must include user 0 and group 0"));
    }
    Ok(Some(spec))
}
