//! A file for the Firefox profiler: a thread for each process and each metric of bytes, whose allocations are the sites.
//!
//! Stage: output. This is the profiler's processed format, version 60, as its own importer of DHAT files makes it: the format that
//! Firefox itself writes has no weighted stacks. The profiler reads all older versions of it.

use std::collections::HashMap;
use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};

use crate::join::ProcessId;
use crate::output::error::OutputError;
use crate::output::json_escaping::write_value;
use crate::output::metric::Metric;
use crate::output::report_input::{ReportInput, process_label};
use crate::output::stacks::Stacks;
use crate::text::escape;

/// The version of the format.
const VERSION: u32 = 60;

#[derive(Serialize)]
struct File {
    meta: Value,
    libs: [(); 0],
    pages: [(); 0],
    shared: Value,
    threads: Vec<Value>,
}

/// The texts of a file, each once.
#[derive(Default)]
struct Texts {
    texts: Vec<String>,
    ids: HashMap<String, usize>,
}

impl Texts {
    fn id(&mut self, text: &str) -> usize {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.texts.len();
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// Writes all metrics of bytes that are not zero everywhere, this one first.
pub(super) fn write(
    input: &ReportInput<'_>,
    first: Metric,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut stacks = Stacks::new(input);
    let mut threads = Vec::new();
    let bytes = Metric::ALL.into_iter().filter(|it| it.is_bytes());
    let metrics = bytes.clone().filter(|it| *it == first);
    for metric in metrics.chain(bytes.filter(|it| *it != first)) {
        for (id, process) in (0..).map(ProcessId).zip(&input.profile.processes) {
            let sites = input.profile.sites.iter();
            let sites = sites.filter(|site| site.process == id);
            let sites = sites.filter(|site| metric.of(&site.totals) > 0);
            let (nodes, weights): (Vec<u32>, Vec<u64>) = sites
                .map(|site| (stacks.inside_process(site), metric.of(&site.totals)))
                .unzip();
            if nodes.is_empty() {
                continue;
            }
            let number = threads.len();
            threads.push(json!({
                "processType": "default",
                "processName": process_label(process),
                "processStartupTime": 0,
                "processShutdownTime": null,
                "registerTime": 0,
                "unregisterTime": null,
                "pausedRanges": [],
                "name": metric.title(),
                "isMainThread": false,
                "pid": process.pid.to_string(),
                "tid": number,
                "samples": {"stack": [], "time": [], "weight": null, "weightType": "samples", "length": 0},
                "markers": {
                    "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [],
                    "length": 0,
                },
                "nativeAllocations": {
                    "time": vec![0; nodes.len()],
                    "length": nodes.len(),
                    "stack": nodes,
                    "weight": weights,
                    "weightType": "bytes",
                },
            }));
        }
    }
    if threads.is_empty() {
        return Err(OutputError::Nothing);
    }
    let file = File {
        meta: meta(input),
        libs: [],
        pages: [],
        shared: shared(&stacks),
        threads,
    };
    Ok(write_value(&file, out)?)
}

fn meta(input: &ReportInput<'_>) -> Value {
    let info = &input.profile.info;
    let chosen = input.profile.chosen();
    json!({
        "product": format!("heaptrace: {} ({chosen})", escape(&info.target)),
        "importedFrom": "heaptrace",
        "preprocessedProfileVersion": VERSION,
        "version": 31,
        "startTime": info.started_unix_ns / 1_000_000,
        "interval": 1,
        "processType": 0,
        "stackwalk": 1,
        "symbolicated": true,
        "debug": false,
        "abi": "x86_64-gcc3",
        "misc": "",
        "oscpu": format!("Linux {}", escape(&info.kernel)),
        "platform": "Linux",
        "toolkit": "",
        "extensions": {"id": [], "name": [], "baseURL": [], "length": 0},
        "categories": [
            {"name": "Other", "color": "grey", "subcategories": ["Other"]},
        ],
        "markerSchema": [],
    })
}

/// The tables that all threads share.
fn shared(stacks: &Stacks<'_>) -> Value {
    let (mut texts, mut sources) = (Texts::default(), Texts::default());
    // A function is a name and a file; its frames differ in the line.
    let mut functions = HashMap::<(usize, Option<usize>), usize>::new();
    let (mut names, mut files) = (Vec::new(), Vec::new());
    let (mut function_of, mut lines) = (Vec::new(), Vec::new());
    for place in &stacks.places {
        let file = match place.file.as_str() {
            "" => place.module.as_str(),
            file => file,
        };
        let file = (!file.is_empty()).then(|| sources.id(file));
        let name = texts.id(&place.name);
        let function = *functions.entry((name, file)).or_insert_with(|| {
            names.push(name);
            files.push(file);
            names.len() - 1
        });
        function_of.push(function);
        lines.push(Some(place.line).filter(|line| *line > 0));
    }
    let file_names: Vec<_> = sources.texts.iter().map(|file| texts.id(file)).collect();
    let (frames, functions) = (function_of.len(), names.len());
    let none = |many: usize| vec![Value::Null; many];
    let all = |value: i64, many: usize| vec![value; many];
    let prefixes = stacks.nodes.iter().map(|node| node.caller);
    let places = stacks.nodes.iter().map(|node| node.place);
    json!({
        "stringArray": texts.texts,
        "sources": {"uuid": none(file_names.len()), "length": file_names.len(), "filename": file_names},
        "stackTable": {
            "frame": places.collect::<Vec<_>>(),
            "prefix": prefixes.collect::<Vec<_>>(),
            "length": stacks.nodes.len(),
        },
        "frameTable": {
            "address": all(-1, frames), "inlineDepth": all(0, frames), "category": all(0, frames),
            "subcategory": all(0, frames), "func": function_of, "nativeSymbol": none(frames),
            "innerWindowID": none(frames), "line": lines, "column": none(frames), "length": frames,
        },
        "funcTable": {
            "name": names, "isJS": vec![false; functions], "relevantForJS": vec![false; functions],
            "resource": all(-1, functions), "source": files, "lineNumber": none(functions),
            "columnNumber": none(functions), "length": functions,
        },
        "resourceTable": {"lib": [], "name": [], "host": [], "type": [], "length": 0},
        "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
    })
}
