//! The QEMU plugin.
