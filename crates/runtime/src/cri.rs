//! A client for the Container Runtime Interface, version 1. (contract only)
