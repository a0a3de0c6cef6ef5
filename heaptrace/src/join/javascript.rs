//! Frames of JavaScript: what they point to in the memory of their process becomes functions and lines.
//!
//! Stage: join. Knows nothing of how V8 keeps its data.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heaptrace_common::wire::V8Frame;

use super::language_frames::{LanguageFrames, Place};
use super::recent::Recent;
use super::update::{Function, FunctionId, Language, Location, LocationId};
use crate::events::v8::V8Frames;
use crate::proc::contents;
use crate::v8::{self, Found, Layout, Lines, Memory, Script};

/// Most frames, functions and scripts of which the last use is remembered, each twice.
const MAX_FRAMES: usize = 1 << 16;
const MAX_FUNCTIONS: usize = 1 << 15;
const MAX_LINES: usize = 2 << 20;

/// The share of the time that reading may take, and the longest time at once.
const SHARE: u32 = 4;
const MOST_AT_ONCE: Duration = Duration::from_millis(200);

/// How long to wait before a frame is read once more.
const BEFORE_RETRY: Duration = Duration::from_millis(2);

/// Frames of stacks as they were read.
#[derive(Debug)]
pub struct ReadFrames {
    process: u64,
    id: u64,
    frames: Vec<Shown>,
}

impl ReadFrames {
    /// The number of their process.
    pub(super) fn process(&self) -> u64 {
        self.process
    }

    /// The bytes that it uses apart.
    pub fn bytes_apart(&self) -> usize {
        let functions = self.frames.iter().map(|it| 2 + it.len());
        functions.sum::<usize>() * size_of::<(FunctionId, u32)>()
    }
}

/// The functions of a frame, innermost first, each with its line, 0 if that is unknown. Empty for a function of V8's own.
type Shown = Arc<[(FunctionId, u32)]>;

/// A function as it was read.
#[derive(Clone, Debug)]
enum Known {
    BuiltIn,
    Of(FunctionId, Option<u32>, Arc<Script>),
}

/// The functions of all processes that run JavaScript. No two processes of a run have the same number, so those of ended ones
/// only grow old.
#[derive(Debug)]
pub(super) struct JavaScript {
    /// By process and frame.
    frames: Recent<(u64, V8Frame), Shown>,
    /// By process, and by what their frames name.
    functions: Recent<(u64, u64), Known>,
    /// By process, and by the pointers to the script and its source.
    lines: Recent<(u64, u64, u64), Arc<Lines>>,
    budget: Budget,
    /// Frames whose functions could not be read.
    unnamed: u64,
    /// Stacks that were not kept.
    not_kept: u64,
}

impl Default for JavaScript {
    fn default() -> Self {
        Self {
            frames: Recent::new(MAX_FRAMES),
            functions: Recent::new(MAX_FUNCTIONS),
            lines: Recent::new(MAX_LINES),
            budget: Budget::new(),
            unnamed: 0,
            not_kept: 0,
        }
    }
}

impl JavaScript {
    /// Reads the functions of frames that arrive. The process may end, or move them, at any time.
    pub(super) fn read(&mut self, event: &V8Frames, kept: &mut LanguageFrames) -> ReadFrames {
        let memory = OfProcess(contents::open(event.pid).ok());
        #[cfg(feature = "images")]
        v8::record(&memory, event.version, &event.frames);
        let layout = v8::layout(event.version);
        let begin = self.budget.begin();
        let frames = event.frames.iter().map(|frame| {
            let key = (event.process, *frame);
            if let Some(known) = self.frames.get(&key, |_| 1) {
                return known;
            }
            let layout = layout.as_ref().filter(|_| self.budget.is_left(begin));
            let shown = layout.and_then(|layout| {
                self.frame(&memory, layout, key, kept).or_else(|| {
                    // The collector may be moving it.
                    thread::sleep(BEFORE_RETRY);
                    self.frame(&memory, layout, key, kept)
                })
            });
            let Some(shown) = shown else {
                self.unnamed += 1;
                return [(kept.unknown(Language::JavaScript), 0)].into();
            };
            self.frames.insert(key, Arc::clone(&shown), 1);
            shown
        });
        let frames = frames.collect();
        self.budget.end(begin);
        ReadFrames {
            process: event.process,
            id: event.id,
            frames,
        }
    }

