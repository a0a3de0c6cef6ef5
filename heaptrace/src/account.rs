//! A user account: the ids, groups, home folder and shell that a program needs to run as that user.
//!
//! No stage; imports none. Queries the system's user database, and changes the user of a process.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

/// The kernel's limit of groups per user.
const MAX_GROUPS: usize = 65_536;

/// A user account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: OsString,
    /// Its user id.
    pub uid: u32,
    /// Id of its first group.
    pub gid: u32,
    /// Ids of all its groups.
    pub groups: Vec<u32>,
    /// Its home folder.
    pub home: OsString,
    /// Its shell.
    pub shell: OsString,
}

impl Account {
    /// Finds a user by name or id.
    pub fn find(text: &str) -> Option<Self> {
        let name = CString::new(text).ok()?;
        let by_name = look_up(|entry, buffer, found| {
            // SAFETY: all pointers are valid, and the length is that of the buffer.
            unsafe {
                libc::getpwnam_r(
                    name.as_ptr(),
                    entry,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    found,
                )
            }
        });
        by_name.or_else(|| Self::with_id(text.parse().ok()?))
    }

    /// Finds a user by id alone: a name can be a number, too.
    fn with_id(uid: u32) -> Option<Self> {
        look_up(|entry, buffer, found| {
            // SAFETY: all pointers are valid, and the length is that of the buffer.
            unsafe { libc::getpwuid_r(uid, entry, buffer.as_mut_ptr(), buffer.len(), found) }
        })
    }

    /// The user that called `sudo`, if that is not root; `None` if this process runs as the user that started it.
    pub fn caller() -> io::Result<Option<Self>> {
        // Any user can set the variable, so it is read only by root.
        let uid = std::env::var("SUDO_UID").ok();
        match uid.filter(|uid| rustix::process::geteuid().is_root() && uid != "0") {
            None => Ok(None),
            Some(uid) => uid
                .parse()
                .ok()
                .and_then(Self::with_id)
                .map(Some)
                .ok_or_else(|| {
                    io::Error::other(format!(
                        "there is no account of the user {uid}, who called sudo"
                    ))
                }),
        }
    }

    /// Sets the environment variables of a command that name the user. All others stay those of this process.
    pub fn set_environment(&self, command: &mut Command) {
        command
            .env("HOME", &self.home)
            .env("USER", &self.name)
            .env("LOGNAME", &self.name)
            .env("SHELL", &self.shell);
        for name in [
            "MAIL",
            "SUDO_COMMAND",
            "SUDO_GID",
            "SUDO_HOME",
            "SUDO_UID",
            "SUDO_USER",
        ] {
            command.env_remove(name);
        }
    }

    /// Changes the user of this process for good. It may run between fork and exec, so it only makes system calls.
    ///
    /// The kernel removes perf events, and with them the probes, from a process whose `exec` changes its user. This function
    /// changes all user ids before, so the `exec` changes none.
    pub fn assume(&self) -> io::Result<()> {
        let checked = |result: libc::c_int| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: the list has the given length; the other calls take no pointers.
        unsafe {
            checked(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            checked(libc::setresgid(self.gid, self.gid, self.gid))?;
            checked(libc::setresuid(self.uid, self.uid, self.uid))?;
        }
        pass_no_rights_on();
        Ok(())
    }
}

/// Takes care that programs that this process starts get no rights of it by themselves. An agent that is not root may have ambient
/// capabilities, which all of them would get. Kernels without such capabilities refuse the call, which does no harm.
pub fn pass_no_rights_on() {
    // SAFETY: a plain system call on this process alone.
    unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        );
    }
}

/// Looks up an entry with one of the C library's functions.
fn look_up(
    ask: impl Fn(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> libc::c_int,
) -> Option<Account> {
    let mut buffer = vec![0; 1 << 16];
    // SAFETY: the struct is integers and pointers, for which zero is a valid value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    let result = ask(&raw mut entry, &mut buffer, &raw mut found);
    if result != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call has set the entry's pointers to C strings in the buffer.
    let [name, home, shell] = [entry.pw_name, entry.pw_dir, entry.pw_shell]
        .map(|text| unsafe { OsStr::from_bytes(CStr::from_ptr(text).to_bytes()).to_owned() });
    Some(Account {
        uid: entry.pw_uid,
        gid: entry.pw_gid,
        groups: groups(&name, entry.pw_gid)?,
        name,
        home,
        shell,
    })
}

/// Ids of all groups of a user.
fn groups(name: &OsStr, first: u32) -> Option<Vec<u32>> {
    let name = CString::new(name.as_bytes()).ok()?;
    let mut groups = vec![0; MAX_GROUPS];
    let mut count = MAX_GROUPS as libc::c_int;
    // SAFETY: the name is a C string, and the count is the length of the list.
    let result =
        unsafe { libc::getgrouplist(name.as_ptr(), first, groups.as_mut_ptr(), &raw mut count) };
    if result < 0 {
        return None;
    }
    groups.truncate(count.try_into().ok()?);
    Some(groups)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn id(words: &[&str]) -> String {
        let output = Command::new("id").args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Check that users of this machine are found by name and by id as the command `id` shows them.
    #[test]
    fn users_match_the_command_id() {
        for name in ["root", "nobody", "daemon"] {
            let account = Account::find(name).unwrap();
            assert_eq!(account.name, name);
            assert_eq!(account.uid.to_string(), id(&["-u", name]));
            assert_eq!(account.gid.to_string(), id(&["-g", name]));
            let mut groups: Vec<String> = account.groups.iter().map(u32::to_string).collect();
            let mut expected: Vec<String> =
                id(&["-G", name]).split(' ').map(str::to_owned).collect();
            groups.sort();
            expected.sort();
            assert_eq!(groups, expected);
            assert_eq!(Account::find(&account.uid.to_string()).unwrap(), account);
        }
        assert_eq!(Account::find("no such user"), None);
        assert_eq!(Account::find("4294967294"), None);
    }
}
