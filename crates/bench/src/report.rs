//! One document, shown three ways: a terminal's table, JSON, a page.

pub mod json;
pub mod words;
