//! The machine and a store's surroundings, for the report.

use std::fs;
use std::path::Path;

use aws_lc_rs::hmac;

use super::block::{self, BlockDevice};
use crate::model::{Machine, StoreFacts};

/// Instructions that matter to ciphers, by the kernel's names for them on x86-64 and on arm64.
const FEATURES: [&str; 16] = [
    "aes",
    "vaes",
    "pclmulqdq",
    "vpclmulqdq",
    "pmull",
    "sha_ni",
    "sha1",
    "sha2",
    "sha3",
    "sha512",
    "avx2",
    "avx512f",
    "avx512vl",
    "gfni",
    "asimd",
    "sve",
];

/// This machine. What cannot be had is empty, zero or `None`.
pub fn machine() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |names: &[&str]| field_of(&cpuinfo, names).unwrap_or_default();
    let flags = field(&["flags", "Features"]);
    let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
    let features = FEATURES.iter().filter(|name| flags.contains(name));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_kib = field_of(&memory, &["MemTotal"])
        .and_then(|said| said.trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0);
    Machine {
        id: id(),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        processor: field(&["model name", "Processor", "cpu model"]),
        processors: std::thread::available_parallelism()
            .map_or(0, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
        features: features.map(|name| (*name).to_owned()).collect(),
        memory_bytes: memory_kib * 1024,
        governor: fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            .ok()
            .map(|said| said.trim().to_owned()),
        virtual_machine: flags.contains(&"hypervisor")
            || Path::new("/sys/hypervisor/type").exists(),
    }
}

/// A number that distinguishes this machine from others and reveals nothing about it: machine-id(5) asks that the id itself be
/// shown to nobody.
fn id() -> String {
    let said = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if said.trim().is_empty() {
        return String::new();
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, said.trim().as_bytes());
    let digest = hmac::sign(&key, b"strongroom bench machine");
    digest.as_ref()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn field_of(text: &str, names: &[&str]) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        names
            .contains(&name.trim())
            .then(|| value.trim().to_owned())
    })
}

/// What the kernel knows of the place a store is in: file system, mount options, device. `at` is where its bytes are.
pub fn store_facts(at: &Path) -> StoreFacts {
    let mount = mount::table::containing(at);
    let devices = block::beneath(at);
    let named = |device: &BlockDevice| match device.model() {
        Some(model) => format!("{} ({model})", device.name),
        None => device.name.clone(),
    };
    let chain: Vec<String> = devices.iter().map(named).collect();
    StoreFacts {
        file_system: mount.as_ref().map(|mount| mount.kind.clone()),
        mount_options: mount.map(|mount| mount.options),
        device: (!chain.is_empty()).then(|| chain.join(" on ")),
        ..StoreFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let here = machine();
        assert!(!here.kernel.is_empty() && here.processors > 0 && here.memory_bytes > 1 << 20);
        let said = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        assert!(said.trim().is_empty() || !here.id.contains(said.trim()));
    }

    #[test]
    fn a_directory_of_memory_has_a_file_system_and_no_device() {
        let facts = store_facts(Path::new("/dev/shm"));
        assert_eq!(facts.file_system.as_deref(), Some("tmpfs"));
        assert_eq!(facts.device, None);
    }
}
