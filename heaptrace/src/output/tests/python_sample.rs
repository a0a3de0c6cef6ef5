//! A profile of a Python program.

use super::sample::{EVIL, totals};
use crate::join::{
    Completeness, Function, FunctionId, Language, Location, LocationId, Module, ModuleId, Process,
    ProcessId, Site, Stack, StackId,
};
use crate::profile::{Frame, Profile, RunEnd, RunInfo, StringId, Symbols};

/// The files with machine code.
const LIBC: u32 = 0;
const PYTHON: u32 = 1;
const JSON: u32 = 2;
const WORKER: u32 = 3;
const MODULES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/bin/python3.11",
    "/usr/lib/python3.11/lib-dynload/_json.cpython-311.so",
    "/opt/shop/libworker.so",
];

const APP: &str = "/srv/shop/app.py";
const BOOTSTRAP: &str = "<frozen importlib._bootstrap>";

/// The loop of Python, and its other names.
pub(super) const LOOP: &str = "_PyEval_EvalFrameDefault";
const COLD_LOOP: &str = "_PyEval_EvalFrameDefault.cold";

/// A frame of a stack: a Python function with its file and line, or a native one with the number of its file.
enum Is {
    Run(&'static str, &'static str, u64),
    Code(&'static str, u32),
}
use Is::{Code, Run};

/// Stacks, innermost frame first: a list that grows, a string that an extension makes, a thread without Python, an import by an
/// interpreter whose loop has no name, recursion, two functions of one name, and hostile names.
fn stacks() -> Vec<Vec<Is>> {
    let start = || {
        [
            Code(LOOP, PYTHON),
            Code("_PyEval_Vector", PYTHON),
            Code("Py_BytesMain", PYTHON),
            Code("__libc_start_call_main", LIBC),
        ]
    };
    let below = |inner: Vec<Is>| inner.into_iter().chain(start()).collect();
    let mut recursion = vec![Code("_PyObject_Malloc", PYTHON), Code("PyDict_New", PYTHON)];
    recursion.extend((0..40).map(|_| Run("Tree.walk", APP, 88)));
    recursion.push(Run("<module>", APP, 40));
    vec![
        below(vec![
            Code("list_resize", PYTHON),
            Code("list_append", PYTHON),
            Run("load", APP, 7),
            Run("main", APP, 12),
            Run("<module>", APP, 40),
        ]),
        below(vec![
            Code("_PyObject_Malloc", PYTHON),
            Code("PyUnicode_New", PYTHON),
            Code("scanstring_unicode", JSON),
            Code("scanner_call", JSON),
            Code("_PyObject_MakeTpCall", PYTHON),
            Run(
                "JSONDecoder.decode",
                "/usr/lib/python3.11/json/decoder.py",
                337,
            ),
            Run("Shelf.load.<locals>.<lambda>", "/srv/shop/worker.py", 5),
            Code(COLD_LOOP, PYTHON),
            Code("method_vectorcall", PYTHON),
            Run("main", "/srv/shop/worker.py", 9),
            Run("<module>", APP, 41),
        ]),
        vec![
            Code("grab", WORKER),
            Code("work", WORKER),
            Code("start_thread", LIBC),
            Code("clone3", LIBC),
        ],
        vec![
            Code("r_object", PYTHON),
            Code("marshal_loads", PYTHON),
            Run("_call_with_frames_removed", BOOTSTRAP, 241),
            Run("_find_and_load", BOOTSTRAP, 1176),
            Run("<module>", "/usr/lib/python3.11/json/__init__.py", 106),
            Code("", PYTHON),
            Code("Py_BytesMain", PYTHON),
        ],
        below(recursion),
        below(vec![Code("list_resize", PYTHON), Run(EVIL, EVIL, 3)]),
        below(vec![Code("list_resize", PYTHON), Run("", APP, 3)]),
    ]
}

/// The profile. Site `n` has the stack `n` and some more live bytes than site `n + 1`.
pub(super) fn python() -> (Profile, Symbols) {
    let mut profile = Profile::new(RunInfo::exact("-- python3.11 app.py"));
    let mut symbols = Symbols::default();
    profile.end = RunEnd::Orderly;
    profile.duration_ns = 12_500_000_000;
    profile.modules = MODULES
        .map(|path| Module {
            path: path.to_owned(),
            text_start: 0x7f00_0000_1000,
            text_end: 0x7f00_0010_1000,
            text_offset: 0x1000,
            ..Module::default()
        })
        .to_vec();
    profile.processes.push(Process {
        pid: 41,
        command: "python3.11".to_owned(),
        ..Process::default()
    });
    for (index, frames) in (0..).zip(stacks()) {
        let locations = frames
            .into_iter()
            .map(|frame| location(frame, &mut profile, &mut symbols))
            .collect();
        profile.stacks.push(Stack {
            locations,
            completeness: Completeness::Complete,
        });
        let totals = totals(100, 1_000, 90 - 10 * u64::from(index));
        profile.sites.push(Site {
            totals,
            ..Site::of_heap(ProcessId(0), StackId(index), crate::join::SiteId(0))
        });
    }
    profile.totals = totals(700, 1_000, 420);
    profile.processes[0].totals = profile.totals;
    profile.quality.samples = 700;
    profile.quality.stacks_complete = 700;
    (profile, symbols)
}

/// Adds a location, or finds the one that is there.
fn location(frame: Is, profile: &mut Profile, symbols: &mut Symbols) -> LocationId {
    let (location, names) = match frame {
        Run(name, file, line) => {
            let function = Function {
                language: Language::Python,
                name: name.to_owned(),
                file: file.to_owned(),
            };
            let id = intern(&mut profile.functions, function);
            let location = Location {
                module: None,
                address: line,
                function: Some(FunctionId(id)),
            };
            (location, Vec::new())
        }
        Code(name, module) => {
            let string = intern(&mut symbols.strings, name.to_owned());
            let location = Location {
                module: Some(ModuleId(module)),
                address: 0x1100 + u64::from(string),
                function: None,
            };
            let frame = Frame {
                function: Some(StringId(string)).filter(|_| !name.is_empty()),
                file: None,
                line: 0,
                inlined: false,
            };
            (location, vec![frame])
        }
    };
    let id = intern(&mut profile.locations, location);
    symbols.frames.resize(profile.locations.len(), Vec::new());
    symbols.frames[id as usize] = names;
    LocationId(id)
}

fn intern<T: PartialEq>(table: &mut Vec<T>, value: T) -> u32 {
    let found = table.iter().position(|it| *it == value);
    let id = found.unwrap_or(table.len());
    if id == table.len() {
        table.push(value);
    }
    id as u32
}
