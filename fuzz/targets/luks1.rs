#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| volume::luks::fuzzing::luks1(data));
