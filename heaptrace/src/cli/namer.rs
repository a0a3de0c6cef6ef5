//! A process that looks up names for a command that has given up its rights.
//!
//! Part of the command line. If the recorder was killed, the data file has no names, and they must be looked
//! up in files that it lists. The process that reads the data file can open no files. So a second process is
//! started before. It receives addresses, file names, stacks and sizes of blocks, and answers with names and types. Both messages are data
//! files, whose reader has limits.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use anyhow::Context as _;

use super::naming;
use super::side_process::SideProcess;
use crate::join::{Process, ProcessId, Site, SiteId, Update};
use crate::profile::{DataFileWriter, Profile, ReadOptions, Symbols, read_from};
use crate::symbolize::{DebugSources, OnDisk};

/// The name of the two streams in errors.
const STREAM: &str = "the process that looks up names";

/// The second process, which waits for its question.
pub(super) struct Namer(SideProcess);

impl Namer {
    /// Starts the process, which also searches these sources of debug files. Must be called while this process has a single thread.
    pub(super) fn start(sources: DebugSources) -> io::Result<Self> {
        SideProcess::start(c"heaptrace-names", |asked, answered| {
            serve(asked, answered, sources);
        })
        .map(Self)
    }

    /// Looks up names for all addresses of a profile, and the types of its blocks.
    pub(super) fn names(self, profile: &Profile, options: ReadOptions) -> anyhow::Result<Symbols> {
        let SideProcess { question, answer } = self.0;
        let mut writer = DataFileWriter::to(question, PathBuf::from(STREAM), &profile.info)?;
        writer.update(&Update {
            modules: profile.modules.clone(),
            // Locations refer to them, and a reference must lead somewhere.
            functions: profile.functions.clone(),
            locations: profile.locations.clone(),
            stacks: profile.stacks.clone(),
            processes: vec![(ProcessId(0), Process::default())],
            sites: sites(profile),
            ..Update::default()
        })?;
        writer.finish(0)?;
        let options = ReadOptions {
            until: u64::MAX,
            from: None,
            ..options
        };
        read_from(BufReader::new(answer), STREAM, options)
            .ok()
            .filter(|answer| !answer.is_damaged)
            .and_then(|answer| answer.symbols)
            .with_context(|| format!("{STREAM} ended early"))
    }
}

/// The sites, by whose sizes types are found, without what they belong to.
fn sites(profile: &Profile) -> Vec<(SiteId, Site)> {
    let without_owner = |site: &Site| Site {
        process: ProcessId(0),
        thread: None,
        ..*site
    };
    let sites = profile.sites.iter().map(without_owner);
    (0..).map(SiteId).zip(sites).collect()
}

/// Waits for a question, and answers it.
fn serve(asked: File, answered: File, sources: DebugSources) {
    let reader = BufReader::new(asked);
    // Without a question, the parent has ended. With a wrong question, the parent reports that no answer came.
    let Ok(recording) = read_from(reader, STREAM, ReadOptions::default()) else {
        return;
    };
    let info = &recording.profile.info;
    let symbols = naming::all(&recording.profile, &OnDisk::of(info), sources);
    let answer = DataFileWriter::to(answered, PathBuf::from(STREAM), info);
    if let Ok(mut writer) = answer
        && writer.symbols(&symbols).is_ok()
    {
        let _ = writer.finish(0);
    }
}
