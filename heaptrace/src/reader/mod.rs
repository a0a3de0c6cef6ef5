//! The reader: a process without rights that parses untrusted files.
//!
//! No stage of the flow; imports none. The tracer, which has all rights, opens such a file but does not parse it. It sends
//! the descriptor to a reader: the same program, started anew, with limited memory and time, unable to open files or start
//! processes. If a reader fails, the file is recorded as unreadable and another reader continues. The stages define
//! questions and answers; this folder must know them only as bytes.

mod budget;
mod channel;
mod client;
mod confine;
mod message;
mod open_handler;
mod process;
mod serve;
mod unreadable;

pub use budget::{Budget, FileOwner, Unread};
pub use channel::MAX_FILES;
pub use client::{Limits, Reader};
pub use message::{Job, decode, encode};
pub use open_handler::{offer, offered_by_name};
pub use process::{is_asked_to_read, served_by, serves, while_none_starts};
pub use serve::{Handler, serve_standard_input};
pub use unreadable::Unreadable;
