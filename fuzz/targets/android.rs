#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| volume::android::fuzzing::footer(data));
