//! Counts the entries of a tracer's BPF maps.
//!
//! Part of the harness. It asks the kernel, and not the tracer.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, ensure};

const BPF_MAP_GET_NEXT_KEY: libc::c_long = 4;
const BPF_MAP_GET_FD_BY_ID: libc::c_long = 14;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

/// The type of hash maps, whose entries come and go.
const HASH: u32 = 1;

/// The beginning of `struct bpf_map_info`, up to the map's name.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    name: [u8; 16],
}

/// The number of entries of each hash map of a process, by the map's name.
pub fn map_entries(pid: u32) -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let id = text.lines().find_map(|line| line.strip_prefix("map_id:"));
        let Some(id) = id else { continue };
        let map = open(id.trim().parse()?)?;
        let info = info(&map)?;
        if info.kind == HASH {
            let name = info.name.split(|byte| *byte == 0).next();
            let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
            found.insert(name, count(&map, info.key_size as usize)?);
        }
    }
    ensure!(!found.is_empty(), "process {pid} has no maps");
    Ok(found)
}

fn open(id: u32) -> Result<OwnedFd> {
    let mut attributes = [u64::from(id), 0];
    let fd = bpf(BPF_MAP_GET_FD_BY_ID, &mut attributes).context("a map is gone")?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn info(map: &OwnedFd) -> Result<Info> {
    let mut info = Info::default();
    let mut attributes = [
        map.as_raw_fd() as u64 | (size_of::<Info>() as u64) << 32,
        &raw mut info as u64,
    ];
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
    Ok(info)
}

fn count(map: &OwnedFd, key_size: usize) -> Result<u64> {
    let (mut key, mut next) = (vec![0_u8; key_size], vec![0_u8; key_size]);
    let mut count = 0;
    loop {
        let from = if count == 0 { 0 } else { key.as_ptr() as u64 };
        let mut attributes = [map.as_raw_fd() as u64, from, next.as_mut_ptr() as u64];
        match bpf(BPF_MAP_GET_NEXT_KEY, &mut attributes) {
            Ok(_) => count += 1,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(count),
            Err(error) => return Err(error.into()),
        }
        key.copy_from_slice(&next);
    }
}

fn bpf<const N: usize>(command: libc::c_long, attributes: &mut [u64; N]) -> std::io::Result<i32> {
    // SAFETY: the attributes have the length that is passed, and the memory that they point to outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of::<[u64; N]>(),
        )
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(result as i32)
}
