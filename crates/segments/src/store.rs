//! The directory store: one file a segment.
