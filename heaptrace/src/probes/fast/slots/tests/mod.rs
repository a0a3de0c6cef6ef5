//! Tests of slots: of this process's own files, and of files made here.

mod crafted;
mod hostile;
mod real;
mod search;
mod stubs;
