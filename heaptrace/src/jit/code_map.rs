//! The generated code of a process: functions by address, of which the latest counts.
//!
//! Part of `jit`. Knows nothing of files.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::message::{Change, Code, DebugLines};

/// Bytes of one line.
const LINE_BYTES: usize = 12;

/// Most functions of a process that are remembered after they were moved, or others took their places.
const MAX_PAST: usize = 1024;

/// What the maps of all processes may still take.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Functions.
    pub functions: usize,
    /// Bytes of names and lines.
    pub bytes: usize,
}

/// The functions of one process.
#[derive(Debug, Default)]
pub struct CodeMap {
    /// By their first addresses; none overlaps another.
    parts: BTreeMap<u64, Part>,
    /// Those that are gone, in a file with times: stacks of earlier times are still to come.
    past: VecDeque<Past>,
    bytes: usize,
    /// The lines of the next function.
    lines: Option<DebugLines>,
}

/// A function, or the part of it that no later one has covered.
#[derive(Clone, Debug)]
struct Part {
    end: u64,
    /// The address at which the function begins, or would begin.
    origin: u64,
    /// When it came there; 0 if that is unknown.
    time: u64,
    function: Arc<Function>,
}

/// A function that was at an address.
#[derive(Debug)]
struct Past {
    start: u64,
    part: Part,
    /// When it went.
    gone: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    file: String,
    line: u32,
    lines: DebugLines,
}

/// What is known of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// The function's name.
    pub name: &'a str,
    /// Its source file; empty if it is unknown.
    pub file: &'a str,
    /// The line, or the function's first line; 0 if it is unknown.
    pub line: u32,
}

/// The effect of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The addresses that have a function now, from the first up to the last.
    pub range: Option<(u64, u64)>,
    /// When the function was made; 0 if that is unknown.
    pub time: u64,
    /// Whether another function was there before.
    pub is_replaced: bool,
    /// Whether the function found no room.
    pub is_full: bool,
    /// Whether it moves a function that is not known.
    pub is_broken: bool,
}

impl Function {
    fn bytes(&self) -> usize {
        let files: usize = self.lines.files.iter().map(String::len).sum();
        self.name.len() + self.file.len() + files + self.lines.lines.len() * LINE_BYTES
    }

    fn at(&self, offset: u64) -> Named<'_> {
        let lines = &self.lines.lines;
        let after = lines.partition_point(|it| u64::from(it.offset) <= offset);
        let found = after.checked_sub(1).and_then(|at| lines.get(at));
        let file = found.and_then(|it| self.lines.files.get(usize::from(it.file)));
        Named {
            name: &self.name,
            file: file.unwrap_or(&self.file),
            line: found.map_or(self.line, |it| it.line),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.file, self.line) == (&other.name, &other.file, other.line)
    }
}

impl CodeMap {
    /// The number of functions.
    pub fn len(&self) -> usize {
        self.parts.len() + self.past.len()
    }

