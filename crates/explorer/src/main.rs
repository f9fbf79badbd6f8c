//! The explorer's command line.

fn main() {}
