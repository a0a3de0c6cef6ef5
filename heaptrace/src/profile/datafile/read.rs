//! Reads a data file back into a profile.
//!
//! Stage: profile. The file is not to be trusted: whatever its bytes are, the answer is the profile
//! up to the last whole chunk and a warning, or one clear error.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use prost::Message as _;

use super::chunk::{self, ChunkError, Kind, read_up_to, u32_at};
use super::{DataFileError, MAGIC, VERSION};
use crate::join::Update;
use crate::profile::wire::{End, Start, SymbolsMessage, UpdateMessage};
use crate::profile::{Profile, RunEnd, RunInfo, Snapshot, Symbols};
use crate::text;

/// What a data file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// What the run found.
    pub profile: Profile,
    /// Names of its locations, where the recorder had the time to look them up.
    pub symbols: Option<Symbols>,
    /// Every update, in the order of time.
    pub snapshots: Vec<Snapshot>,
    /// What the reader of any report on it should know: one sentence each.
    pub warnings: Vec<String>,
}

/// Reads a data file.
pub fn read(path: &Path) -> Result<Recording, DataFileError> {
    read_at(path, u64::MAX)
}

/// Reads a data file as it was so many nanoseconds into the run: up to the last update until then,
/// with names that were written later.
pub fn read_at(path: &Path, until: u64) -> Result<Recording, DataFileError> {
    let name = text::escape(&path.to_string_lossy()).into_owned();
    match File::open(path) {
        Ok(file) => read_until(BufReader::new(file), &name, until),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DataFileError::Missing { name })
        }
        Err(source) => Err(DataFileError::Read { name, source }),
    }
}

/// Whether a file begins as data files do.
pub fn is_data_file(mut file: impl Read) -> bool {
    read_up_to(&mut file, MAGIC.len()).is_ok_and(|head| head == MAGIC)
}

/// Reads a data file from anything; errors call it `name`.
pub fn read_from(reader: impl Read, name: &str) -> Result<Recording, DataFileError> {
    read_until(reader, name, u64::MAX)
}

fn read_until(mut reader: impl Read, name: &str, until: u64) -> Result<Recording, DataFileError> {
    let info = read_start(&mut reader, name)?;
    let mut reading = Reading {
        recording: Recording {
            profile: Profile::new(info),
            symbols: None,
            snapshots: Vec::new(),
            warnings: Vec::new(),
        },
        until,
        duration_ns: None,
        update: None,
        symbols: None,
    };
    let broken = loop {
        match chunk::decode(&mut reader) {
            Ok(Some((kind, payload))) => match reading.take(kind, &payload) {
                Ok(()) if reading.duration_ns.is_some() => break None,
                Ok(()) => {}
                Err(why) => break Some(why),
            },
            Ok(None) => break Some("it has no end".to_owned()),
            Err(error) => break Some(error.to_string()),
        }
    };
    let mut recording = reading.recording;
    recording.profile.settle();
    let went_on = |it: &Snapshot| it.elapsed_ns > until;
    if let Some(first) = recording.snapshots.first().filter(|it| went_on(it)) {
        let first = text::duration(first.elapsed_ns);
        recording
            .warnings
            .push(format!("{name} knows nothing before {first} into the run"));
    }
    if recording.snapshots.last().is_some_and(went_on) {
        recording.profile.end = RunEnd::WentOn;
    } else if let Some(duration_ns) = reading.duration_ns {
        recording.profile.duration_ns = duration_ns;
        recording.profile.end = RunEnd::Orderly;
    }
    match broken {
        // It is not the end that is asked for.
        _ if recording.profile.end == RunEnd::WentOn => {}
        Some(why) => recording.warnings.push(format!(
            "{name} is incomplete ({why}): this is what was known {} into the run",
            text::duration(recording.profile.duration_ns)
        )),
        None => {
            if !matches!(chunk::decode(&mut reader), Ok(None)) {
                recording
                    .warnings
                    .push(format!("{name} goes on after its end; the rest is ignored"));
            }
        }
    }
    Ok(recording)
}

/// Reads the head of the file and its first chunk.
fn read_start(reader: &mut impl Read, name: &str) -> Result<RunInfo, DataFileError> {
    let name = name.to_owned();
    let head = match read_up_to(reader, MAGIC.len() + 4) {
        Ok(head) => head,
        Err(source) => return Err(DataFileError::Read { name, source }),
    };
    if head.is_empty() {
        return Err(DataFileError::Empty { name });
    }
    let magic = &head[..head.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        return Err(DataFileError::NotADataFile { name });
    }
    let no_start = |why: String| DataFileError::NoStart {
        name: name.clone(),
        why,
    };
    if head.len() < MAGIC.len() + 4 {
        return Err(no_start(ChunkError::Cut.to_string()));
    }
    match u32_at(&head, MAGIC.len()) {
        VERSION => {}
        0 => return Err(no_start("it has no format version".to_owned())),
        version => return Err(DataFileError::Newer { name, version }),
    }
    match chunk::decode(reader) {
        Ok(Some((Kind::Start, payload))) => Start::decode(payload.as_slice())
            .map_err(Into::into)
            .and_then(RunInfo::try_from)
            .map_err(|error| no_start(error.to_string())),
        Ok(Some(_)) => Err(no_start("its first chunk is missing".to_owned())),
        Ok(None) => Err(no_start(ChunkError::Cut.to_string())),
        Err(error) => Err(no_start(error.to_string())),
    }
}

/// A recording, and what is not whole yet.
struct Reading {
    recording: Recording,
    /// Nothing later is folded.
    until: u64,
    /// How long the run took, once its end was read.
    duration_ns: Option<u64>,
    update: Option<Update>,
    symbols: Option<Symbols>,
}

impl Reading {
    fn take(&mut self, kind: Kind, payload: &[u8]) -> Result<(), String> {
        let in_parts = self.update.is_some() && kind != Kind::Update
            || self.symbols.is_some() && kind != Kind::Symbols;
        if in_parts {
            return Err("it is damaged: a part is missing".to_owned());
        }
        match kind {
            Kind::Start => Err("it is damaged: it begins twice".to_owned()),
            Kind::Update => self.take_update(payload),
            Kind::Symbols => self.take_symbols(payload),
            Kind::End => {
                let end = End::decode(payload).map_err(damaged)?;
                self.duration_ns = Some(end.duration_ns);
                Ok(())
            }
        }
    }

    fn take_update(&mut self, payload: &[u8]) -> Result<(), String> {
        let part = UpdateMessage::decode(payload).map_err(damaged)?;
        let more = part.more;
        let mut update = self.update.take().unwrap_or_default();
        part.merge_into(&mut update).map_err(damaged)?;
        if more {
            self.update = Some(update);
            return Ok(());
        }
        self.recording.snapshots.push(Snapshot {
            elapsed_ns: update.elapsed_ns,
            totals: update.totals,
        });
        if update.elapsed_ns > self.until {
            return Ok(());
        }
        self.recording.profile.fold(update).map_err(damaged)
    }

    fn take_symbols(&mut self, payload: &[u8]) -> Result<(), String> {
        let part = SymbolsMessage::decode(payload).map_err(damaged)?;
        let more = part.more;
        let mut symbols = self.symbols.take().unwrap_or_default();
        part.merge_into(&mut symbols);
        if more {
            self.symbols = Some(symbols);
        } else {
            self.recording.symbols = Some(symbols);
        }
        Ok(())
    }
}

fn damaged(why: impl std::fmt::Display) -> String {
    format!("it is damaged: {why}")
}
