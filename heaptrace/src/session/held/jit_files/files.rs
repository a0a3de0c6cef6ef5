//! The files of a process with names of its generated code: opens them, and reads what is new in them.
//!
//! Part of the session. Must not know what the files contain.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::jit::{Format, Piece, Position, read_piece};
use crate::join::GeneratedCode;
use crate::open::{NotOpened, Root, Written};
use crate::proc::identity::{self, ProcessIdentity};
use crate::proc::processes;
use crate::reader::Reader;
use crate::sys;

/// Most bytes of a perf map.
const MAX_MAP_BYTES: u64 = 256 << 20;

/// Most jitdump files of a process.
const MAX_DUMPS: usize = 4;

/// Clocks and the start of a process may differ by so much.
const TOLERANCE: Duration = Duration::from_millis(50);

/// The files of a process.
pub(super) struct Files {
    place: Option<Place>,
    map: Option<Tail>,
    dumps: Vec<Tail>,
    /// Whether the perf map was refused before.
    is_refused: bool,
}

/// Where a process writes its perf map. The folder stays open, so that the file can be opened after the end of the process.
struct Place {
    root: Root,
    path: PathBuf,
    written: Written,
}

/// A file that is read as it grows.
struct Tail {
    file: Arc<File>,
    name: String,
    format: Format,
    next: Position,
    /// Its length when it was read last.
    length: u64,
    is_refused: bool,
}

impl Files {
    /// The files of a process, none of which is open yet.
    pub(super) fn of(code: GeneratedCode) -> Self {
        Self {
            place: Place::of(code),
            map: None,
            dumps: Vec::new(),
            is_refused: false,
        }
    }

    /// Adds jitdump files.
    pub(super) fn add(&mut self, dumps: Vec<Arc<File>>) {
        for file in dumps {
            if self.dumps.len() < MAX_DUMPS {
                let name = "a jitdump file".to_owned();
                self.dumps.push(Tail::new(file, name, Format::Jitdump));
            }
        }
    }

    /// Whether there is a file that can be read.
    pub(super) fn are_open(&self) -> bool {
        let mut all = self.map.iter().chain(&self.dumps);
        all.any(|tail| !tail.is_refused)
    }

    /// Opens the perf map, if there is one.
    pub(super) fn open(&mut self, refuse: &mut impl FnMut(&str, String)) {
        let Some(place) = self.place.as_ref().filter(|_| self.map.is_none()) else {
            return;
        };
        let name = place.path.display().to_string();
        match place.root.open_written(&place.path, &place.written) {
            Ok(opened) => {
                let file = Arc::new(opened.file);
                self.map = Some(Tail::new(file, name, Format::PerfMap));
            }
            // A process with the same id left it behind.
            Err(NotOpened::Older) => {}
            Err(reason) if reason.is_gone() => {}
            Err(reason) => {
                if !std::mem::replace(&mut self.is_refused, true) {
                    refuse(&name, reason.to_string());
                }
            }
        }
    }

    /// Reads what is new, until `send` returns false.
    pub(super) fn read(
        &mut self,
        reader: &mut Reader,
        send: &mut impl FnMut(Piece) -> bool,
        refuse: &mut impl FnMut(&str, String),
    ) {
        for tail in self.map.iter_mut().chain(&mut self.dumps) {
            tail.read(reader, send, refuse);
        }
    }
}

impl Place {
    fn of(code: GeneratedCode) -> Option<Self> {
        let root = Root::of_process(code.pid).ok()?;
        let ProcessIdentity { own_pid, users } = identity::of(code.pid)?;
        let start = sys::ticks_to_ns(processes::start_time(code.pid)?);
        // Another process can have the id by now.
        let tolerance = TOLERANCE.as_nanos() as u64;
        if start.abs_diff(code.start_time_ns) > tolerance {
            return None;
        }
        let age = Duration::from_nanos(sys::boot_time().saturating_sub(start)) + TOLERANCE;
        let started = SystemTime::now().checked_sub(age)?;
        let started = started.duration_since(UNIX_EPOCH).ok()?;
        Some(Self {
            root,
            path: PathBuf::from(format!("/tmp/perf-{own_pid}.map")),
            written: Written {
                by: users,
                most_bytes: MAX_MAP_BYTES,
                from_second: started.as_secs(),
            },
        })
    }
}

impl Tail {
    fn new(file: Arc<File>, name: String, format: Format) -> Self {
        Self {
            file,
            name,
            format,
            next: Position::default(),
            length: 0,
            is_refused: false,
        }
    }

    fn read(
        &mut self,
        reader: &mut Reader,
        send: &mut impl FnMut(Piece) -> bool,
        refuse: &mut impl FnMut(&str, String),
    ) {
        while !self.is_refused {
            let Ok(length) = self.file.metadata().map(|it| it.len()) else {
                return;
            };
            if length < self.next.offset {
                // It is written anew. Later functions replace earlier ones.
                self.next = Position::default();
            } else if length == self.length {
                return;
            }
            if self.format == Format::PerfMap && self.next.offset > MAX_MAP_BYTES {
                self.is_refused = true;
                return refuse(&self.name, NotOpened::LongerThan(MAX_MAP_BYTES).to_string());
            }
            let piece = read_piece(reader, &self.name, &self.file, self.format, self.next);
            let Ok(piece) = piece else {
                // The reader's client has recorded the reason.
                self.is_refused = true;
                return;
            };
            let is_all = piece.next == self.next || piece.next.offset == length;
            if is_all {
                self.length = length;
            }
            self.next = piece.next;
            if piece.is_refused {
                self.is_refused = true;
                refuse(
                    &self.name,
                    "it is not such a file, or is damaged".to_owned(),
                );
            }
            if !send(piece) {
                return;
            }
        }
    }
}
