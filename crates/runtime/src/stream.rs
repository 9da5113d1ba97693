//! Streams to a container: the SPDY/3.1 connection that a CRI runtime's exec and attach URLs speak. (contract only)
