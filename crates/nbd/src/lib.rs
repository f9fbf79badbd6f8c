//! Serves any device over the network block device protocol (NBD, fixed newstyle).

#![deny(unsafe_code)]
