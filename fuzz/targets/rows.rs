#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strongroom_catalog::fuzzing::rows(data));
