//! Python frames: their code objects become functions and lines.
//!
//! Stage: join. Knows nothing of how the interpreter keeps its data.

use heaptrace_common::wire::PythonFrame;

use super::keyed_hash::HashMap;
use super::language_frames::{LanguageFrames, Place};
use super::update::{Function, FunctionId, Language, Location, LocationId};
use crate::events::python::{PythonCode, PythonFrames};
use crate::python;

/// Most bytes of tables of lines that are kept. Without its table, a function has its first line in all places.
const MAX_LINES_BYTES: usize = 64 << 20;

/// The code objects of all processes.
#[derive(Debug, Default)]
pub(super) struct Python {
    /// By process, and by address and cookie.
    codes: HashMap<u64, HashMap<(u64, u32), Code>>,
    /// Bytes of the tables of lines that are kept.
    lines_bytes: usize,
    /// Stacks that were not kept.
    not_kept: u64,
}

#[derive(Debug)]
struct Code {
    /// `None` for code of the interpreter's own, which Python's own stacks don't show.
    function: Option<FunctionId>,
    minor: u16,
    first_line: i32,
    lines: Box<[u8]>,
}

impl Python {
    /// Adds a code object.
    pub(super) fn add_code(&mut self, code: PythonCode, frames: &mut LanguageFrames) {
        let is_interpreters = code.first_line == 0 && code.name == code.file;
        let function = (!is_interpreters).then(|| {
            frames.function(&Function {
                language: Language::Python,
                name: code.name,
                file: code.file,
            })
        });
        let mut lines = code.lines.into_boxed_slice();
        if self.lines_bytes + lines.len() > MAX_LINES_BYTES {
            lines = Box::default();
        }
        self.lines_bytes += lines.len();
        let codes = self.codes.entry(code.process).or_default();
        let before = codes.insert(
            (code.code, code.cookie),
            Code {
                function,
                minor: code.minor,
                first_line: code.first_line,
                lines,
            },
        );
        self.lines_bytes -= before.map_or(0, |before| before.lines.len());
    }

    /// Adds the frames of stacks, whose code objects have arrived. `intern` adds a location.
    pub(super) fn add_frames(
        &mut self,
        event: &PythonFrames,
        frames: &mut LanguageFrames,
        mut intern: impl FnMut(Location) -> LocationId,
    ) {
        if !frames.has_room(event.frames.len()) {
            self.not_kept += 1;
            return;
        }
        let codes = self.codes.get(&event.process);
        let places = event.frames.iter().map(|frame| {
            let code = frame.code & !PythonFrame::LAST_OF_RUN;
            let cookie = (frame.place >> 32) as u32;
            let (function, line) = match codes.and_then(|codes| codes.get(&(code, cookie))) {
                Some(code) => {
                    let instruction = frame.place as u32 as i32;
                    let line = python::line(code.minor, code.first_line, &code.lines, instruction);
                    (code.function, line)
                }
                None => (Some(frames.unknown(Language::Python)), 0),
            };
            let function = function.filter(|_| code != 0);
            let location = function.map(|function| Location {
                module: None,
                address: line.into(),
                function: Some(function),
            });
            let is_last_of_run = frame.code & PythonFrame::LAST_OF_RUN != 0;
            Place::new(location.map(&mut intern), is_last_of_run)
        });
        let places = places.collect();
        frames.add(event.process, event.id, places);
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        let gone = self.codes.remove(&process).unwrap_or_default();
        let lines = gone.values().map(|code| code.lines.len());
        self.lines_bytes -= lines.sum::<usize>();
    }

    /// Stacks whose Python frames were not kept, for want of room.
    pub(super) fn not_kept(&self) -> u64 {
        self.not_kept
    }
}

#[cfg(test)]
mod tests {
    use super::super::language_frames::LanguagePart;
    use super::*;

    const PROCESS: u64 = 4;

    fn code(address: u64, cookie: u32, name: &str) -> PythonCode {
        PythonCode {
            process: PROCESS,
            code: address,
            cookie,
            minor: 11,
            first_line: 10 + address as i32,
            name: name.to_owned(),
            file: "app.py".to_owned(),
            lines: Vec::new(),
        }
    }

    fn frame(code: u64, cookie: u32, is_last: bool) -> PythonFrame {
        PythonFrame {
            code: code | if is_last { PythonFrame::LAST_OF_RUN } else { 0 },
            place: u64::from(cookie) << 32,
        }
    }

