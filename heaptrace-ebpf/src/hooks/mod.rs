//! The programs, one file per family of functions.

mod alloc;
mod arguments;
mod baseline;
mod done;
mod free;
mod lifecycle;
mod mapping;
mod next;
mod realloc;
mod returned;
mod walk;
