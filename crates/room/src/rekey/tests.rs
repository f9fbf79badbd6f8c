//! Tests of the rekey.
