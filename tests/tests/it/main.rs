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
mod pod_fields;
mod python_exec;
mod readme;
mod refusals;
mod restart;
mod sample_controller;
mod services;
mod streams;
mod walk;
