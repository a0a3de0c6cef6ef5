//! Completes stacks whose walk ended for want of an unwind table, or that need names of generated code, and holds all later events
//! back until these are there: their order decides about peaks.
//!
//! Part of the session. Nothing is held while no such stack waits. Must not know where events come from.

mod jit_files;
mod queue;
mod raw_stacks;
mod sources;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use heaptrace_common::wire::{ProcessBegin, StackHead, walk};

use crate::config::RunConfig;
use crate::events::raw_stack::RawStack;
use crate::events::record::Event;
use crate::join::{Joiner, Note, Process, ReadFrames};
use crate::reader::Budget;
use jit_files::JitFiles;
use queue::Queue;
use raw_stacks::{Completed, Met, RawStacks, ReadAhead, frame_of};
pub(super) use sources::Sources;

/// The longest time that an event is held. A table, or a file with names, that takes longer is not waited for. On a busy machine
/// it takes seconds to start a reader.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The part of a run's memory that held events may use at most.
const MEMORY_SHARE: u64 = 16;

/// The events that are held.
pub(super) struct Held {
    queue: Queue<Item>,
    waits: Waits,
    /// The pids of processes whose beginning is held, by serial number.
    begun: HashMap<u64, u32>,
}

/// What events wait for.
struct Waits {
    raw: RawStacks,
    jit: JitFiles,
}

/// An event that waits.
enum Item {
    Event(Event),
    /// The beginning of a process, with what was read of it at once.
    Begin(ProcessBegin, Box<Process>),
    /// Frames of JavaScript, with what was read of them at once.
    JavaScript(ReadFrames),
}

impl Held {
    pub(super) fn new(config: &RunConfig, budget: &Budget) -> Result<Self> {
        let most_bytes = usize::try_from(config.max_memory / MEMORY_SHARE).unwrap_or(usize::MAX);
        Ok(Self {
            queue: Queue::new(most_bytes),
            waits: Waits {
                raw: RawStacks::new(config.max_stack_depth as usize),
                jit: JitFiles::new(budget)?,
            },
            begun: HashMap::new(),
        })
    }

    /// Records that all events that come next were read by now.
    pub(super) fn set_read(&mut self) {
        self.waits.jit.set_read();
    }

    /// Reads the names of generated code that are new in all files.
    pub(super) fn read_names(&mut self, joiner: &mut Joiner) {
        self.waits.jit.read_all(joiner);
    }

    /// Files with names of generated code that were not read.
    pub(super) fn refused_files(&self) -> u64 {
        self.waits.jit.refused()
    }