    /// Reads the functions of frames that a stack may have, and remembers them. Nothing is counted: a frame that the stack does not have
    /// need not have a name.
    pub(super) fn read_ahead(&mut self, event: &V8Frames, kept: &mut LanguageFrames) {
        let memory = OfProcess(contents::open(event.pid).ok());
        let Some(layout) = v8::layout(event.version) else {
            return;
        };
        let begin = self.budget.begin();
        for frame in &event.frames {
            let key = (event.process, *frame);
            if self.frames.get(&key, |_| 1).is_none()
                && self.budget.is_left(begin)
                && let Some(shown) = self.frame(&memory, &layout, key, kept)
            {
                self.frames.insert(key, shown, 1);
            }
        }
        self.budget.end(begin);
    }

    /// Reads the functions of a frame, and their lines.
    fn frame(
        &mut self,
        memory: &OfProcess,
        layout: &Layout,
        (process, frame): (u64, V8Frame),
        kept: &mut LanguageFrames,
    ) -> Option<Shown> {
        let mut shown = Vec::new();
        for at in v8::places(memory, layout, &frame) {
            let known = self.function(memory, layout, (process, at.shared), kept)?;
            let Known::Of(function, start, script) = known else {
                continue;
            };
            let line = at.position.or(start).and_then(|position| {
                let lines = self.lines(memory, process, &script)?;
                Some(lines.line(position).saturating_add(script.before))
            });
            shown.push((function, line.unwrap_or(0)));
        }
        Some(shown.into())
    }

    fn function(
        &mut self,
        memory: &OfProcess,
        layout: &Layout,
        key: (u64, u64),
        kept: &mut LanguageFrames,
    ) -> Option<Known> {
        if let Some(known) = self.functions.get(&key, |_| 1) {
            return Some(known);
        }
        let (shared, cookie) = v8::shared(key.1);
        let known = match v8::function(memory, layout, shared, cookie)? {
            Found::BuiltIn => Known::BuiltIn,
            Found::Named(named) => {
                let function = kept.function(&Function {
                    language: Language::JavaScript,
                    name: named.name,
                    file: named.script.name.clone(),
                });
                Known::Of(function, named.start, Arc::new(named.script))
            }
        };
        self.functions.insert(key, known.clone(), 1);
        Some(known)
    }

    /// The lines of a script.
    fn lines(&mut self, memory: &OfProcess, process: u64, script: &Script) -> Option<Arc<Lines>> {
        let key = (process, script.object, script.source);
        if let Some(lines) = self.lines.get(&key, |lines| lines.count()) {
            return Some(lines);
        }
        let lines = Arc::new(v8::lines_of(memory, script)?);
        self.lines.insert(key, Arc::clone(&lines), lines.count());
        Some(lines)
    }

    /// Adds frames that were read. `intern` adds a location.
    pub(super) fn add(
        &mut self,
        read: &ReadFrames,
        kept: &mut LanguageFrames,
        mut intern: impl FnMut(Location) -> LocationId,
    ) {
        let count: usize = read.frames.iter().map(|it| it.len().max(1)).sum();
        if !kept.has_room(count) {
            self.not_kept += 1;
            return;
        }
        let mut places = Vec::with_capacity(count);
        for shown in &read.frames {
            let Some(((function, line), inner)) = shown.split_last() else {
                places.push(Place::new(None, true));
                continue;
            };
            let mut location = |function: &FunctionId, line: &u32| {
                Some(intern(Location {
                    module: None,
                    address: u64::from(*line),
                    function: Some(*function),
                }))
            };
            for (function, line) in inner {
                places.push(Place::new(location(function, line), false));
            }
            places.push(Place::new(location(function, line), true));
        }
        kept.add(read.process, read.id, places.into());
    }

    /// Frames whose functions could not be read.
    pub(super) fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Stacks whose frames were not kept, for want of room.
    pub(super) fn not_kept(&self) -> u64 {
        self.not_kept
    }
}

/// The memory of a process, if it is still there.
struct OfProcess(Option<File>);

impl Memory for OfProcess {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self.0.as_ref()?.read_exact_at(bytes, address).ok()
    }
}

/// The time that reading may take: a process could make it as slow as it likes, and all others would wait.
#[derive(Debug)]
struct Budget {
    left: Duration,
    /// When the last reading ended.
    since: Instant,
}

impl Budget {
    fn new() -> Self {
        Self {
            left: MOST_AT_ONCE,
            since: Instant::now(),
        }
    }

    fn begin(&mut self) -> Instant {
        let now = Instant::now();
        let more = now.saturating_duration_since(self.since) / SHARE;
        self.left = self.left.saturating_add(more).min(MOST_AT_ONCE);
        now
    }

    fn is_left(&self, begin: Instant) -> bool {
        begin.elapsed() < self.left
    }

    fn end(&mut self, begin: Instant) {
        self.left = self.left.saturating_sub(begin.elapsed());
        self.since = Instant::now();
    }
}
