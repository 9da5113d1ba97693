//! The end-to-end tests, in one binary, so that they share the cores.

mod aggregation;
mod authentication;
mod clients;
mod cluster_api;
mod definitions;
mod down;
mod handover;
mod initializers;
mod kube_apiserver;
mod kube_controller_manager;
mod kube_scheduler;
mod kubectl_tool;
mod local_path;
mod many_nodes;
mod metrics_api;
mod own_runtime;
mod pod_fields;
mod python_exec;
mod readme;
mod refusals;
mod restart;
mod runtime_images;
mod sample_controller;
mod services;
mod streams;
mod walk;
