//! Frames of running interpreters, read from outside as the kernel program reads them.
//!
//! Part of `python`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};

use heaptrace_common::wire::{PythonImage, PythonLayout, PythonText, entry};

use super::files::found;
use super::interpreters::{Interpreter, interpreters};
use crate::python::{line, text};

/// Several threads stop in nested functions. Prints for each thread its identifier, which is the address of its data, and
/// its frames; then where the interpreter is.
const SCRIPT: &str = r#"
import ctypes, os, sys, threading, traceback

printed = threading.Lock()
ready = threading.Semaphore(0)

def report():
    frame = sys._getframe(1)
    with printed:
        print("thread", threading.get_ident())
        while frame is not None:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)
            print("frame", code.co_firstlineno, frame.f_lineno, name)
            frame = frame.f_back
    ready.release()

def stop():
    report(); os.read(0, 1)

class Größe:
    def 本(self, *rest):
        for _ in rest:
            yield stop()

def by_callback(x):
    return (
        list(
            Größe().本(
                x)))

def nested(depth):
    if depth:
        return nested(
            depth - 1)
    return sorted(
        [1, 2],
        key=by_callback)

for depth in range(1, 4):
    threading.Thread(target=nested, args=(depth,), daemon=True).start()
    ready.acquire()

def address(symbol):
    return ctypes.cast(symbol, ctypes.c_void_p).value

runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
main = address(ctypes.pythonapi._PyEval_EvalFrameDefault)
print("interpreter", runtime, main)

def last():
    report(); print("end", flush=True); os.read(0, 1)

nested.__code__ = last.__code__.replace(co_name="renamed")
nested()
"#;

/// A running interpreter.
struct Process {
    child: Child,
    memory: File,
    printed: Vec<String>,
}

impl Process {
    /// Starts it, and waits until its threads have stopped.
    fn start(interpreter: &Interpreter) -> Self {
        let mut child = Command::new(&interpreter.program)
            .args(["-I", "-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let printed = lines.map(Result::unwrap).take_while(|line| line != "end");
        let printed: Vec<String> = printed.collect();
        let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        Self {
            child,
            memory,
            printed,
        }
    }

    fn bytes<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let read = self.memory.read_exact_at(&mut bytes, address);
        assert!(read.is_ok(), "{address:x}: {read:?}");
        bytes
    }

    fn word(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.bytes(address))
    }

    fn number(&self, address: u64) -> i32 {
        i32::from_le_bytes(self.bytes(address))
    }

    /// The beginning of a string.
    fn text(&self, layout: &PythonLayout, address: u64) -> String {
        let state = self.bytes::<1>(address + 32)[0];
        let is_ascii = state & 0x40 != 0;
        let offset = if is_ascii {
            layout.text_ascii
        } else {
            layout.text_wide
        };
        text(&PythonText::<128> {
            width: u32::from(state >> 2 & 7),
            characters: self.word(address + 16) as u32,
            bytes: self.bytes(address + u64::from(offset)),
        })
    }

