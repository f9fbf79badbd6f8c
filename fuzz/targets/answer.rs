#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strongroom_cli::fuzzing::answer(data));
