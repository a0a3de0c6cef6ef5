//! Checks for fuzzers: properties that hold for any text of `/proc/PID/maps` and for any inspected file.
//!
//! Stage: probes.

use super::image::{self, Needs as Needed};
use super::placement::{Needs, Placer};
use crate::proc::build_id::Build;
use crate::proc::maps;
use crate::reader::{Job, decode, encode};
use crate::sys;

/// Checks that parsed mappings contain only text of the input.
pub(crate) fn maps(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let (mut count, mut paths) = (0, 0);
    for mapping in maps::parse(&text) {
        count += 1;
        paths += mapping.path.len();
        assert!(!mapping.path.contains('\n'));
    }
    assert!(paths <= text.len() && count <= text.lines().count());
    count as u64 * 8 + u64::from(paths.checked_ilog2().unwrap_or(0))
}

/// Checks that the reader's answer about any file passes the tracer's checks.
pub(crate) fn allocators(data: &[u8]) -> u64 {
    sys::file_in_memory("input", data).map_or(0, |file| {
        super::allocators::fuzz::answer(file, data.len() as u64)
    })
}

/// Checks that the reader's answer about any file's slots passes the tracer's checks.
pub(crate) fn slots(data: &[u8]) -> u64 {
    sys::file_in_memory("input", data).map_or(0, |file| {
        super::fast::slots::fuzz::answer(file, data.len() as u64)
    })
}

/// Checks that the needs of a program are bounded.
pub(crate) fn needs(data: &[u8]) -> u64 {
    let needs = image::needs(data);
    assert!(needs.libraries.len() <= 512);
    let texts = [needs.script.as_ref(), needs.loader.as_ref()];
    let texts = texts.into_iter().flatten().chain(&needs.libraries);
    for text in texts.chain([&needs.arguments, &needs.old_path, &needs.run_path]) {
        assert!(text.len() <= 4096 && text.len() <= data.len());
    }
    let has = [
        needs.script.is_some(),
        needs.loader.is_some(),
        !needs.old_path.is_empty(),
        !needs.run_path.is_empty(),
    ];
    let bits = has
        .into_iter()
        .fold(0, |bits, has| bits << 1 | u64::from(has));
    bits | (needs.libraries.len() as u64) << 4
}

/// Checks a reader's answer about a file's build id, needs, slots or allocators.
pub(crate) fn answer(job: Job, answer: &[u8]) -> u64 {
    match job {
        Job::Identify => decode::<Build>(answer).map_or(0, |build| {
            1 + build.id.len() as u64 + 2 * u64::from(build.address_of(0).is_some())
        }),
        Job::Needs => decode::<Needed>(answer).map_or(0, |needs| {
            assert!(decode::<Needed>(&encode(&needs)).as_ref() == Some(&needs));
            1 + needs.libraries.len() as u64
        }),
        Job::Slots => super::fast::slots::fuzz::check_answer(answer),
        _ => super::allocators::fuzz::check_answer(answer),
    }
}

/// Checks that a probe location is the entry, or an instruction behind it in the function, and that a copy of the
/// instructions up to it is sound.
pub(crate) fn placement(data: &[u8]) -> u64 {
    const PROGRAMS: [&str; 7] = [
        "malloc_entry",
        "calloc_entry",
        "realloc_entry",
        "free_entry",
        "heap_free_entry",
        "aligned_entry",
        "posix_memalign_entry",
    ];
    let Some((first, code)) = data.split_first() else {
        return 0;
    };
    let mut image = vec![0; 64];
    image[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
    image.extend(code);
    let Ok(file) = sys::file_in_memory("input", &image) else {
        return 0;
    };
    let size = match first >> 4 {
        0 => None,
        1 => Some(u64::MAX),
        2 => Some(u64::from(*first)),
        _ => Some(code.len() as u64),
    };
    let needs = PROGRAMS.get(usize::from(first & 15)).copied();
    let needs = needs.map_or(Needs::ALL, Needs::of);
    let placer = Placer::new(&file, (6, 18));
    let placement = placer.place(64, size, code.len() as u64, std::iter::empty(), needs);
    assert!(placement.offset == 0 || placement.offset < code.len() as u64);
    assert!(placement.offset == 0 || !placement.is_stepped());
    let again = placer.place(64, size, code.len() as u64, std::iter::empty(), needs);
    assert_eq!(placement, again);
    let behind = code.len() as u64;
    let skipped = placer.skipped(64, behind, placement.offset);
    let bytes = skipped.as_ref().map_or(0, |skipped| {
        assert!(skipped.is_sound(placement.offset, behind));
        let copy = skipped.copy_for(1 << 40, 1 << 40);
        assert!(copy.is_none_or(|copy| copy.len() == skipped.bytes.len()));
        skipped.bytes.len() as u64
    });
    1 + 2 * placement.offset + u64::from(placement.is_stepped()) + bytes * 256
}
