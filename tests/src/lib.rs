//! Helpers that drive the shipped binary.
