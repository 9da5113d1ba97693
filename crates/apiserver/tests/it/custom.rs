//! Custom resources at the server's door: definitions that come, change and go, and their objects in every version.

mod admission;
mod churn;
mod conversion;
mod explain;
mod life;
mod schemas;
mod world;
