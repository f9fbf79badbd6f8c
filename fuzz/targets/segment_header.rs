#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strongroom_segments::fuzzing::segment_header(data));
