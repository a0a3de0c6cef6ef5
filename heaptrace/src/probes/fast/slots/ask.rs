//! Asks a reader for the slots of a file.
//!
//! Stage: probes. The tracer's side; must not parse files.

use std::fs::File;

use super::answer::{Question, Slots};
use crate::reader::{Job, Reader, Unreadable};

/// The slots through which a file calls functions with these names. `path` names the file in reports.
pub fn slots_of(
    reader: &mut Reader,
    path: &str,
    file: &File,
    names: &[&str],
) -> Result<Slots, Unreadable> {
    let question = Question {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let slots: Slots = reader.ask(Job::Slots, &question, path, &[file])?;
    slots
        .checked(names.len(), length)
        .ok_or(Unreadable::Nonsense)
}
