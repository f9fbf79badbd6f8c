//! Failures of one try, and what they mean for the next: of the object store and of the log of commits.

use std::io;
use std::time::Duration;

use object_store::Error;

use crate::log::LogError;

/// One try of a request without its bytes; and the longest silence in the middle of an answer.
pub(crate) const TRY: Duration = Duration::from_secs(15);

/// Whether and how long a request is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Never,
    Briefly,
    UntilTheEnd,
}

/// How one try failed.
pub(crate) trait Fails {
    /// Between two tries.
    const LONGEST_PAUSE: Duration;
    fn again(&self) -> Again;
    fn kind(&self) -> io::ErrorKind;
    /// What a person reads.
    fn words(&self) -> String;
}

impl Fails for Error {
    const LONGEST_PAUSE: Duration = Duration::from_secs(3);

    fn again(&self) -> Again {
        match self {
            Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::Precondition { .. }
            | Error::NotImplemented { .. }
            | Error::NotSupported { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. } => Again::Never,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Again::Briefly,
            _ => Again::UntilTheEnd,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Error::NotFound { .. } => io::ErrorKind::NotFound,
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                io::ErrorKind::AlreadyExists
            }
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                io::ErrorKind::PermissionDenied
            }
            Error::NotImplemented { .. } | Error::NotSupported { .. } => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        }
    }

    fn words(&self) -> String {
        words(self)
    }
}

impl Fails for LogError {
    /// An engine that lost its leader has another one after a second or two, and clients of a metadata server wait for its commits.
    const LONGEST_PAUSE: Duration = Duration::from_millis(400);

    fn again(&self) -> Again {
        match self {
            LogError::Unanswered(_) => Again::UntilTheEnd,
            LogError::Forbidden(_) => Again::Briefly,
            LogError::Refused(..) => Again::Never,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            LogError::Unanswered(_) => io::ErrorKind::Other,
            LogError::Forbidden(_) => io::ErrorKind::PermissionDenied,
            LogError::Refused(kind, _) => *kind,
        }
    }

    fn words(&self) -> String {
        match self {
            LogError::Unanswered(why) | LogError::Forbidden(why) | LogError::Refused(_, why) => {
                why.clone()
            }
        }
    }
}

/// An error with its causes, in one line: stores quote whole answers.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
