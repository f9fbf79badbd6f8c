//! What a crash may leave.
