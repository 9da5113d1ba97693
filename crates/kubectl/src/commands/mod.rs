//! The commands, one file each, and the table that finds them.

mod api_resources;
mod apply;
mod attach;
mod auth;
mod autoscale;
mod certificate;
mod cluster_info;
mod completion_script;
mod config;
mod container_streams;
mod copy;
mod create;
mod debug;
mod delete;
mod describe;
mod diff;
mod drain;
mod edit;
mod events;
mod exec;
mod explain;
mod expose;
mod get;
mod kuberc;
mod kustomize;
mod logs;
mod metadata_change;
mod new_pod;
mod patch;
mod plugin;
mod pod_eviction;
mod pod_selection;
mod port_forward;
mod proxy;
mod raw;
mod reconcile;
mod record;
mod replace;
mod rollout;
mod run_pod;
mod scale;
mod set;
mod taint;
mod top;
mod version;
mod wait;
mod wait_condition;
mod workload_generator;

use crate::{
    command_help, command_table, errors::CommandResult, output::write_out, session::Session, usage::run_parent_command,
};

/// Runs the command of a session.
pub fn run(session: &Session) -> CommandResult {
    session.flags.check_required()?;
    let path = session.command.path.strip_prefix("kubectl").unwrap_or_default().trim_start();
    match path {
        "" => {
            write_out(&command_help::help_text(session.command, &crate::plugins::list_for_help(session.command)));
            Ok(())
        }
        "options" => {
            write_out(&command_help::usage_text(session.command, &[]));
            Ok(())
        }
        "get" => get::run(session),
        "create" => create::run_files(session),
        "delete" => delete::run(session),
        "describe" => describe::run(session),
        "apply" => apply::run(session),
        "apply view-last-applied" => apply::run_view_last_applied(session),
        "apply set-last-applied" => apply::run_set_last_applied(session),
        "apply edit-last-applied" => apply::run_edit_last_applied(session),
        "label" => metadata_change::run_label(session),
        "annotate" => metadata_change::run_annotate(session),
        "config view" => config::run_view(session),
        "config current-context" => config::run_current_context(session),
        "config use-context" => config::run_use_context(session),
        "config get-contexts" => config::run_get_contexts(session),
        "config get-clusters" => config::run_get_names(session, "clusters"),
        "config get-users" => config::run_get_names(session, "users"),
        "config delete-context" => config::run_delete(session, "contexts", "context"),
        "config delete-cluster" => config::run_delete(session, "clusters", "cluster"),
        "config delete-user" => config::run_delete(session, "users", "user"),
        "config rename-context" => config::run_rename_context(session),
        "config set" => config::run_set(session),
        "config unset" => config::run_unset(session),
        "config set-cluster" => config::run_set_cluster(session),
        "config set-context" => config::run_set_context(session),
        "config set-credentials" => config::run_set_credentials(session),
        "run" => run_pod::run(session),
        "expose" => expose::run(session),
        "autoscale" => autoscale::run(session),
        "taint" => taint::run(session),
        "cordon" => drain::run_cordon(session, true),
        "uncordon" => drain::run_cordon(session, false),
        "drain" => drain::run_drain(session),
        "certificate" => {
            write_out(&command_help::help_text(session.command, &[]));
            Ok(())
        }
        "certificate approve" => certificate::run(session, true),
        "certificate deny" => certificate::run(session, false),
        "events" => events::run(session),
        "logs" => logs::run(session),
        "exec" => exec::run(session),
        "attach" => attach::run(session),
        "cp" => copy::run(session),
        "debug" => debug::run(session),
        "port-forward" => port_forward::run(session),
        "proxy" => proxy::run(session),
        "top node" => top::run_nodes(session),
        "top pod" => top::run_pods(session),
        "auth can-i" => auth::run_can_i(session),
        "auth whoami" => auth::run_whoami(session),
        "patch" => patch::run(session),
        "replace" => replace::run(session),
        "scale" => scale::run(session),
        "wait" => wait::run(session),
        "rollout history" => rollout::run_history(session),
        "rollout pause" => rollout::run_pause(session),
        "rollout restart" => rollout::run_restart(session),
        "rollout resume" => rollout::run_resume(session),
        "rollout status" => rollout::run_status(session),
        "rollout undo" => rollout::run_undo(session),
        "set env" => set::run_env(session),
        "set image" => set::run_image(session),
        "set resources" => set::run_resources(session),
        "set selector" => set::run_selector(session),
        "set serviceaccount" => set::run_service_account(session),
        "set subject" => set::run_subject(session),
        "version" => version::run(session),
        "api-resources" => api_resources::run_resources(session),
        "api-versions" => api_resources::run_versions(session),
        "plugin list" => plugin::run_list(session),
        "cluster-info" => cluster_info::run(session),
        "cluster-info dump" => cluster_info::run_dump(session),
        "kustomize" => kustomize::run(session),
        "kuberc view" => kuberc::run_view(session),
        "kuberc set" => kuberc::run_set(session),
        "completion" => completion_script::run(session),
        "explain" => explain::run(session),
        "diff" => diff::run(session),
        "edit" => edit::run(session),
        "auth reconcile" => reconcile::run(session),
        path if path.starts_with("create ") => create::run_generator(session, path.trim_start_matches("create ")),
        _ if !command_table::command_table().subcommands(&session.command.path).is_empty() => {
            run_parent_command(session)
        }
        other => crate::bail!("{other} is not supported by this kubectl"),
    }
}
