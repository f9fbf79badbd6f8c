//! Faults that are not crashes: operations that fail, data that comes back damaged.
