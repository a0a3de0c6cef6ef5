//! Reads a data file into a profile.
//!
//! Stage: profile. The file is not trusted. For any bytes, the result is the profile up to the last whole
//! chunk with a warning, or one clear error.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write};
use std::path::Path;

use prost::Message as _;

use super::chunk::{self, ChunkError, Kind, Window, read_up_to, u32_at};
use super::error::DataFileError;
use super::format::{MAGIC, VERSION};
use super::write;
use crate::join::Update;
use crate::profile::blocks::{BlockList, BlockReading, WantedBlocks};
use crate::profile::budget::Budget;
use crate::profile::history::History;
use crate::profile::model::{Profile, RunEnd, RunInfo, Snapshot};
use crate::profile::range::Following;
use crate::profile::symbols::Symbols;
use crate::profile::wire::{End, Start, WireError, merge};
use crate::text;

/// Bytes before the first chunk.
const HEAD: usize = MAGIC.len() + 4;

/// Nanoseconds between the time that was asked for and the one that is shown, about which there is no warning.
const NEAR: u64 = 100_000_000;

/// How a data file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Reads the state so many nanoseconds into the run: up to the update that is nearest to that time, with names
    /// that were written later.
    pub until: u64,
    /// Restricts the profile to what happened since so many nanoseconds into the run: since the update that is nearest to that time.
    pub from: Option<u64>,
    /// Most memory for its contents; without it, the limit depends on the length of the file.
    pub max_memory: Option<u64>,
    /// Whether the history of each site is kept.
    pub with_history: bool,
    /// Most periods of the history; by default as many as a search for leaks needs.
    pub periods: Option<usize>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            until: u64::MAX,
            from: None,
            max_memory: None,
            with_history: false,
            periods: None,
        }
    }
}

/// The contents of a data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The profile of the run.
    pub profile: Profile,
    /// Names of its locations, if the recorder had the time to look them up.
    pub symbols: Option<Symbols>,
    /// Every update, in the order of time.
    pub snapshots: Vec<Snapshot>,
    /// The history of each site, if it was asked for.
    pub history: Option<History>,
    /// Its blocks one by one, if they were asked for and the file has any.
    pub blocks: Option<BlockList>,
    /// Warnings for every report about it, one sentence each.
    pub warnings: Vec<String>,
    /// Whether the file has bytes that its writer did not write. A file that was cut off because its writer
    /// was killed is not damaged.
    pub is_damaged: bool,
}

/// Reads a data file.
pub fn read(path: &Path) -> Result<Recording, DataFileError> {
    open(path)?.read(ReadOptions::default())
}

/// An open data file, before it is read.
#[derive(Debug)]
pub struct DataFile {
    file: File,
    name: String,
    was_read: Cell<bool>,
    /// The blocks to read, if single blocks are wanted.
    blocks: Option<WantedBlocks>,
}

/// Opens a data file.
pub fn open(path: &Path) -> Result<DataFile, DataFileError> {
    let name = text::escape(&path.to_string_lossy()).into_owned();
    match File::open(path) {
        Ok(file) => Ok(DataFile {
            file,
            name,
            was_read: Cell::new(false),
            blocks: None,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DataFileError::Missing { name })
        }
        Err(source) => Err(DataFileError::Read { name, source }),
    }
}

impl DataFile {
    /// Reads single blocks, too.
    pub fn with_blocks(mut self, wanted: WantedBlocks) -> Self {
        self.blocks = Some(wanted);
        self
    }

    /// Reads it, or a part of it.
    pub fn read(&self, options: ReadOptions) -> Result<Recording, DataFileError> {
        let mut file = &self.file;
        if self.was_read.replace(true) {
            file.seek(SeekFrom::Start(0))
                .map_err(|source| DataFileError::again(&self.name, source))?;
        }
        let blocks = self.blocks.clone();
        read_with_blocks(BufReader::new(file), &self.name, options, blocks)
    }

