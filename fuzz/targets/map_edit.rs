#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::fuzzing::map_edit(data));
