//! The programs of this package: how one finds another.

use std::path::PathBuf;

/// Environment variable by which `strongroom` names itself to the programs that it starts.
pub const PROGRAM_VARIABLE: &str = "STRONGROOM_PROGRAM";

/// The path of a program of this package: in the directory of the running one, else in PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let own = std::env::current_exe().ok();
    let beside = own.iter().filter_map(|own| own.parent()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(program))
        .find(|file| {
            let meta = file.metadata();
            meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}
