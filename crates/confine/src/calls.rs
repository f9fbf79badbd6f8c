//! seccomp: the system calls that none of our processes needs, or that a profile does without.
//!
//! A list of what is refused, not of what is allowed: the C library, the cipher library and SQLite choose their calls by their
//! version, and a call that a list forgot would be an outage. What is on it enlarges what a taken-over process could do: other
//! processes, the kernel's rarely used parts, new programs, new kinds of sockets, machine code from data.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads, sock_filter,
};

use crate::{Error, Network, Profile};

/// Refused whatever the arguments.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd, libc::SYS_kcmp,
    // The tree of mounts, and name spaces.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount,
    libc::SYS_fspick, libc::SYS_open_tree, libc::SYS_mount_setattr, libc::SYS_pivot_root, libc::SYS_chroot,
    libc::SYS_setns, libc::SYS_unshare, libc::SYS_open_by_handle_at, libc::SYS_fanotify_init,
    // The kernel itself and the machine.
    libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load,
    libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_syslog,
    libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_adjtimex, libc::SYS_clock_adjtime,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_vhangup, libc::SYS_nfsservctl,
    // Large and rarely needed parts of the kernel.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_add_key, libc::SYS_request_key,
    libc::SYS_keyctl, libc::SYS_lookup_dcookie, libc::SYS_personality,
    // Other users.
    libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setreuid, libc::SYS_setregid, libc::SYS_setresuid, libc::SYS_setresgid,
    libc::SYS_setfsuid, libc::SYS_setfsgid, libc::SYS_setgroups, libc::SYS_capset,
];

/// Those that only this processor's kernel has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const REFUSED_HERE: &[c_long] = &[
    libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_kexec_file_load, libc::SYS_uselib,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[libc::SYS_kexec_file_load];

const IO_URING: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];
const PROGRAMS: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Flags of clone(2) that make name spaces.
const NAME_SPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Of ioctl(2): input put into a terminal, as if its user had typed it.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// Restricts all threads.
pub(crate) fn restrict(profile: &Profile) -> Result<(), Error> {
    let mut refused = refused(profile)?;
    // The same calls once more, under numbers of an ABI that nothing here is built for.
    #[cfg(target_arch = "x86_64")]
    refused.splice(0..0, refuse_x32());
    apply_filter_all_threads(&refused)?;
    // Its flags are in memory, where a filter cannot see them; the C library then uses clone(2).
    let absent = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    let absent = program(absent, SeccompAction::Errno(libc::ENOSYS as u32))?;
    Ok(apply_filter_all_threads(&absent)?)
}

fn refused(profile: &Profile) -> Result<BpfProgram, Error> {
    let mut calls = vec![REFUSED, REFUSED_HERE];
    if !profile.io_uring {
        calls.push(IO_URING);
    }
    if !profile.programs {
        calls.push(PROGRAMS);
    }
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = calls
        .into_iter()
        .flatten()
        .map(|call| (*call, vec![]))
        .collect();
    let spaces = NAME_SPACES.iter().map(|flag| rule(&[has(0, *flag as u64)]));
    rules.insert(libc::SYS_clone, spaces.collect::<Result<_, _>>()?);
    let injected = [TIOCSTI, TIOCLINUX].map(|code| rule(&[is(1, code)]));
    rules.insert(
        libc::SYS_ioctl,
        injected.into_iter().collect::<Result<_, _>>()?,
    );
    // Machine code is what was mapped from a file; no memory is both written and run.
    let (write, run) = (libc::PROT_WRITE as u64, libc::PROT_EXEC as u64);
    rules.insert(libc::SYS_mmap, vec![rule(&[has(2, write | run)])?]);
    rules.insert(libc::SYS_mprotect, vec![rule(&[has(2, run)])?]);
    rules.insert(libc::SYS_pkey_mprotect, vec![rule(&[has(2, run)])?]);
    let shown = rule(&[is(0, libc::PR_SET_DUMPABLE as u64)])?;
    rules.insert(libc::SYS_prctl, vec![shown]);
    let families: &[i32] = match profile.network {
        Network::None => &[libc::AF_UNIX],
        // The last one brings the resolver the machine's addresses.
        _ => &[
            libc::AF_UNIX,
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_NETLINK,
        ],
    };
    let other: Vec<_> = families.iter().map(|f| is_not(0, *f as u64)).collect();
    rules.insert(libc::SYS_socket, vec![rule(&other)?]);
    program(rules, SeccompAction::Errno(libc::EPERM as u32))
}

fn program(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    refusal: SeccompAction,
) -> Result<BpfProgram, Error> {
    let here = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, here)?;
    Ok(filter.try_into()?)
}

type Condition = (u8, SeccompCmpOp, u64);

/// The argument has all these bits.
fn has(argument: u8, bits: u64) -> Condition {
    (argument, SeccompCmpOp::MaskedEq(bits), bits)
}

fn is(argument: u8, value: u64) -> Condition {
    (argument, SeccompCmpOp::Eq, value)
}

fn is_not(argument: u8, value: u64) -> Condition {
    (argument, SeccompCmpOp::Ne, value)
}

/// Refuses a call that meets all of these.
fn rule(conditions: &[Condition]) -> Result<SeccompRule, Error> {
    let each = conditions.iter().map(|(argument, operator, value)| {
        // The kernel looks at the lower half of these arguments.
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    Ok(SeccompRule::new(each.collect::<Result<_, _>>()?)?)
}

/// seccomp(2): the ABI x32 has the numbers of x86-64 with a bit more. An old number, -1, is none of these.
#[cfg(target_arch = "x86_64")]
fn refuse_x32() -> [sock_filter; 4] {
    const X32_BIT: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    [
        // The number is at offset 0 of `struct seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, u32::MAX),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_BIT),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
    ]
}
