//! Kernel interfaces in network namespaces of their own; skipped without root.

mod nftables;