    /// The mappings: start, end, offset in the file, and path.
    fn code(&self) -> Vec<(u64, u64, u64, String)> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap();
        let code = maps.lines().filter(|line| line.contains(" r-xp "));
        let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
        code.filter_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let offset = words.nth(1)?;
            let path = words.nth(2).filter(|path| path.starts_with('/'))?;
            Some((hex(start), hex(end), hex(offset), path.to_owned()))
        })
        .collect()
    }

    /// The interpreter, and the address that its image is relative to.
    fn image(&self) -> (PythonImage, u64) {
        let files = self
            .code()
            .into_iter()
            .filter_map(|(start, _, offset, path)| {
                let image = found(&std::fs::read(path).unwrap(), true)?;
                Some((image, start - offset))
            });
        let files: Vec<_> = files.collect();
        assert_eq!(files.len(), 1, "{files:x?}");
        files[0]
    }

    /// The frames of a thread, innermost first, each with whether it is the outermost of a run of the interpreter.
    fn frames(&self, image: &PythonImage, base: u64, thread: u64) -> Vec<(Shown, bool)> {
        let layout = &image.layout;
        let at = |address: u64, offset: u16| address + u64::from(offset);
        let key_at = base.wrapping_add(image.key_at);
        assert_eq!(self.number(key_at), 1);
        let key = self.number(key_at + 4);
        assert!((0..32).contains(&key), "{key}");
        let state = self.word(thread + 0x318 + 16 * key as u64);
        let mut frame = self.word(at(state, layout.thread_frame));
        if layout.holder_frame != PythonLayout::NO_OFFSET {
            frame = self.word(at(frame, layout.holder_frame));
        }
        let mut frames: Vec<(Shown, bool)> = Vec::new();
        while frame != 0 {
            let byte = self.bytes::<1>(at(frame, layout.frame_entry))[0];
            let back = self.word(at(frame, layout.frame_back));
            if layout.entry == entry::OWNER && byte >= 3 {
                frames.last_mut().unwrap().1 = true;
            } else {
                let is_last = match layout.entry {
                    entry::EACH => true,
                    entry::FLAG => byte != 0,
                    _ => false,
                };
                frames.push((self.shown(layout, frame), is_last));
            }
            frame = back;
        }
        frames
    }

    fn shown(&self, layout: &PythonLayout, frame: u64) -> Shown {
        let at = |address: u64, offset: u16| address + u64::from(offset);
        let code = self.word(at(frame, layout.frame_code));
        let first_line = self.number(at(code, layout.code_line));
        let table = self.word(at(code, layout.code_lines));
        let mut lines = vec![0; self.word(table + 16) as usize];
        self.memory.read_exact_at(&mut lines, table + 32).unwrap();
        let instruction = if layout.code_instructions == 0 {
            self.number(at(frame, layout.frame_instruction))
        } else {
            let instruction = self.word(at(frame, layout.frame_instruction));
            instruction.wrapping_sub(at(code, layout.code_instructions)) as i32
        };
        let file = self.text(layout, self.word(at(code, layout.code_file)));
        assert_eq!(file.ends_with(".py"), file != "<string>", "{file}");
        Shown {
            name: self.text(layout, self.word(at(code, layout.code_name))),
            first_line: first_line as u32,
            line: line(layout.minor, first_line, &lines, instruction),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What Python shows about a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    name: String,
    first_line: u32,
    line: u32,
}

/// The frames that a thread printed.
fn printed(lines: &[String]) -> Vec<Shown> {
    let frames = lines.iter().map_while(|line| line.strip_prefix("frame "));
    let frame = |frame: &str| {
        let mut words = frame.splitn(3, ' ');
        Shown {
            first_line: words.next().unwrap().parse().unwrap(),
            line: words.next().unwrap().parse().unwrap(),
            name: words.next().unwrap().to_owned(),
        }
    };
    frames.map(frame).collect()
}

/// The names of the outermost frames of runs of the interpreter, down to the thread's own function.
fn last_of_runs(frames: &[(Shown, bool)]) -> Vec<&str> {
    let last = frames.iter().filter(|(_, is_last)| *is_last);
    last.map(|(shown, _)| shown.name.as_str()).collect()
}

/// Check that an image leads to the frames of each thread of a running interpreter: their names, first lines, and lines; that
/// threads which have released the global lock have them, too; and that each run of the interpreter ends where C code called
/// it. In each version on the machine.
#[test]
fn frames_of_a_running_interpreter_are_found() {
    for interpreter in interpreters() {
        let process = Process::start(&interpreter);
        let (image, base) = process.image();
        let mut threads = 0;
        for (at, line) in process.printed.iter().enumerate() {
            if let Some(thread) = line.strip_prefix("thread ") {
                let expected = printed(&process.printed[at + 1..]);
                let frames = process.frames(&image, base, thread.parse().unwrap());
                let shown: Vec<Shown> = frames.iter().map(|(shown, _)| shown.clone()).collect();
                assert_eq!(shown, expected, "{interpreter:?}");
                check_runs(image.layout.entry, &frames);
                threads += 1;
            }
            if let Some(addresses) = line.strip_prefix("interpreter ") {
                let (runtime, main) = addresses.split_once(' ').unwrap();
                let (runtime, main): (u64, u64) = (runtime.parse().unwrap(), main.parse().unwrap());
                let key = base.wrapping_add(image.key_at);
                assert!((runtime..runtime + 4096).contains(&key));
                assert_eq!(base + u64::from(image.loops[0][0]), main);
            }
        }
        assert_eq!(threads, 4, "{interpreter:?}: {:?}", process.printed);
        println!("{interpreter:?}: {threads} threads");
    }
}

/// Checks where runs of the interpreter end.
fn check_runs(kind: u16, frames: &[(Shown, bool)]) {
    let last = last_of_runs(frames);
    if kind == entry::EACH {
        assert_eq!(last.len(), frames.len());
    } else if frames.iter().any(|(shown, _)| shown.name == "by_callback") {
        // `list` calls a generator, `sorted` calls a function, and a thread begins. In 3.11, C code also calls a function
        // whose arguments are in a tuple.
        let calls = ["Größe.本", "by_callback", "nested", "Thread._bootstrap"];
        let expected = calls
            .iter()
            .filter(|name| **name != "nested" || kind == entry::FLAG);
        assert_eq!(last, expected.copied().collect::<Vec<_>>());
    } else {
        assert_eq!(last, ["<module>"]);
    }
}
