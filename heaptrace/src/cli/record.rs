//! `heaptrace record`: writes the updates of a run to a data file.
//!
//! Part of the command line. Must not know how a file is written (the profile stage does), nor how a run is
//! made (the session does).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::exit::exit_code;
use super::on_oom::OnOom;
use super::progress::{self, ProgressLine};
use super::rotation::Rotation;
use super::rotator::Rotator;
use super::{message, naming, unreachable_summary};
use crate::config::{KeptBlocks, RunConfig, Target};
use crate::create::Destination;
use crate::join::{OpenFiles, Update};
use crate::output::{Intervals, Metric, sudden_ends};
use crate::profile::{DataFileWriter, Profile, RunInfo};
use crate::session::{self, Observer, Progress};
use crate::symbolize::DebugSources;
use crate::text;
use crate::types;
use crate::view;

pub(super) fn run(
    config: &RunConfig,
    output: PathBuf,
    rotation: Option<Rotation>,
    on_oom: Option<OsString>,
) -> anyhow::Result<ExitCode> {
    // First: if the file can't be written, nothing must be started or probed.
    let destination = DataFileWriter::destination(&output)?;
    let on_oom = on_oom
        .map(|command| OnOom::start(command, &output))
        .transpose()?;
    let mut recorder = Recorder {
        path: output,
        destination,
        on_oom,
        greeting: greeting(config),
        rotator: rotation.map(|it| Rotator::new(it, &config.debug_dirs)),
        has_blocks: config.blocks != KeptBlocks::None,
        recording: None,
        line: ProgressLine::new(),
    };
    message::note_user(config);
    message::note_selection(config);
    let finished = session::run(config, &mut recorder)?;
    let Recorder {
        path,
        on_oom,
        rotator,
        recording,
        mut line,
        ..
    } = recorder;
    line.clear();
    let Recording {
        mut writer,
        profile,
        inspections,
    } = recording.context("the run ended before it began; nothing was recorded")?;
    // Looking up names takes memory.
    writer.forget_sites();
    // Now, while the files are open: they may be replaced at any time.
    let sources = DebugSources::in_folders(&config.debug_dirs);
    let mut symbols = naming::all(&profile, &finished.files, sources);
    symbols.types.complete(&inspections.types(&profile));
    writer.symbols(&symbols)?;
    writer.finish(finished.duration_ns)?;
    if let Some(mut rotator) = rotator {
        rotator.wait()?;
    }
    for note in &finished.notes {
        message::note(note);
    }
    if config.inspect_live {
        message::note(inspections.words());
    }
    message::say(summary(&profile, finished.duration_ns, &path));
    if let Some(on_oom) = on_oom {
        on_oom.finish();
    }
    Ok(finished.exit.map_or(ExitCode::SUCCESS, exit_code))
}

/// Writes every update to the data file, and keeps the profile that the updates add up to.
struct Recorder {
    path: PathBuf,
    destination: Destination,
    on_oom: Option<OnOom>,
    /// The message when the run begins.
    greeting: Option<String>,
    rotator: Option<Rotator>,
    /// Whether each block is kept. Then a new file begins with an update that has all live ones.
    has_blocks: bool,
    recording: Option<Recording>,
    line: ProgressLine,
}

struct Recording {
    writer: DataFileWriter,
    profile: Profile,
    inspections: types::Inspections,
}

impl Observer for Recorder {
    fn progress(&mut self, progress: Progress) {
        self.line.show(progress::words(progress));
    }

    fn started(&mut self, info: &RunInfo) -> anyhow::Result<()> {
        self.line.clear();
        if let Some(rotator) = &self.rotator {
            rotator.prepare(&self.destination, &self.path)?;
        }
        self.recording = Some(Recording {
            writer: DataFileWriter::create_at(&self.destination, &self.path, info)?,
            profile: Profile::new(info.clone()),
            inspections: types::Inspections::default(),
        });
        if let Some(words) = &self.greeting {
            message::say(words);
        }
        Ok(())
    }

    fn wants_live_blocks(&self, elapsed_ns: u64) -> bool {
        let writer = self.recording.as_ref().map(|it| &it.writer);
        let due = self.rotator.as_ref().zip(writer);
        self.has_blocks && due.is_some_and(|(rotator, writer)| rotator.is_due(writer, elapsed_ns))
    }

    fn update(&mut self, mut update: Update, files: &OpenFiles) -> anyhow::Result<()> {
        let recording = self
            .recording
            .as_mut()
            .context("an update came before the run began")?;
        let Recording {
            writer,
            profile,
            inspections,
        } = recording;
        for changes in &update.blocks {
            if let Some(inspected) = &changes.inspected {
                inspections.add(changes.owner.serial, inspected);
            }
        }
        let on_oom = self.on_oom.as_mut();
        let killed = on_oom.as_ref().map(|it| it.killed(&update));
        let live_blocks = update.live_blocks.take();
        writer.update(&update)?;
        profile.fold(update)?;
        if let Some(rotator) = &mut self.rotator {
            let is_due = match self.has_blocks {
                true => live_blocks.is_some(),
                false => rotator.is_due(writer, profile.duration_ns),
            };
            if is_due {
                let blocks = live_blocks.unwrap_or_default();
                rotator.rotate(
                    &self.destination,
                    &self.path,
                    writer,
                    profile,
                    files,
                    blocks,
                )?;
            }
        }
        // The command reads the file.
        if let Some((on_oom, killed)) = on_oom.zip(killed) {
            on_oom.run(killed);
        }
        Ok(())
    }
}

