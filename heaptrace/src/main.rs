//! The `heaptrace` binary: parse, run, exit code.

fn main() {}