    /// Writes a copy of it that has these names instead of its own. Everything else is copied byte by byte, up to its end, or to where it
    /// was cut off.
    pub fn copy_with_names(&self, symbols: &Symbols, out: &mut dyn Write) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::new(file);
        let mut names = Some(write::encode_names(symbols)?);
        out.write_all(&read_up_to(&mut reader, HEAD)?)?;
        while let Ok(Some(chunk)) = chunk::read_packed(&mut reader) {
            match chunk.kind {
                Kind::Symbols => continue,
                Kind::End => out.write_all(&names.take().unwrap_or_default())?,
                Kind::Start | Kind::Update | Kind::Blocks => {}
            }
            out.write_all(&chunk.bytes)?;
        }
        out.write_all(&names.unwrap_or_default())
    }
}

/// Whether a file begins as data files do.
pub fn is_data_file(mut file: impl Read) -> bool {
    read_up_to(&mut file, MAGIC.len()).is_ok_and(|head| head == MAGIC)
}

/// Reads a data file from anything; errors call it `name`.
pub fn read_from(
    reader: impl Read,
    name: &str,
    options: ReadOptions,
) -> Result<Recording, DataFileError> {
    read_with_blocks(reader, name, options, None)
}

/// The same, with single blocks if some are wanted.
pub(in crate::profile) fn read_with_blocks(
    mut reader: impl Read,
    name: &str,
    options: ReadOptions,
    blocks: Option<WantedBlocks>,
) -> Result<Recording, DataFileError> {
    let until = options.until;
    let mut budget = Budget::new(options.max_memory);
    let info = read_start(&mut reader, name, &mut budget)?;
    let mut reading = Reading {
        recording: Recording {
            profile: Profile::new(info),
            symbols: None,
            snapshots: Vec::new(),
            history: options
                .with_history
                .then(|| options.periods.map_or_else(History::default, History::with)),
            blocks: None,
            warnings: Vec::new(),
            is_damaged: false,
        },
        budget,
        window: Window::default(),
        until,
        range: options.from.map(Following::new),
        shown: None,
        duration_ns: None,
        update: None,
        symbols: None,
        blocks: blocks.map(BlockReading::new),
        is_shown: false,
    };
    let incomplete = loop {
        match reading.next(&mut reader) {
            Ok(Some((kind, payload))) => match reading.take(kind, &payload) {
                Ok(()) if reading.duration_ns.is_some() => break None,
                Ok(()) => {}
                Err(why) => break Some(Incomplete::damaged(why)),
            },
            Ok(None) => break Some(Incomplete::cut("it has no end")),
            Err(error @ ChunkError::Cut) => break Some(Incomplete::cut(error)),
            Err(error) => break Some(Incomplete::damaged(error)),
        }
    };
    let (mut budget, symbols) = (reading.budget, reading.recording.symbols.as_ref());
    // These are not whole, so they are dropped.
    (reading.update, reading.symbols) = (None, None);
    budget.forget();
    budget
        .check_outputs(&reading.recording.profile, symbols)
        .map_err(|why| DataFileError::TooLarge {
            name: name.to_owned(),
            why: why.to_string(),
        })?;
    let mut recording = reading.recording;
    let blocks = reading.blocks.map(BlockReading::finish);
    recording.blocks = blocks.filter(|it| !it.processes.is_empty());
    if let Some(range) = reading.range {
        let restricted = range.restrict(&mut recording.profile);
        restricted.ok_or_else(|| nothing_between(name, &recording, options))?;
    }
    let new_ids = recording.profile.settle();
    if let Some(history) = &mut recording.history {
        history.renumber(&new_ids);
    }
    let shown = reading.shown.unwrap_or(u64::MAX);
    let is_later = |it: &Snapshot| it.elapsed_ns > shown;
    let first = recording.snapshots.first().map(|it| it.elapsed_ns);
    if let Some(first) = first.filter(|first| *first > until.saturating_add(NEAR)) {
        let first = text::duration(first);
        recording.warnings.push(format!(
            "{name} has nothing before {first} into the run, and shows that time; \
             `heaptrace report --snapshots` lists all times"
        ));
    }
    if recording.snapshots.last().is_some_and(is_later) {
        recording.profile.end = RunEnd::WentOn;
    } else if let Some(duration_ns) = reading.duration_ns {
        recording.profile.duration_ns = duration_ns;
        recording.profile.end = RunEnd::Orderly;
    }
    match incomplete {
        // The user did not ask for the end.
        _ if recording.profile.end == RunEnd::WentOn => {}
        Some(Incomplete { why, is_damaged }) => {
            recording.is_damaged = is_damaged;
            recording.warnings.push(format!(
                "{name} is incomplete ({why}): it shows the state {} into the run",
                text::duration(recording.profile.duration_ns)
            ));
        }
        None => {
            if !matches!(
                chunk::decode(&mut reader, &mut Window::default(), &mut budget),
                Ok(None)
            ) {
                recording.is_damaged = true;
                recording.warnings.push(format!(
                    "{name} has more bytes after its end; they are ignored"
                ));
            }
        }
    }
    Ok(recording)
}

