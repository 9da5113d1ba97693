//! (contract only)
