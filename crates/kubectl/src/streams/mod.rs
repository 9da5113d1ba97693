//! Streams to containers: remote commands and forwarded ports, over WebSocket with SPDY as the fallback, and the local
//! terminal.

mod command_connection;
mod remote_command;
mod terminal;
mod tunnel;
mod upgrade;

pub use remote_command::{CommandInput, OutputSink, RemoteCommand};
pub use terminal::{RawTerminal, TerminalSize, is_terminal_input, terminal_size};
pub use tunnel::open_tunnel;