/// The error for a range without two updates.
fn nothing_between(name: &str, recording: &Recording, options: ReadOptions) -> DataFileError {
    let from = options.from.unwrap_or_default();
    let until = match recording.snapshots.last() {
        Some(last) => options.until.min(last.elapsed_ns),
        None => options.until,
    };
    let nearest = text::duration(recording.profile.duration_ns);
    DataFileError::NothingBetween {
        name: name.to_owned(),
        why: if from >= until {
            format!("the run was seen until {}", text::duration(until))
        } else {
            format!("the snapshot at {nearest} is the nearest to both ends")
        },
    }
}

/// Why reading ended before the end.
struct Incomplete {
    why: String,
    is_damaged: bool,
}

impl Incomplete {
    /// The file ends early, as after its writer was killed.
    fn cut(why: impl ToString) -> Self {
        Self {
            why: why.to_string(),
            is_damaged: false,
        }
    }

    fn damaged(why: impl ToString) -> Self {
        Self {
            why: why.to_string(),
            is_damaged: true,
        }
    }
}

/// Reads the head of the file and its first chunk.
fn read_start(
    reader: &mut impl Read,
    name: &str,
    budget: &mut Budget,
) -> Result<RunInfo, DataFileError> {
    let name = name.to_owned();
    let head = match read_up_to(reader, HEAD) {
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
    if head.len() < HEAD {
        return Err(no_start(ChunkError::Cut.to_string()));
    }
    match u32_at(&head, MAGIC.len()) {
        1..=VERSION => {}
        0 => return Err(no_start("it has no format version".to_owned())),
        version => return Err(DataFileError::Newer { name, version }),
    }
    match chunk::decode(reader, &mut Window::default(), budget) {
        Ok(Some((Kind::Start, payload))) => Start::decode(payload.as_slice())
            .map_err(Into::into)
            .and_then(RunInfo::try_from)
            .map_err(|error| no_start(error.to_string())),
        Ok(Some(_)) => Err(no_start("its first chunk is missing".to_owned())),
        Ok(None) => Err(no_start(ChunkError::Cut.to_string())),
        Err(error) => Err(no_start(error.to_string())),
    }
}

/// A recording while it is read, with the messages that are not whole yet.
struct Reading {
    recording: Recording,
    budget: Budget,
    window: Window,
    /// The time whose nearest update is the last one that is folded.
    until: u64,
    /// The part of the run that is wanted.
    range: Option<Following>,
    /// The time of the last update that was folded.
    shown: Option<u64>,
    /// How long the run took, after its end was read.
    duration_ns: Option<u64>,
    update: Option<Update>,
    symbols: Option<Symbols>,
    /// Single blocks, if they are wanted.
    blocks: Option<BlockReading>,
    /// Whether the last update was folded.
    is_shown: bool,
}

impl Reading {
    /// The next chunk that is wanted.
    fn next(&mut self, reader: &mut impl Read) -> Result<Option<(Kind, Vec<u8>)>, ChunkError> {
        let are_blocks_wanted = self.is_shown && self.blocks.is_some();
        loop {
            match chunk::read_packed(reader)? {
                None => return Ok(None),
                Some(chunk) if chunk.kind == Kind::Blocks && !are_blocks_wanted => {}
                Some(chunk) => {
                    return chunk::unpack(&chunk, &mut self.window, &mut self.budget).map(Some);
                }
            }
        }
    }

    fn take(&mut self, kind: Kind, payload: &[u8]) -> Result<(), String> {
        let in_parts = self.update.is_some() && kind != Kind::Update
            || self.symbols.is_some() && kind != Kind::Symbols;
        if in_parts {
            return Err("it is damaged: a part is missing".to_owned());
        }
        if let Some(blocks) = self.blocks.as_mut().filter(|_| kind != Kind::Blocks) {
            blocks.complete(self.shown.unwrap_or(0)); // All blocks of an update follow it at once.
        }
        match kind {
            Kind::Start => Err("it is damaged: it begins twice".to_owned()),
            Kind::Update => self.take_update(payload),
            Kind::Symbols => self.take_symbols(payload),
            Kind::Blocks => self.take_blocks(payload),
            Kind::End => {
                let end = End::decode(payload).map_err(damaged)?;
                self.duration_ns = Some(end.duration_ns);
                Ok(())
            }
        }
    }

    fn take_update(&mut self, payload: &[u8]) -> Result<(), String> {
        let mut update = self.update.take().unwrap_or_default();
        let known = (!self.is_past()).then_some(&*self.recording.profile.sites);
        if merge::update(payload, &mut update, known, &mut self.budget).map_err(damaged)? {
            self.update = Some(update);
            return Ok(());
        }
        self.recording.snapshots.push(Snapshot {
            elapsed_ns: update.elapsed_ns,
            totals: update.totals,
        });
        self.is_shown = !self.is_past() && self.is_nearest_yet(update.elapsed_ns);
        if !self.is_shown {
            self.budget.skip_update();
            return Ok(());
        }
        self.shown = Some(update.elapsed_ns);
        let profile = &mut self.recording.profile;
        let before = profile.sites.len();
        self.budget.keep_update(&update);
        if let Some(history) = &mut self.recording.history {
            self.budget.keep_history(history.record(&update));
        }
        let mut changed = Vec::new();
        if let Some(range) = &mut self.range {
            self.budget.keep_range(range.before(profile, &update));
            changed.extend(update.processes.iter().map(|it| it.0));
        }
        profile
            .fold(update)
            .map_err(|why| format!("it is damaged: {why}"))?;
        if let Some(range) = &mut self.range {
            range.after(profile, &changed);
        }
        self.budget.keep_sites(profile.sites.len() - before);
        Ok(())
    }

    /// Whether an update was passed over, as all later ones are: what changed in them need not be known.
    fn is_past(&self) -> bool {
        self.shown.is_some() && !self.is_shown
    }

    /// Whether an update is nearer to the time that was asked for than all updates before it.
    fn is_nearest_yet(&self, elapsed_ns: u64) -> bool {
        let after = elapsed_ns.saturating_sub(self.until);
        let nearest = self.shown.map(|shown| self.until.abs_diff(shown));
        after == 0 || nearest.is_none_or(|nearest| after < nearest)
    }

    fn take_blocks(&mut self, payload: &[u8]) -> Result<(), String> {
        let Some(blocks) = &mut self.blocks else {
            return Ok(());
        };
        let (changes, more) = merge::blocks(payload, &self.budget).map_err(damaged)?;
        let name = changes.owner.command.len() as u64;
        let stacks = self.recording.profile.stacks.len();
        blocks.add(changes, more, stacks).map_err(|stack| {
            let stack = stack.0;
            format!(
                "it is damaged: a block refers to stack entry {stack}, but there are only {stacks}"
            )
        })?;
        let (images, kept) = blocks.size();
        let kept = kept as u64 * BlockReading::BLOCK + images as u64 * BlockReading::IMAGE;
        self.budget.keep_blocks(kept, name).map_err(damaged)
    }

    fn take_symbols(&mut self, payload: &[u8]) -> Result<(), String> {
        let mut symbols = self.symbols.take().unwrap_or_default();
        if merge::symbols(payload, &mut symbols, &mut self.budget).map_err(damaged)? {
            self.symbols = Some(symbols);
        } else {
            self.budget.keep_symbols();
            self.recording.symbols = Some(symbols);
        }
        Ok(())
    }
}

fn damaged(why: impl Into<WireError>) -> String {
    match why.into() {
        // The limit is no damage.
        WireError::Exceeded(why) => why.to_string(),
        why => format!("it is damaged: {why}"),
    }
}