    /// Whether it has no function.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of names and lines.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The function at an address at a time, as far as times are known; otherwise the latest.
    pub fn find(&self, address: u64, time: u64) -> Option<Named<'_>> {
        let last = self.parts.range(..=address).next_back();
        let last = last.map(|(_, part)| part).filter(|it| address < it.end);
        let was_there = |it: &&Past| {
            let has = it.start <= address && address < it.part.end;
            has && it.part.time <= time && time < it.gone
        };
        let part = match last {
            Some(part) if part.time <= time => part,
            _ => match self.past.iter().rev().find(was_there) {
                Some(past) => &past.part,
                None => last?,
            },
        };
        Some(part.function.at(address.saturating_sub(part.origin)))
    }

    /// Takes over what a file says next.
    pub fn change(&mut self, change: Change, room: Room) -> Loaded {
        match change {
            Change::Lines(lines) => {
                self.lines = Some(lines);
                Loaded::default()
            }
            Change::Loaded(code) => self.load(code, room),
            Change::Moved { from, to, time } => self.move_function(from, to, time, room),
        }
    }

    fn load(&mut self, code: Code, room: Room) -> Loaded {
        let lines = self.lines.take().filter(|it| it.start == code.start);
        let mut lines = lines.unwrap_or_default();
        for line in &mut lines.lines {
            line.offset = line.offset.saturating_sub(code.lines_shift);
        }
        let function = Function {
            name: code.name,
            file: code.file,
            line: code.line,
            lines,
        };
        let part = Part {
            end: code.end,
            origin: code.start,
            time: code.time,
            function: Arc::new(function),
        };
        self.insert(code.start, part, room)
    }

    fn move_function(&mut self, from: u64, to: u64, time: u64, room: Room) -> Loaded {
        let broken = Loaded {
            is_broken: true,
            ..Loaded::default()
        };
        let Some(part) = self.parts.get(&from) else {
            return broken;
        };
        let Some(end) = to.checked_add(part.end - from) else {
            return broken;
        };
        // The beginning of the function can be covered by another one.
        let covered = from - part.origin;
        let moved = Part {
            end,
            origin: to.saturating_sub(covered),
            time,
            function: Arc::clone(&part.function),
        };
        self.retire(from, time);
        self.insert(to, moved, room)
    }

    fn insert(&mut self, start: u64, part: Part, room: Room) -> Loaded {
        let (end, time) = (part.end, part.time);
        let bytes = part.function.bytes();
        let is_full = room.functions == 0 || room.bytes < bytes;
        let mut is_replaced = false;
        // None overlaps another, so only the last one before the end can reach over it.
        while let Some((at, before)) = self.parts.range(..end).next_back() {
            let (at, before) = (*at, before.clone());
            if before.end <= start {
                break;
            }
            is_replaced |= !before.function.is_same(&part.function);
            self.retire(at, time);
            // What it leaves of one function can be two parts.
            let needed = bytes.saturating_add(2 * before.function.bytes());
            if room.functions < 3 || room.bytes < needed {
                continue;
            }
            if before.end > end {
                self.add(end, before.clone());
            }
            if at < start {
                let end = start;
                self.add(at, Part { end, ..before });
            }
        }
        if !is_full {
            self.add(start, part);
        }
        Loaded {
            range: (!is_full).then_some((start, end)),
            time,
            is_replaced,
            is_full,
            is_broken: false,
        }
    }

    fn add(&mut self, start: u64, part: Part) {
        self.bytes += part.function.bytes();
        self.parts.insert(start, part);
    }

    /// Takes a function away at a time.
    fn retire(&mut self, start: u64, gone: u64) {
        let Some(part) = self.parts.remove(&start) else {
            return;
        };
        if gone == 0 {
            self.bytes -= part.function.bytes();
            return;
        }
        self.past.push_back(Past { start, part, gone });
        if self.past.len() > MAX_PAST
            && let Some(oldest) = self.past.pop_front()
        {
            self.bytes -= oldest.part.function.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::LineFrom;
    use super::*;
    use crate::random::numbers;

    const ROOM: Room = Room {
        functions: 1000,
        bytes: 1 << 20,
    };

    fn code(start: u64, size: u64, name: &str) -> Change {
        Change::Loaded(Code {
            start,
            end: start + size,
            name: name.to_owned(),
            ..Code::default()
        })
    }

    /// Check that random changes give the same functions as an array with an entry for each address, and that memory is counted.
    #[test]
    fn the_latest_function_counts() {
        let mut random = numbers(3);
        for _ in 0..300 {
            let mut map = CodeMap::default();
            let mut known: [Option<u64>; 64] = [None; 64];
            for number in 0..40 {
                let start = random(60);
                let size = 1 + random(64 - start);
                let is_other = |it: &Option<u64>| it.is_some();
                let range = start as usize..(start + size) as usize;
                let is_replaced = known[range.clone()].iter().any(is_other);
                let loaded = map.change(code(start, size, &number.to_string()), ROOM);
                known[range].fill(Some(number));
                assert_eq!(loaded.is_replaced, is_replaced);
                for (address, expected) in known.iter().enumerate() {
                    let found = map
                        .find(address as u64, 0)
                        .map(|it| it.name.parse().unwrap());
                    assert_eq!(found, *expected);
                }
                let bytes: usize = map.parts.values().map(|it| it.function.bytes()).sum();
                assert_eq!(map.bytes(), bytes);
            }
        }
    }

    /// Check that lines are those of the offset, also after the function was moved, and that lines of another function are not used.
    #[test]
    fn lines_move_with_their_function() {
        let line = |offset, line| LineFrom {
            offset,
            line,
            file: 0,
        };
        let lines = |start| {
            Change::Lines(DebugLines {
                start,
                files: vec!["a.c".to_owned()],
                lines: vec![line(4, 10), line(8, 11)],
            })
        };
        let mut map = CodeMap::default();
        map.change(lines(0x100), ROOM);
        map.change(code(0x100, 16, "f"), ROOM);
        map.change(code(0x200, 16, "g"), ROOM);
        let at =
            |map: &CodeMap, address| map.find(address, 9).map(|it| (it.file.to_owned(), it.line));
        let expected = |file: &str, line| Some((file.to_owned(), line));
        assert_eq!(at(&map, 0x103), expected("", 0));
        assert_eq!(at(&map, 0x104), expected("a.c", 10));
        assert_eq!(at(&map, 0x20f), expected("", 0));
        let moved = |from, to| Change::Moved { from, to, time: 0 };
        assert!(map.change(moved(0x900, 0x300), ROOM).is_broken);
        map.change(moved(0x100, 0x300), ROOM);
        assert_eq!(at(&map, 0x308), expected("a.c", 11));
        assert_eq!(at(&map, 0x104), None);
        map.change(lines(0x400), ROOM);
        map.change(code(0x500, 16, "h"), ROOM);
        assert_eq!(at(&map, 0x508), expected("", 0));
    }

    /// Check that a function that was moved or replaced is still found for the time before, in a file with times.
    #[test]
    fn earlier_functions_are_found_by_their_time() {
        let at = |start, name: &str, time| match code(start, 16, name) {
            Change::Loaded(code) => Change::Loaded(Code { time, ..code }),
            other => other,
        };
        let mut map = CodeMap::default();
        map.change(at(0x100, "f", 10), ROOM);
        let moved = Change::Moved {
            from: 0x100,
            to: 0x300,
            time: 20,
        };
        map.change(moved, ROOM);
        map.change(at(0x300, "g", 30), ROOM);
        let name = |address, time| map.find(address, time).map(|it| it.name);
        assert_eq!(name(0x108, 19), Some("f"));
        assert_eq!(name(0x108, 20), None);
        assert_eq!(name(0x308, 25), Some("f"));
        assert_eq!(name(0x308, 30), Some("g"));
        // Before anything was there, the name can be that of code that was announced late.
        assert_eq!(name(0x308, 5), Some("g"));
    }

    /// Check that a map without room takes no more, and does not grow by functions that are cut in two.
    #[test]
    fn maps_are_bounded() {
        let mut map = CodeMap::default();
        map.change(code(0, 1000, "all"), ROOM);
        let full = Room {
            functions: 0,
            ..ROOM
        };
        let loaded = map.change(code(500, 10, "f"), full);
        assert!(loaded.is_full && loaded.is_replaced && map.is_empty());
        let small = Room { bytes: 3, ..ROOM };
        assert!(map.change(code(0, 10, "long"), small).is_full);
        assert!(!map.change(code(0, 10, "abc"), small).is_full);
        assert_eq!(map.bytes(), 3);
    }
}
