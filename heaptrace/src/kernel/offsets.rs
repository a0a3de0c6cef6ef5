//! The offsets that the kernel program reads the kernel's structs at, from the kernel's own type information.
//!
//! Part of `kernel`. Must not know what the offsets are used for.

use anyhow::{Context as _, Result};

use super::btf::{Btf, BtfError};

/// The program's constants that are offsets. The type information, some megabytes, is freed again.
pub(super) fn of_kernel() -> Result<Vec<(&'static str, u32)>> {
    let kernel = std::fs::read("/sys/kernel/btf/vmlinux")
        .context("/sys/kernel/btf/vmlinux: this kernel gives no type information (BTF); `heaptrace doctor` says what is missing")?;
    let btf = Btf::parse(&kernel)?;
    let offset = |structure, member| btf.member_offset(structure, member);
    let changed = change_time(&btf)?;
    Ok(vec![
        ("TASK_TGID", offset("task_struct", "tgid")?),
        ("TASK_MM", offset("task_struct", "mm")?),
        (
            "TASK_FSBASE",
            offset("task_struct", "thread.fsbase").unwrap_or(0),
        ),
        ("TASK_SIGNAL", offset("task_struct", "signal")?),
        ("TASK_GROUP_LEADER", offset("task_struct", "group_leader")?),
        ("TASK_REAL_PARENT", offset("task_struct", "real_parent")?),
        ("TASK_COMM", offset("task_struct", "comm")?),
        (
            "TASK_START_BOOTTIME",
            offset("task_struct", "start_boottime")?,
        ),
        ("TASK_EXIT_CODE", offset("task_struct", "exit_code")?),
        (
            "SIGNAL_EXIT_CODE",
            offset("signal_struct", "group_exit_code")?,
        ),
        ("SIGNAL_OOM_MM", offset("signal_struct", "oom_mm")?),
        ("SIGNAL_LIVE", offset("signal_struct", "live")?),
        ("SIGNAL_MAX_RESIDENT", offset("signal_struct", "maxrss")?),
        (
            "MM_LOCK_SEQ",
            offset("mm_struct", "mm_lock_seq").unwrap_or(0),
        ),
        ("MM_MAPPING_TREE", mapping_tree(&btf).unwrap_or(0)),
        ("VMA_START", offset("vm_area_struct", "vm_start")?),
        ("VMA_END", offset("vm_area_struct", "vm_end")?),
        ("VMA_PGOFF", offset("vm_area_struct", "vm_pgoff")?),
        ("VMA_FILE", offset("vm_area_struct", "vm_file")?),
        ("VMA_MM", offset("vm_area_struct", "vm_mm")?),
        (
            "VMA_REFERENCES",
            offset("vm_area_struct", "vm_refcnt").unwrap_or(0),
        ),
        (
            "VMA_DETACHED",
            offset("vm_area_struct", "detached").unwrap_or(0),
        ),
        ("MM_VDSO", offset("mm_struct", "context.vdso")?),
        ("MM_START_CODE", offset("mm_struct", "start_code")?),
        ("MM_END_CODE", offset("mm_struct", "end_code")?),
        ("MM_START_STACK", offset("mm_struct", "start_stack")?),
        ("FILE_INODE", offset("file", "f_inode")?),
        ("INODE_NUMBER", offset("inode", "i_ino")?),
        ("INODE_SUPER", offset("inode", "i_sb")?),
        ("INODE_CHANGE_SECONDS", changed.0),
        ("INODE_CHANGE_NANOSECONDS", changed.1),
        ("SUPER_DEVICE", offset("super_block", "s_dev")?),
    ])
}

/// The offset of the pointer to the root of an address space's tree of mappings; `None` if its nodes have another form than the kernel
/// program knows.
fn mapping_tree(btf: &Btf<'_>) -> Option<u32> {
    let offset = |structure, member| btf.member_offset(structure, member).ok();
    let nodes = ["maple_range_64", "maple_arange_64"]
        .map(|node| ["parent", "pivot", "slot"].map(|member| offset(node, member)));
    let known = [[0, 8, 128], [0, 8, 80]].map(|node| node.map(Some));
    if nodes != known {
        return None;
    }
    Some(offset("mm_struct", "mm_mt")? + offset("maple_tree", "ma_root")?)
}

/// The offsets of the seconds and nanoseconds of an inode's last change. They are two members since Linux
/// 6.11. Before, they were one member, under two names.
fn change_time(btf: &Btf<'_>) -> Result<(u32, u32), BtfError> {
    let offset = |member| btf.member_offset("inode", member);
    if let (Ok(seconds), Ok(nanoseconds)) = (offset("i_ctime_sec"), offset("i_ctime_nsec")) {
        return Ok((seconds, nanoseconds));
    }
    let time = offset("__i_ctime").or_else(|_| offset("i_ctime"))?;
    Ok((time, time + 8))
}
