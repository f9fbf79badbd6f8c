//! Each check made to fire on purpose.
