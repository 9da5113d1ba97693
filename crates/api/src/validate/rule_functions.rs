//! The rule tables, and the registry of the functions that they call.

use super::{RuleFunction, RuleFunctionWithArgument};

/// The joined rule tables.
const RULE_TABLES: &str = include_str!(concat!(env!("OUT_DIR"), "/rules.txt"));

/// Returns the rule tables; unit tests append the example of `docs/add-a-resource.md`.
pub(super) fn rule_tables() -> &'static str {
    #[cfg(test)]
    let joined =
        format!("{RULE_TABLES}\n{}", crate::schema::contributing_tests::example_lines("schema/rules/*.txt")).leak();
    #[cfg(not(test))]
    let joined = RULE_TABLES;
    joined
}

/// The word by which tables call a function: its name without the prefix `validate_` or `warn_`.
pub(super) fn function_word(name: &'static str) -> &'static str {
    name.strip_prefix("validate_").or_else(|| name.strip_prefix("warn_")).unwrap_or(name)
}

macro_rules! functions {
    ($kind:ty: $($($module:ident)::+: $($name:ident)*;)*) => {
        &[$({
            use super::$($module)::+::*;
            &[$((stringify!($name), $name as $kind)),*]
        }),*]
    };
}

/// The functions by module; tables call them by name without the `validate_` or `warn_` prefix.
pub(super) const RULE_FUNCTIONS: &[&[(&str, RuleFunction)]] = functions! { RuleFunction:
    rbac: validate_aggregation;
    admission: validate_rule_resources validate_group_and_version validate_mixed_case_kind validate_variable_name
        validate_audit_annotation validate_webhook_name validate_no_subresource validate_side_effects
        validate_review_versions validate_url_path validate_https_url validate_service_name validate_no_bundle;
    certificates: validate_signing_request validate_usages validate_requested_signer validate_request_conditions
        validate_issued_certificate validate_signer_name validate_bundle_is_named_after_signer
        validate_trust_bundle;
    config_map: validate_config_keys validate_secret_keys validate_credentials;
    cron: validate_schedule validate_time_zone;
    schema_formats: validate_unknown_formats;
    custom_resource_definition: validate_definition_name validate_definition validate_definition_change validate_kind_names
        validate_stored_versions validate_approval validate_domain_of_group;
    structural_schema: validate_alternatives validate_only_names validate_map_keys validate_explained_rule;
    device: validate_one_request validate_json_parameters validate_request_name validate_full_name
        validate_attribute_names validate_binding_conditions validate_taint_effect validate_device_statuses
        validate_uuid validate_reserved_for validate_pool_name validate_segmented_pool_name;
    endpoints: validate_changed_subsets validate_named_ports validate_slice_ports validate_changed_endpoints
        validate_slice_address validate_few_hints;
    flow_control: validate_verbs validate_flow_namespaces validate_flow_urls validate_hand_size;
    job: validate_generated_selector validate_job_selector validate_indexed_name validate_job_change
        validate_domain_path validate_container_of_template validate_exit_codes validate_success_counts
        validate_uncounted validate_nothing_uncounted validate_ends_after_start validate_done_indexes;
    metadata: validate_annotations validate_only_labels validate_known_finalizer validate_condition_types;
    ip_address: validate_ip validate_reachable validate_port_or_name validate_interface_address;
    network: validate_policy_peers validate_service_cidrs validate_ingress_rules validate_ingress_tls
        validate_plain_path validate_class_annotation;
    node: validate_taint_annotation validate_taints_of_node validate_node_amounts validate_features
        validate_pod_networks validate_node_change;
    pod::annotations: validate_pod_annotations validate_annotations_match_fields;
    pod::container: validate_init_names validate_debug_names validate_host_ports validate_own_host_ports
        validate_port_names validate_resize_policy validate_sleep validate_pod_host_ports validate_search_length
        validate_search_domain validate_file_of_volume;
    pod::resize: validate_pod_resize;
    pod::resources: validate_container_resources validate_pod_resources validate_pod_claims validate_overhead;
    pod::scheduling: validate_spread validate_label_keys validate_affinity;
    pod::security: validate_sysctls validate_no_sys_admin validate_host_process validate_user_name;
    pod::status: validate_container_transitions validate_claim_of_pod validate_pod_addresses;
    pod::update: validate_pod_change validate_pod_debug validate_annotations_kept;
    pod::volume: validate_volumes validate_created_claim_name validate_image_of_pod validate_mounted_volume
        validate_mount_points validate_device validate_device_paths validate_projected_paths validate_named_bundle
        validate_user_annotations;
    pod_certificate: validate_possession validate_pod_certificate_status;
    quota: validate_quota_amount validate_scopes validate_scope_fits validate_conflicting_scopes
        validate_scopes_kept validate_limit_type validate_limit_relations;
    resource_slice: validate_slice_place validate_slice_devices validate_slice_device validate_device_place
        validate_counter_names validate_one_value validate_policy_values validate_policy_range
        validate_resource_mapping;
    scheduling: validate_priority_name validate_distinct_tolerations validate_lease_strategy
        validate_candidate_versions;
    selector: validate_labels validate_kept_selector;
    service: validate_an_address validate_topology_annotations validate_service_ports validate_external_name
        validate_external_ips validate_node_ports validate_source_ranges validate_node_ports_allocated
        validate_external_traffic validate_ingress_points;
    service_addresses: validate_addresses validate_address_change;
    storage: validate_provisioner validate_parameters validate_topologies validate_attachment_metadata
        validate_error_message validate_topology_keys validate_drivers_kept validate_token_requests
        validate_decodable validate_migration_status;
    volume: validate_capacity validate_volume_affinity validate_no_recycled_root validate_volume_change
        validate_portal_length validate_named_portal_length validate_quobyte validate_foreign_option;
    volume_claim: validate_used_by_one_pod validate_claimed_size validate_same_source validate_source_group
        validate_claim_change validate_amount_of_storage validate_resize_statuses validate_allocated_resources;
    warnings: warn_lower_case warn_pod_name_part warn_zone_in_schedule warn_old_label_key warn_old_label
        warn_old_label_message warn_old_labels_of_map warn_old_labels_by_name warn_wrong_label_value
        warn_overlapping_paths container_warnings port_warnings warn_odd_ip warn_odd_cidr warn_odd_endpoints;
    workload: validate_selected_template validate_some_progress validate_daemon_selector
        validate_surge_or_unavailable validate_stateful_template validate_stateful_change
        validate_controller_selector validate_amount validate_at_most_all validate_not_none validate_scaling_to_zero
        validate_target_version validate_group_version validate_metric_source validate_name_of_container_resource;
};

/// The functions with an argument: `@name(argument)`.
pub(super) const RULE_FUNCTIONS_WITH_ARGUMENT: &[&[(&str, RuleFunctionWithArgument)]] = functions! { RuleFunctionWithArgument:
    rbac: validate_empty_but_for;
    certificates: validate_request_change;
    pod::env: validate_field_of_pod validate_resource_of_container;
    quota: validate_limited;
    volume: validate_iscsi_name;
    warnings: warn_fractions;
};
