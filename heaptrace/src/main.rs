//! The `heaptrace` binary: parses the command line, runs the action, and sets the exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use heaptrace::output::OutputError;
use heaptrace::{cli, jobs, reader, sys, text};

fn main() -> ExitCode {
    if reader::is_asked_to_read() {
        return match jobs::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    reader::serves();
    sys::ignore_file_size_signal();
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(stop) => return stop.print(),
    };
    match cli::run(invocation) {
        Ok(code) => code,
        // The reader of our output has closed the pipe: that is no error.
        Err(error) if closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!`, which panics where standard error is closed.
            let mut stderr = io::stderr().lock();
            // A message may have several lines, and may name a file whose name is hostile.
            for (index, line) in describe(&error).lines().enumerate() {
                let head = if index == 0 { "heaptrace: " } else { "" };
                let _ = writeln!(stderr, "{head}{}", text::escape(line));
            }
            cli::failure_code(&error)
        }
    }
}

/// Whether the error is a closed pipe: the reader of the output has ended.
fn closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = match cause.downcast_ref() {
            // Is transparent for the system's error, and so hides it from the chain.
            Some(OutputError::Io(io)) => Some(io),
            _ => cause.downcast_ref(),
        };
        io.is_some_and(|io: &io::Error| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// An error and its causes, without causes that an outer error contains already.
fn describe(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message.push_str(": ");
            message.push_str(&cause);
        }
    }
    message
}