/// The message when the run begins: that attaching is over, and when the run ends. None for a command, whose
/// own output is not disturbed.
fn greeting(config: &RunConfig) -> Option<String> {
    let end = match (&config.target, config.duration) {
        (Target::Command(_), _) => return None,
        (_, Some(duration)) => format!("for {duration:?}"),
        (_, None) => "until Ctrl-C".to_owned(),
    };
    Some(format!(
        "heaptrace: tracing {} {end}",
        config.describe_target()
    ))
}

/// The summary at the end: what was recorded, what was lost, and the next commands.
fn summary(profile: &Profile, duration_ns: u64, path: &Path) -> String {
    let totals = &profile.totals;
    let shown = path.display();
    let intervals = Intervals::of(profile);
    let of = |metric| view::number(metric, totals, &intervals);
    let (unfreed, blocks, words) = match Metric::unfreed(profile) {
        Metric::LeftBytes => (Metric::LeftBytes, Metric::LeftAllocations, "left at exit"),
        _ => (
            Metric::LiveBytes,
            Metric::LiveAllocations,
            "live at the end",
        ),
    };
    let mut lines = vec![
        format!(
            "heaptrace: recorded {} in {shown}: {} allocations, {}",
            text::duration(duration_ns),
            of(Metric::TotalAllocations),
            of(Metric::TotalBytes),
        ),
        format!(
            "  {words} {} in {} blocks, peak {}",
            of(unfreed),
            of(blocks),
            of(Metric::PeakBytes),
        ),
    ];
    const MOST_ENDS: usize = 5;
    let argument = if path == Path::new("heaptrace.data") {
        String::new()
    } else {
        format!(" {shown}")
    };
    lines.extend(unreachable_summary::lines(profile, &argument));
    let ends = sudden_ends(profile);
    lines.extend(ends.iter().take(MOST_ENDS).map(|it| format!("  {it}")));
    if ends.len() > MOST_ENDS {
        let rest = text::count((ends.len() - MOST_ENDS) as u64);
        lines.push(format!("  and {rest} more that crashed or were killed"));
    }
    lines.extend(
        profile
            .quality
            .lost
            .iter()
            .filter(|&(_, &count)| count > 0)
            .map(|(reason, &count)| format!("  lost {} ({reason})", text::count(count))),
    );
    if totals.allocations == 0 {
        let verb = if profile.info.mode.is_sampled() {
            "sampled"
        } else {
            "seen"
        };
        lines.push(format!(
            "  no allocation was {verb}; the target may not have allocated while it was traced"
        ));
    }
    lines.push(format!(
        "  next: heaptrace report{argument}, heaptrace flamegraph{argument}, or heaptrace pprof{argument}"
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Location, Totals};
    use crate::profile::{RunEnd, read};

    fn update() -> Update {
        Update {
            elapsed_ns: 5,
            locations: vec![Location {
                module: None,
                address: 7,
                function: None,
            }],
            totals: Totals {
                allocations: 3,
                allocated_bytes: 4096,
                ..Totals::default()
            },
            ..Update::default()
        }
    }

    /// Check that after each update the file contains the same profile as the recorder, while the run
    /// continues.
    #[test]
    fn the_file_has_every_update() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let mut recorder = Recorder {
            destination: Destination::open(&path).unwrap(),
            path,
            on_oom: None,
            greeting: None,
            rotator: None,
            has_blocks: false,
            recording: None,
            line: ProgressLine::new(),
        };
        recorder.started(&RunInfo::exact("ls")).unwrap();
        recorder.update(update(), &OpenFiles::default()).unwrap();
        let read = read(&recorder.path).unwrap();
        assert_eq!(read.profile.end, RunEnd::CutOff);
        assert_eq!(read.profile, recorder.recording.unwrap().profile);
    }

    /// Check that a full disk ends the run with an error that names the file and the reason.
    #[test]
    fn a_full_disk_is_an_error() {
        let mut recorder = Recorder {
            path: "/dev/full".into(),
            destination: Destination::open(Path::new("/dev/full")).unwrap(),
            on_oom: None,
            greeting: None,
            rotator: None,
            has_blocks: false,
            recording: None,
            line: ProgressLine::new(),
        };
        let error = recorder.started(&RunInfo::exact("ls")).unwrap_err();
        let message = format!("{error:#}");
        assert!(
            message.contains("/dev/full") && message.contains("No space left"),
            "{message}"
        );
    }

    /// Check that the summary names losses, and the file if it is not the default file.
    #[test]
    fn the_summary_names_file_and_losses() {
        let mut profile = Profile::new(RunInfo::exact("ls"));
        profile.fold(update()).unwrap();
        let text = summary(&profile, 2_000_000_000, Path::new("heaptrace.data"));
        assert!(
            text.contains("recorded 2.00 s in heaptrace.data: 3 allocations, 4.0 KiB"),
            "{text}"
        );
        assert!(text.contains("heaptrace report, "), "{text}");
        assert!(
            !text.contains("lost") && !text.contains("no allocation"),
            "{text}"
        );
        profile.quality.lost.insert("ring full".into(), 1000);
        profile.totals = Totals::default();
        let text = summary(&profile, 2_000_000_000, Path::new("other"));
        assert!(text.contains("lost 1,000 (ring full)"), "{text}");
        assert!(text.contains("heaptrace report other, "), "{text}");
        assert!(text.contains("no allocation was seen"), "{text}");
    }
}
