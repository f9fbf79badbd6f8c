//! Opens what a crash left and compares it with what is allowed.
