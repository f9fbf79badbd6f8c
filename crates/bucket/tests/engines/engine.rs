//! The engine of a test program: one server for all tests, each of which has rooms of its own.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::Engine;

pub(crate) static ENGINE: LazyLock<Engine> = LazyLock::new(Engine::shared);

/// The directory with all that the server has, which is on disk then.
pub(crate) fn stored() -> PathBuf {
    ENGINE.stored()
}

pub(crate) fn place() -> Option<String> {
    Some(ENGINE.place())
}