    /// The stack that comes of frames of machine code, which are numbered from 1000 on and some of which ran Python code, and of
    /// Python frames.
    fn merged(frames: &[PythonFrame], native: u32, loops: u64) -> Vec<String> {
        let (mut python, mut kept) = (Python::default(), LanguageFrames::default());
        for (address, cookie, name) in [(1, 5, "f"), (1, 6, "g"), (2, 5, "main")] {
            python.add_code(code(address, cookie, name), &mut kept);
        }
        let mut locations = Vec::new();
        let event = PythonFrames {
            process: PROCESS,
            id: 9,
            frames: frames.to_vec(),
        };
        python.add_frames(&event, &mut kept, |location| {
            locations.push(location);
            LocationId(locations.len() as u32 - 1)
        });
        let functions = kept.take_new();
        let mut stack: Vec<_> = (1000..1000 + native).map(LocationId).collect();
        let part = LanguagePart {
            id: 9,
            frames: [loops, 0],
        };
        kept.merge(PROCESS, part, &mut stack);
        let name = |id: &LocationId| match locations.get(id.0 as usize) {
            Some(location) => {
                let function = &functions[location.function.unwrap().0 as usize];
                format!("{}:{}", function.name, location.address)
            }
            None => (id.0 - 1000).to_string(),
        };
        stack.iter().map(name).collect()
    }

    /// Check that each run of Python frames stands before the frame that ran it, that a run without a frame takes none of the next
    /// one, and that frames without a place come last.
    #[test]
    fn python_frames_stand_before_the_frame_that_ran_them() {
        let frames = [frame(1, 5, false), frame(2, 5, true), frame(1, 6, true)];
        assert_eq!(
            merged(&frames, 4, 0b1010),
            ["0", "f:11", "main:12", "1", "2", "g:11", "3"]
        );
        assert_eq!(
            merged(&frames, 2, 0b10),
            ["0", "f:11", "main:12", "1", "g:11"]
        );
        let empty_run = [frame(0, 0, true), frame(1, 5, true)];
        assert_eq!(merged(&empty_run, 2, 0b11), ["0", "f:11", "1"]);
        assert_eq!(merged(&[frame(7, 7, true)], 1, 1), [":0", "0"]);
    }

    /// Check that the interpreter's own code, which Python 3.13 runs between a class and its `__init__`, is left out.
    #[test]
    fn code_of_the_interpreters_own_is_left_out() {
        let (mut python, mut kept) = (Python::default(), LanguageFrames::default());
        let own = PythonCode {
            first_line: 0,
            file: "__init__".to_owned(),
            ..code(3, 5, "__init__")
        };
        python.add_code(own, &mut kept);
        python.add_code(code(1, 5, "f"), &mut kept);
        let event = PythonFrames {
            process: PROCESS,
            id: 9,
            frames: vec![frame(3, 5, false), frame(1, 5, true)],
        };
        python.add_frames(&event, &mut kept, |_| LocationId(7));
        let part = LanguagePart {
            id: 9,
            frames: [1, 0],
        };
        let mut stack = vec![LocationId(0)];
        kept.merge(PROCESS, part, &mut stack);
        assert_eq!(stack, [LocationId(7), LocationId(0)]);
    }

    /// Check that nothing of an ended process is kept, and that what is sent twice counts once.
    #[test]
    fn ended_processes_are_forgotten() {
        let (mut python, mut kept) = (Python::default(), LanguageFrames::default());
        let mut with_lines = code(1, 5, "f");
        with_lines.lines = vec![0; 100];
        python.add_code(with_lines.clone(), &mut kept);
        python.add_code(with_lines, &mut kept);
        let event = PythonFrames {
            process: PROCESS,
            id: 9,
            frames: vec![frame(1, 5, true)],
        };
        python.add_frames(&event, &mut kept, |_| LocationId(0));
        python.add_frames(&event, &mut kept, |_| LocationId(0));
        assert_eq!((python.lines_bytes, kept.kept()), (100, 1));
        python.forget(PROCESS);
        kept.forget(PROCESS);
        assert_eq!((python.lines_bytes, kept.kept()), (0, 0));
    }

    /// Check that frames beyond the limit are counted, and that a stack without them has its machine code.
    #[test]
    fn frames_beyond_the_limit_are_counted() {
        let (mut python, mut kept) = (Python::default(), LanguageFrames::full());
        let event = PythonFrames {
            process: PROCESS,
            id: 9,
            frames: vec![frame(1, 5, true)],
        };
        python.add_frames(&event, &mut kept, |_| LocationId(7));
        assert_eq!(python.not_kept(), 1);
        let part = LanguagePart {
            id: 9,
            frames: [1, 0],
        };
        let mut stack = vec![LocationId(0)];
        kept.merge(PROCESS, part, &mut stack);
        assert_eq!(stack, [LocationId(0)]);
    }
}