    /// Whether events are held.
    pub(super) fn is_holding(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Joins an event, or holds it.
    pub(super) fn join(&mut self, event: Event, joiner: &mut Joiner, sources: &mut Sources<'_>) {
        let event = match event {
            Event::RawStack(raw) => {
                let none_waits = self.queue.is_empty();
                let begun = &self.begun;
                return self.waits.raw.add(*raw, none_waits, |raw| {
                    read_ahead(raw, begun, joiner, sources)
                });
            }
            event => event,
        };
        if self.queue.is_empty() {
            match ready(&mut self.waits, event, joiner, sources) {
                Ok(event) => joiner.event(event),
                Err(event) => self.hold(Item::Event(event)),
            }
            return;
        }
        let item = match event {
            Event::ProcessBegin(event) => {
                self.begun.insert(event.process, event.tgid);
                Item::Begin(event, Box::new(joiner.read_process(&event)))
            }
            Event::V8Frames(event) => Item::JavaScript(joiner.read_javascript(&event)),
            event => Item::Event(event),
        };
        let thread = match &item {
            Item::Event(Event::Alloc(it)) => Some((it.process, it.tid, it.time)),
            Item::Event(Event::MapChange(it)) => Some((it.process, it.tid, it.time)),
            _ => None,
        };
        if let Some((process, tid, time)) = thread {
            joiner.read_thread(self.begun.get(&process).copied(), process, tid, time);
        }
        self.hold(item);
        if self.queue.is_full() {
            self.flush(joiner, sources);
        }
    }

    /// Joins the events that need not wait any longer.
    pub(super) fn proceed(&mut self, joiner: &mut Joiner, sources: &mut Sources<'_>) {
        self.waits.jit.take_answers(joiner);
        self.join_held(joiner, sources, false);
    }

    /// Joins all held events. Stacks whose tables are not ready stay incomplete.
    pub(super) fn flush(&mut self, joiner: &mut Joiner, sources: &mut Sources<'_>) {
        self.join_held(joiner, sources, true);
    }

    fn join_held(&mut self, joiner: &mut Joiner, sources: &mut Sources<'_>, is_last: bool) {
        let Self {
            queue,
            waits,
            begun,
            ..
        } = self;
        queue.proceed(Instant::now(), MAX_WAIT, |item, is_due| {
            let event = match item {
                Item::Begin(event, record) => {
                    joiner.begin_process(&event, *record);
                    return None;
                }
                Item::JavaScript(read) => {
                    joiner.javascript_frames(&read);
                    return None;
                }
                Item::Event(event) => event,
            };
            match ready(waits, event, joiner, sources) {
                Ok(event) => joiner.event(event),
                Err(event) if !is_last && !is_due => return Some(Item::Event(event)),
                Err(event) => {
                    if let Event::Stack(head, _) = &event {
                        waits.raw.drop_of(head);
                    }
                    waits.jit.stop_waiting();
                    joiner.event(event);
                }
            }
            None
        });
        if queue.is_empty() {
            begun.clear();
        }
    }

    fn hold(&mut self, item: Item) {
        let bytes = bytes_apart(&item);
        self.queue.push(item, bytes, Instant::now());
    }
}

/// Reads what the frames of languages in a raw stack need of the memory of their process, while it has that: some of it is known only when
/// the walk has gone on.
fn read_ahead(
    raw: &RawStack,
    begun: &HashMap<u64, u32>,
    joiner: &mut Joiner,
    sources: &mut Sources<'_>,
) -> ReadAhead {
    let frame = frame_of(raw);
    let begun = begun.get(&raw.process).copied();
    let pid = begun.or_else(|| joiner.pid(raw.process)).unwrap_or(0);
    let javascript = sources.java.v8.possible_frames(pid, &frame);
    let frames = javascript.all();
    if !frames.is_empty() {
        joiner.read_javascript_ahead(&javascript.event(raw.process, 0, frames));
    }
    ReadAhead {
        java: sources.java.read_ahead(raw.process, &frame),
        javascript,
    }
}

/// An event as it can be joined now; the event itself as an error if it must wait.
fn ready(
    waits: &mut Waits,
    event: Event,
    joiner: &mut Joiner,
    sources: &mut Sources<'_>,
) -> std::result::Result<Event, Event> {
    let event = completed(&mut waits.raw, event, joiner, sources)?;
    let is_named = match &event {
        Event::Stack(head, frames) => waits.jit.is_ready(head, frames, joiner),
        Event::ProcessEnd(end) => waits.jit.is_read(end.process, joiner),
        _ => true,
    };
    if is_named { Ok(event) } else { Err(event) }
}

/// An event with a stack that is as long as it can be; the event itself as an error if it must wait for an unwind table.
fn completed(
    raw: &mut RawStacks,
    event: Event,
    joiner: &mut Joiner,
    sources: &mut Sources<'_>,
) -> std::result::Result<Event, Event> {
    match event {
        Event::Stack(head, frames) if is_incomplete(&head) => {
            let before = head;
            match raw.complete(&head, &frames, joiner, sources) {
                Completed::Stack(head, frames, met) => {
                    joiner.note_one(Note::StacksWalkedLate);
                    match met {
                        Met::No => {}
                        Met::Java(java) => {
                            let named = sources.java.name(&java, before.language);
                            joiner.event(Event::NamedJavaFrames(named));
                        }
                        Met::JavaScript(frames) => {
                            let read = joiner.read_javascript(&frames);
                            joiner.javascript_frames(&read);
                        }
                    }
                    Ok(Event::Stack(head, frames))
                }
                Completed::No => Ok(Event::Stack(head, frames)),
                Completed::Later => Err(Event::Stack(head, frames)),
            }
        }
        Event::ProcessEnd(event) => {
            raw.forget(event.process);
            sources.java.forget(event.process);
            Ok(Event::ProcessEnd(event))
        }
        event => Ok(event),
    }
}

/// Whether a stack can be completed by its raw stack.
fn is_incomplete(head: &StackHead) -> bool {
    head.raw != 0 && head.walk == walk::NO_TABLE
}

/// The bytes that a held event uses beside its entry in the queue, about.
fn bytes_apart(item: &Item) -> usize {
    match item {
        Item::Event(Event::Stack(_, frames)) => frames.len() * 8,
        Item::Event(Event::PythonFrames(it)) => it.frames.len() * 16,
        Item::Event(Event::NamedJavaFrames(it)) => size_of_val(&*it.frames),
        Item::Event(Event::PythonCode(it)) => {
            size_of_val(&**it) + it.lines.len() + it.name.len() + it.file.len()
        }
        Item::Event(_) => 0,
        Item::JavaScript(read) => read.bytes_apart(),
        Item::Begin(_, record) => size_of_val(&**record) + record.command_line.len(),
    }
}
