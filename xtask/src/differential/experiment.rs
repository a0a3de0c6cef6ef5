//! One seed: a program, its build and its runs; and a minimal program where they differ.
//!
//! Part of differential. It must not know what a program does or how a difference is found.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use heaptrace_tests::Random;

use super::claims::Claims;
use super::compare::{self, Difference, Kind};
use super::feature::Features;
use super::print::print;
use super::program::Program;
use super::shrink::shrink;
use super::variant::{Build, Run};
use super::workshop::{Built, Workshop};
use super::{generate, trial};

/// How often a run beside the oracle is repeated if another tracer of the machine hides the oracle's callers, and how long
/// it waits before that.
const REPEATS: usize = 5;
const PAUSE: Duration = Duration::from_secs(3);

/// What a seed stands for.
pub(super) struct Experiment<'a> {
    workshop: &'a Workshop,
    seed: u64,
    program: Program,
    build: Build,
    runs: [Run; 2],
}

/// What came of it.
#[derive(Default)]
pub(super) struct Outcome {
    /// The language, the build and the runs.
    pub(super) variants: Vec<String>,
    pub(super) runs: u64,
    pub(super) processes: u64,
    pub(super) events: u64,
    /// Stacks that were cut because of their time, which is no difference.
    pub(super) cut: u64,
    /// What was printed for each run that differs.
    pub(super) differing: Vec<String>,
}

/// A run beside heaptrace.
#[derive(Default)]
struct Beside {
    differences: Vec<Difference>,
    claims: Claims,
    command: String,
    /// Stacks that were cut because of their time.
    cut: u64,
}

impl<'a> Experiment<'a> {
    pub(super) fn new(workshop: &'a Workshop, features: &Features, seed: u64) -> Self {
        let mut random = Random(seed);
        let language = generate::language(&mut random, features);
        let build = Build::random(&mut random, features, language);
        let runs = Run::random_pair(&mut random, features, &build);
        Self {
            workshop,
            seed,
            program: {
                let has_flood = runs.iter().any(|run| run.small_ring);
                generate::program(&mut random, features, language, &build, has_flood)
            },
            build,
            runs,
        }
    }

