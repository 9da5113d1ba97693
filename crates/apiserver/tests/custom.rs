//! Custom resources at the server's door: definitions that come, change and go, and their objects in every version.

mod fixture;
mod wire;

#[path = "custom/admission.rs"]
mod admission;
#[path = "custom/churn.rs"]
mod churn;
#[path = "custom/conversion.rs"]
mod conversion;
#[path = "custom/explain.rs"]
mod explain;
#[path = "custom/life.rs"]
mod life;
#[path = "custom/schemas.rs"]
mod schemas;
#[path = "custom/world.rs"]
mod world;
