//! Answers each question that a reader gets with a function of the stage that the question belongs to.
//!
//! Above the stages, because it calls functions of several. Only reader processes and tests run it.

use std::fs::File;
use std::io;

use crate::hotspot;
use crate::jit;
use crate::probes::fast::slots;
use crate::probes::{allocators, image};
use crate::proc::build_id;
use crate::reader::{self, Job, encode};
use crate::symbolize::Lookup;
use crate::types;
use crate::unwind;
use crate::v8;

/// Serves as a reader until its standard input is closed.
pub fn serve() -> io::Result<()> {
    reader::serve_standard_input(&mut answers())
}

/// A function that answers questions, one after the other.
pub(crate) fn answers() -> impl FnMut(Job, &[u8], Vec<File>) -> Vec<u8> {
    let mut lookup = Lookup::default();
    move |job, question, files| match job {
        Job::Identify => {
            let file = files.first();
            let build = file.map(|file| build_id::read_build(&object::ReadCache::new(file)));
            encode(&build.unwrap_or_default())
        }
        Job::Needs => image::answer(&files),
        Job::Inspect => allocators::answer(question, &files),
        Job::Fingerprint => unwind::answer_fingerprint(question, &files),
        Job::Table => unwind::answer_table(question, &files),
        Job::Facts => lookup.answer_facts(question, files),
        Job::Names => lookup.answer_names(question, files),
        Job::Units => lookup.answer_units(question, files),
        Job::Slots => slots::answer(question, &files),
        Job::HotSpot => hotspot::answer(question, &files),
        Job::Types => types::answer(question, &files, |file| lookup.passed(file)),
        Job::Classes => types::answer_classes(question, &files),
        Job::GeneratedCode => jit::answer(question, &files),
        Job::V8 => v8::answer(&files),
    }
}

/// A reader in a thread of this process, for tests that ask questions.
#[cfg(test)]
pub(crate) fn reader_of_tests() -> reader::Reader {
    reader::Reader::in_thread(|| Box::new(answers()))
}
