//! The programs, one file per hook family.

mod alloc;
mod arguments;
mod empty;
mod free;
mod lifecycle;
mod mapping;
mod realloc;
mod returned;
