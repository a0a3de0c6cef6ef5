//! Requests the table of a file from a reader, and the reader's answer.
//!
//! Stage: unwind. The tracer first asks for the fingerprint of the file's unwind information, because most files have a
//! cached table. A fingerprint from a reader can't be trusted, so it is valid only among the files of one owner.

use std::fs::File;
use std::io;

use heaptrace_common::wire::PythonImage;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::build;
use super::cache_format;
use super::image::{Fingerprint, Image};
use super::table::{Limits, Table};
use super::unknown::UnknownRuntime;
use crate::python;
use crate::reader::{FileOwner, Job, Reader, Unreadable, decode, encode};

/// The fingerprint in the header of a table in an answer, where it is not used.
const NO_FINGERPRINT: Fingerprint = [0; 32];

/// What a reader answers about a file whose table may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identified {
    /// The hash of its unwind information and, in the tracer, of its owner.
    pub(super) fingerprint: Fingerprint,
    /// A runtime in it that is not known.
    pub(super) unknown: Option<UnknownRuntime>,
    /// The Python interpreter in it, in its short form.
    python: Option<[u32; python::IMAGE_WORDS]>,
}

impl Identified {
    /// The Python interpreter in the file, which need not wait for the table.
    pub(super) fn python(&self) -> Option<PythonImage> {
        self.python.and_then(python::from_words)
    }
}

/// Identifies a file by a hash of its unwind information and of its owner.
pub(super) fn identify(
    reader: &mut Reader,
    name: &str,
    file: &File,
    limits: &Limits,
) -> Result<Identified, String> {
    let question = limits.section_bytes;
    let answer: Result<Result<Identified, String>, _> =
        reader.ask(Job::Fingerprint, &question, name, &[file]);
    let identified = answer.map_err(|reason| reason.to_string())??;
    let owner = FileOwner::of(file);
    let mut hash = Sha256::new();
    hash.update(owner.user.to_le_bytes());
    hash.update(owner.device.to_le_bytes());
    hash.update(identified.fingerprint);
    Ok(Identified {
        fingerprint: hash.finalize().into(),
        ..identified
    })
}

/// The table of a file.
pub(super) fn table(
    reader: &mut Reader,
    name: &str,
    file: &File,
    limits: &Limits,
) -> Result<Table, String> {
    let question = limits.section_bytes;
    let answer = reader.ask_bytes(Job::Table, &question, name, &[file]);
    decode_answer(&answer.map_err(|reason| reason.to_string())?)
}

/// The table in an answer, or the reason why there is none.
pub(super) fn decode_answer(answer: &[u8]) -> Result<Table, String> {
    match answer.split_first() {
        Some((&TABLE, bytes)) => cache_format::decode(bytes, &NO_FINGERPRINT)
            .ok_or_else(|| Unreadable::Nonsense.to_string()),
        Some((&REASON, reason)) => Err(String::from_utf8_lossy(reason).into_owned()),
        _ => Err(Unreadable::Nonsense.to_string()),
    }
}

/// First byte of an answer: a table follows, or a reason.
const TABLE: u8 = 0;
const REASON: u8 = 1;

/// Answers with the fingerprint of a file's unwind information.
pub(crate) fn answer_fingerprint(question: &[u8], files: &[File]) -> Vec<u8> {
    let answered: Result<Identified, String> =
        with_image(question, files, |image, limits, file| {
            Ok(Identified {
                fingerprint: image.fingerprint(limits),
                unknown: UnknownRuntime::find(file, image),
                python: image.python.as_ref().map(python::to_words),
            })
        });
    encode(&answered)
}

/// Answers with the table of a file.
pub(crate) fn answer_table(question: &[u8], files: &[File]) -> Vec<u8> {
    let table = with_image(question, files, |image, limits, _| {
        build::from_image(image, limits).map_err(|error| error.to_string())
    });
    match table {
        Ok(table) => {
            let mut answer = vec![TABLE];
            answer.extend(cache_format::encode(&table, &NO_FINGERPRINT));
            answer
        }
        Err(reason) => {
            let mut answer = vec![REASON];
            answer.extend(reason.into_bytes());
            answer
        }
    }
}

fn with_image<T>(
    question: &[u8],
    files: &[File],
    work: impl FnOnce(&Image<'_>, &Limits, &object::ReadCache<&File>) -> Result<T, String>,
) -> Result<T, String> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput).to_string();
    let section_bytes: u64 = decode(question).ok_or_else(invalid)?;
    let limits = Limits {
        section_bytes,
        ..Limits::default()
    };
    let file = files.first().ok_or_else(invalid)?;
    let content = object::ReadCache::new(file);
    let image = Image::read(&content, limits.section_bytes).map_err(|error| error.to_string())?;
    work(&image, &limits, &content)
}
