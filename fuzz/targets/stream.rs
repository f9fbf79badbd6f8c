#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| room::fuzzing::stream(data));
