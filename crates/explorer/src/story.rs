//! A failure as a short story.
