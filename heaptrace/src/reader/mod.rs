//! The reader: a process without rights that parses what others made.
//!
//! No stage of the flow; imports none. The tracer, which has every right, parses nothing that a traced process made. It
//! opens a file and hands the descriptor to a reader: the same program, started anew, which can open nothing, start
//! nothing, and take only so much memory and time. If it fails, the file is noted as unreadable and another reader goes
//! on. What is asked and answered belongs to the stages; this folder knows only questions and answers as bytes.

mod budget;
mod channel;
mod client;
mod confine;
mod handed;
mod message;
mod process;
mod serve;

pub use budget::{Budget, Owner, Unread};
pub use client::{Limits, Reader, Unreadable};
pub use handed::{offer, offered_by_name};
pub use message::{Job, decode, encode};
pub use process::{is_asked_to_read, served_by, serves};
pub use serve::{Handler, serve_standard_input};
