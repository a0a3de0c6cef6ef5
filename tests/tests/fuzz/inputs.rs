//! The inputs of a boundary: committed corpora, real files, generated files, and changed copies of these.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use heaptrace::fuzz::Boundary;
use heaptrace::unwind::vdso;
use heaptrace_tests::{Random, workspace};

use crate::frames::{self, Harm};
use crate::mutate::changed;

/// The most inputs that are kept because they gave a new result.
const MOST_KEPT: usize = 512;

/// The inputs of a boundary.
pub(crate) struct Inputs {
    boundary: &'static Boundary,
    random: Random,
    known: Vec<Vec<u8>>,
    /// How many of them were known at the beginning. These stay.
    committed: usize,
    seen: std::collections::HashSet<u64>,
}

/// The folder of a boundary's corpus, as cargo-fuzz expects it.
pub(crate) fn folder(boundary: &Boundary) -> PathBuf {
    workspace().join("fuzz/corpus").join(boundary.name)
}

/// The committed inputs of a boundary, sorted by name.
pub(crate) fn corpus(boundary: &Boundary) -> Result<Vec<Vec<u8>>> {
    let folder = folder(boundary);
    let context = || format!("no corpus in {}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(context)? {
        paths.push(entry?.path());
    }
    // The order must be the same everywhere, or a seed would give other inputs on each machine.
    paths.sort();
    paths.iter().map(|path| Ok(fs::read(path)?)).collect()
}

impl Inputs {
    pub(crate) fn new(boundary: &'static Boundary, seed: u64) -> Result<Self> {
        let mut known = corpus(boundary)?;
        if matches!(boundary.name, "unwind_table" | "debug_links" | "allocators") {
            known.extend(real_files(boundary.longest)?);
        }
        Ok(Self {
            boundary,
            random: Random(seed),
            committed: known.len(),
            known,
            seen: std::collections::HashSet::new(),
        })
    }

    /// The next input: first the known ones, then changed copies of them.
    pub(crate) fn next(&mut self, number: u64) -> Vec<u8> {
        if let Some(first) = usize::try_from(number)
            .ok()
            .and_then(|at| self.known.get(at))
            && number < self.committed as u64
        {
            return first.clone();
        }
        let random = &mut self.random;
        if self.boundary.name == "unwind_table" && random.below(2) == 0 {
            return frames::file(random, Harm::Much);
        }
        if self.known.is_empty() || random.below(200) == 0 {
            let most = 1 << random.below(9);
            let length = random.below(most);
            return (0..length).map(|_| random.number() as u8).collect();
        }
        let input = random.below(self.known.len());
        let other = random.below(self.known.len());
        let (input, other) = (&self.known[input], &self.known[other]);
        changed(&mut self.random, input, other, self.boundary.longest)
    }

    /// Keeps an input that gave a new result.
    pub(crate) fn saw(&mut self, input: Vec<u8>, what: u64) {
        if what == 0 || self.seen.len() >= 1 << 16 || !self.seen.insert(what) {
            return;
        }
        if self.known.len() < self.committed + MOST_KEPT {
            self.known.push(input);
        } else {
            let place = self.committed + self.random.below(MOST_KEPT);
            self.known[place] = input;
        }
    }

    /// The number of different results.
    pub(crate) fn variety(&self) -> usize {
        self.seen.len()
    }
}

/// The vDSO, a small real file that other tools made.
fn real_files(longest: usize) -> Result<Vec<Vec<u8>>> {
    let mut image = Vec::new();
    let mut file = vdso().context("no vDSO")?.file;
    std::io::Seek::rewind(&mut file)?;
    file.read_to_end(&mut image)?;
    image.truncate(longest);
    Ok(vec![image])
}