    /// Runs it. What differs is kept in a folder with the seed's name.
    pub(super) fn run(&self, patience: Duration) -> Result<Outcome> {
        let folder = self.workshop.folder(&self.seed.to_string())?;
        let mut outcome = Outcome::default();
        let language = format!("{:?}", self.program.language);
        outcome.variants = vec![language, self.build.to_string()];
        let built = match self.workshop.build(&self.program, &self.build, &folder) {
            Ok(built) => built,
            Err(error) => {
                let text = format!("it does not build: {error:#}");
                let error = [difference(Kind::Oracle, text)];
                outcome.differing.push(self.describe(None, &error, None));
                return Ok(outcome);
            }
        };
        let (alone, wrong) = self.beside_oracle(&self.program, &built);
        if !wrong.is_empty() {
            outcome
                .differing
                .push(self.describe(None, &wrong, Some(&built)));
            return Ok(outcome);
        }
        for run in &self.runs {
            outcome.variants.push(run.to_string());
            let beside = self.beside_heaptrace(&self.program, run, &built, &alone);
            let differences = beside.differences;
            outcome.runs += 1;
            outcome.processes += beside.claims.claims.len() as u64;
            outcome.events += beside.claims.events();
            outcome.cut += beside.cut;
            if differences.is_empty() {
                continue;
            }
            let mut text = self.describe(Some((run, &beside.command)), &differences, Some(&built));
            self.add_minimal(run, &differences, patience, &folder, &mut text)?;
            outcome.differing.push(text);
        }
        if outcome.differing.is_empty() {
            fs::remove_dir_all(&folder)?;
        } else {
            let path = folder.join("difference.txt");
            fs::write(&path, outcome.differing.join("\n\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(outcome)
    }

    fn beside_oracle(&self, program: &Program, built: &Built) -> (Claims, Vec<Difference>) {
        let alone = || trial::alone(self.workshop, &built.program, self.build.is_static());
        let mut claims = alone();
        for _ in 0..REPEATS {
            if !claims.as_ref().is_ok_and(Claims::are_callers_hidden) {
                break;
            }
            thread::sleep(PAUSE);
            claims = alone();
        }
        match claims {
            Ok(claims) if self.build.is_static() || self.build.wrapped => (claims, Vec::new()),
            Ok(claims) => {
                let wrong = compare::with_oracle(program, &claims);
                (claims, wrong)
            }
            Err(error) => {
                let text = format!("the program fails without heaptrace: {error:#}");
                (Claims::default(), vec![difference(Kind::Oracle, text)])
            }
        }
    }

    fn beside_heaptrace(
        &self,
        program: &Program,
        run: &Run,
        built: &Built,
        alone: &Claims,
    ) -> Beside {
        match trial::traced(self.workshop, &built.program, run) {
            Ok(trial) => {
                let found = compare::with_report(program, &self.build, run, &trial, alone);
                Beside {
                    differences: found,
                    cut: trial.report.cut_by_time(),
                    claims: trial.claims,
                    command: trial.command,
                }
            }
            Err(error) => {
                let kind = match trial::untraced(self.workshop, &built.program, run) {
                    Ok(_) => Kind::Run,
                    // The libraries that are preloaded don't get on with it.
                    Err(_) => Kind::Oracle,
                };
                Beside {
                    differences: vec![difference(kind, format!("{error:#}"))],
                    ..Beside::default()
                }
            }
        }
    }

    /// Makes the program smaller while one of the differences stays, and adds what remains to the text.
    fn add_minimal(
        &self,
        run: &Run,
        differences: &[Difference],
        patience: Duration,
        folder: &Path,
        text: &mut String,
    ) -> Result<()> {
        let name = format!("{}/minimal", self.seed);
        let small = self.workshop.folder(&name)?;
        let mut last = Vec::new();
        let named: Vec<&str> = differences.iter().map(|it| it.text.as_str()).collect();
        let program = shrink(&self.program, &named, patience, |candidate| {
            let found = self.again(candidate, run, &small);
            let is_same = |it: &Difference| differences.iter().any(|old| old.kind == it.kind);
            let stays = found.iter().any(is_same);
            if stays {
                last = found;
            }
            stays
        });
        let _ = write!(
            text,
            "\n  minimal program ({} of {} functions), in {}:",
            program.nodes().len(),
            self.program.nodes().len(),
            small.display()
        );
        for difference in last.iter().take(3) {
            let _ = write!(text, "\n    {difference}");
        }
        let source = print(&program);
        let path: PathBuf = folder.join("minimal.txt");
        let mut whole = source.main;
        for (number, library) in source.libraries {
            let _ = write!(whole, "\n// lib{number}:\n{library}");
        }
        fs::write(&path, &whole).with_context(|| format!("cannot write {}", path.display()))?;
        if let Ok(built) = self.workshop.build(&program, &self.build, &small) {
            let _ = write!(text, "\n  built: {}", built.commands.join("\n         "));
        }
        let (_, body) = whole.split_once("\n\n").unwrap_or(("", &whole));
        let body = if body.lines().count() < 120 {
            body
        } else {
            "    see minimal.txt"
        };
        let _ = write!(text, "\n{body}");
        Ok(())
    }

    /// The differences of another program, built and run in the same way.
    fn again(&self, program: &Program, run: &Run, folder: &Path) -> Vec<Difference> {
        let Ok(built) = self.workshop.build(program, &self.build, folder) else {
            return Vec::new();
        };
        let (alone, wrong) = self.beside_oracle(program, &built);
        if !wrong.is_empty() {
            return Vec::new();
        }
        self.beside_heaptrace(program, run, &built, &alone)
            .differences
    }

    fn describe(
        &self,
        run: Option<(&Run, &str)>,
        differences: &[Difference],
        built: Option<&Built>,
    ) -> String {
        let mut text = format!(
            "seed {}: {:?}, {}",
            self.seed, self.program.language, self.build
        );
        if let Some((run, command)) = run {
            let _ = write!(text, ", {run}\n  {command}");
        }
        for difference in differences.iter().take(8) {
            let _ = write!(text, "\n  {difference}");
        }
        if differences.len() > 8 {
            let _ = write!(text, "\n  and {} more", differences.len() - 8);
        }
        if let Some(built) = built.filter(|_| run.is_none()) {
            let _ = write!(text, "\n  built: {}", built.commands.join("\n         "));
        }
        text
    }
}

fn difference(kind: Kind, text: String) -> Difference {
    Difference { kind, text }
}
