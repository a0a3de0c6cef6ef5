//! Lists the uprobe events that are defined, from a private mount of tracefs.
//!
//! Part of the harness. It knows nothing of heaptrace's event names.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};

const FSCONFIG_CMD_CREATE: i32 = 6;

/// Reads the file `uprobe_events` of tracefs.
///
/// The mount is seen by its descriptor alone. The machine may have tracefs mounted anywhere or nowhere, and a test
/// must leave no mount behind.
pub fn uprobe_events() -> Result<String> {
    // SAFETY: the name is a C string. The call returns a new descriptor or an error.
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
    // SAFETY: the descriptor is open. The call returns a new descriptor or an error.
    let mount = descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 0, 0) })
        .context("cannot mount a tracefs")?;
    // SAFETY: the descriptor is open and the name is a C string. The call returns a new descriptor or an error.
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
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(result)?) })
}
