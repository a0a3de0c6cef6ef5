//! What uprobes are registered by name, read from a tracefs that is mounted nowhere.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};

const FSCONFIG_CMD_CREATE: i32 = 6;

/// The file `uprobe_events` of tracefs.
///
/// A private mount, seen by its descriptor alone: the machine may have tracefs mounted anywhere or
/// nowhere, and a test should leave no mount behind.
pub fn uprobe_events() -> Result<String> {
    // SAFETY: the name is a C string; the call yields a new descriptor or an error.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), 0) })
        .context("cannot open tracefs")?;
    // SAFETY: the descriptor is open, and this command takes neither key nor value.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_char>(),
            0,
        )
    };
    if created != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot create a tracefs");
    }
    // SAFETY: the descriptor is open; the call yields a new descriptor or an error.
    let mount = descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 0, 0) })
        .context("cannot mount a tracefs")?;
    // SAFETY: the descriptor is open and the name a C string; a new descriptor or an error.
    let events = descriptor(i64::from(unsafe {
        libc::openat(
            mount.as_raw_fd(),
            c"uprobe_events".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    }))
    .context("tracefs has no uprobe_events")?;
    let mut text = String::new();
    File::from(events).read_to_string(&mut text)?;
    Ok(text)
}

fn descriptor(result: i64) -> Result<OwnedFd> {
    if result < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the kernel has just handed out this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(result)?) })
}
