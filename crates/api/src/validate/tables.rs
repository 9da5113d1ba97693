//! The tables of rules, and the one list of the functions that they call.

use super::rules::{Function, WithArgument};

/// The tables, joined.
const RULES: &str = include_str!(concat!(env!("OUT_DIR"), "/rules.txt"));

/// The tables; those of unit tests have the example of `CONTRIBUTING.md` too.
pub(super) fn rules() -> &'static str {
    #[cfg(test)]
    let joined = format!("{RULES}\n{}", crate::schema::example::example_lines("schema/rules/*.txt")).leak();
    #[cfg(not(test))]
    let joined = RULES;
    joined
}

macro_rules! functions {
    ($kind:ty: $($($module:ident)::+: $($name:ident)*;)*) => {
        &[$({
            use super::$($module)::+::*;
            &[$((stringify!($name), $name as $kind)),*]
        }),*]
    };
}

/// The functions by module; tables call them by their names.
pub(super) const FUNCTIONS: &[&[(&str, Function)]] = functions! { Function:
    access: aggregation;
    admission: rule_resources group_and_version mixed_case_kind variable_name audit_annotation webhook_name no_subresource
        side_effects review_versions url_path https_url service_name no_bundle;
    certificates: signing_request usages requested_signer request_conditions issued_certificate signer_name
        bundle_is_named_after_signer trust_bundle;
    config: config_keys secret_keys credentials;
    cron: schedule time_zone;
    custom_formats: unknown_formats;
    custom_resource: definition_name definition definition_change kind_names stored_versions approval domain_of_group;
    custom_schema: alternatives only_names map_keys explained_rule;
    device: one_request json_parameters request_name full_name attribute_names binding_conditions taint_effect
        device_statuses uuid reserved_for pool_name segmented_pool_name;
    endpoints: changed_subsets named_ports slice_ports changed_endpoints slice_address few_hints;
    flow_control: verbs flow_namespaces flow_urls hand_size;
    job: generated_selector job_selector indexed_name job_change domain_path container_of_template exit_codes
        success_counts uncounted nothing_uncounted ends_after_start done_indexes;
    metadata: annotations only_labels known_finalizer condition_types;
    net: ip reachable port_or_name interface_address;
    network: policy_peers service_cidrs ingress_rules ingress_tls plain_path class_annotation;
    node: taint_annotation taints_of_node node_amounts features pod_networks node_change;
    pod::annotations: pod_annotations annotations_match_fields;
    pod::container: init_names debug_names host_ports own_host_ports port_names resize_policy sleep pod_host_ports
        search_length search_domain file_of_volume;
    pod::resize: pod_resize;
    pod::resources: container_resources pod_resources pod_claims overhead;
    pod::scheduling: spread label_keys affinity;
    pod::security: sysctls no_sys_admin host_process user_name;
    pod::status: container_transitions claim_of_pod pod_addresses;
    pod::update: pod_change pod_debug annotations_kept;
    pod::volume: volumes created_claim_name image_of_pod mounted_volume mount_points device device_paths
        projected_paths named_bundle user_annotations;
    pod_certificate: possession pod_certificate_status;
    quota: quota_amount scopes scope_fits conflicting_scopes scopes_kept limit_type limit_relations;
    resource_slice: slice_place slice_devices slice_device device_place counter_names one_value policy_values
        policy_range resource_mapping;
    scheduling: priority_name distinct_tolerations lease_strategy candidate_versions;
    selector: labels kept_selector;
    service: an_address topology_annotations service_ports external_name external_ips node_ports source_ranges
        node_ports_allocated external_traffic ingress_points;
    service_addresses: addresses address_change;
    storage: provisioner parameters topologies attachment_metadata error_message topology_keys drivers_kept
        token_requests decodable migration_status;
    volume: capacity volume_affinity no_recycled_root volume_change portal_length named_portal_length quobyte
        foreign_option;
    volume_claim: used_by_one_pod claimed_size same_source source_group claim_change amount_of_storage resize_statuses
        allocated_resources;
    warnings: lower_case pod_name_part zone_in_schedule old_label_key old_label old_label_message old_labels_of_map
        old_labels_by_name wrong_label_value overlapping_paths container_warnings port_warnings odd_ip odd_cidr
        odd_endpoints;
    workload: selected_template some_progress daemon_selector surge_or_unavailable stateful_template stateful_change
        controller_selector amount at_most_all not_none scaling_to_zero target_version group_version metric_source
        name_of_container_resource;
};

/// The functions that take an argument: `@name(argument)`.
pub(super) const WITH_ARGUMENT: &[&[(&str, WithArgument)]] = functions! { WithArgument:
    access: empty_but_for;
    certificates: request_change;
    pod::env: field_of_pod resource_of_container;
    quota: limited;
    volume: iscsi_name;
    warnings: fractions;
};
