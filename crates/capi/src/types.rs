//! The structures of the header.

use std::ffi::{c_char, c_void};
use superpage_pages::MAX_LEVELS;

/// `struct superpage_mapping`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Mapping {
    pub(crate) address: u64,
    pub(crate) physical: u64,
    pub(crate) bytes: u64,
    pub(crate) rights: u32,
    pub(crate) bits: u32,
}

/// `SUPERPAGE_REFERENCED`.
pub(crate) const REFERENCED: u32 = 1;
/// `SUPERPAGE_MODIFIED`.
pub(crate) const MODIFIED: u32 = 2;

type Enter = unsafe extern "C" fn(*mut c_void, u32, *const Mapping);
type Leave = unsafe extern "C" fn(*mut c_void, u32, *const Mapping) -> u32;
type Use = unsafe extern "C" fn(*mut c_void, u32, *const Mapping, u32) -> u32;
type Flush = unsafe extern "C" fn(*mut c_void, u32, u64, u64);
type Zero = unsafe extern "C" fn(*mut c_void, u64, u64);
type Copy = unsafe extern "C" fn(*mut c_void, u64, u64, u64);

/// `struct superpage_calls`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Calls {
    pub(crate) context: *mut c_void,
    pub(crate) map: Option<Enter>,
    pub(crate) unmap: Option<Leave>,
    pub(crate) used: Option<Use>,
    pub(crate) flush: Option<Flush>,
    pub(crate) zero: Option<Zero>,
    pub(crate) copy: Option<Copy>,
}

/// `struct superpage_config`.
#[repr(C)]
pub(crate) struct Config {
    pub(crate) memory: u64,
    pub(crate) sizes: *const c_char,
    pub(crate) policy: *const c_char,
    pub(crate) calls: *const Calls,
}

/// `SUPERPAGE_HIT` and so on: how a fault was resolved.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Kind {
    Hit = 0,
    Zero = 1,
    ZeroPage = 2,
    Resident = 3,
    Copy = 4,
    Rights = 5,
    Spurious = 6,
    Other = 7,
}

/// `struct superpage_done`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Done {
    pub(crate) kind: u32,
    pub(crate) reserved: u32,
    pub(crate) zeroed: u64,
    pub(crate) copied: u64,
    pub(crate) mapping: Mapping,
}

/// `struct superpage_size_counts`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct SizeCounts {
    pub(crate) bytes: u64,
    pub(crate) mapped: u64,
    pub(crate) faults: u64,
    pub(crate) promotions: u64,
    pub(crate) demotions: u64,
    pub(crate) allocations: u64,
}

/// `struct superpage_counts`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Counts {
    pub(crate) faults: u64,
    pub(crate) faults_zero: u64,
    pub(crate) faults_zero_page: u64,
    pub(crate) faults_resident: u64,
    pub(crate) faults_copy: u64,
    pub(crate) faults_rights: u64,
    pub(crate) faults_out_of_memory: u64,
    pub(crate) promotions_at_fault: u64,
    pub(crate) promotions_by_copying: u64,
    pub(crate) reservations_made: u64,
    pub(crate) reservations_preempted: u64,
    pub(crate) reserved_found: u64,
    pub(crate) evictions: u64,
    pub(crate) bytes_zeroed: u64,
    pub(crate) bytes_copied: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) peak_resident_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) sizes: u64,
    pub(crate) size: [SizeCounts; MAX_LEVELS],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use std::mem::{offset_of, size_of};
    use std::path::Path;
    use std::process::Command;
    use superpage_pages::{Hint, Protection};

    /// The size of each structure and the offsets of its fields, in C and here; and constants.
    macro_rules! pairs {
        ($($name:literal $type:ty: $($c:ident $field:ident)*;)*) => {
            vec![$(
                (concat!("sizeof(struct ", $name, ")").to_string(), size_of::<$type>()),
                $((format!("offsetof(struct {}, {})", $name, stringify!($c)), offset_of!($type, $field)),)*
            )*]
        };
    }

    #[test]
    fn the_header_says_what_the_types_are() {
        let mut pairs = pairs! {
            "superpage_mapping" Mapping: address address physical physical bytes bytes rights rights bits bits;
            "superpage_calls" Calls: context context map map unmap unmap use used flush flush zero zero copy copy;
            "superpage_config" Config: memory memory sizes sizes policy policy calls calls;
            "superpage_done" Done: kind kind reserved reserved zeroed zeroed copied copied mapping mapping;
            "superpage_size_counts" SizeCounts: bytes bytes mapped mapped faults faults promotions promotions
                demotions demotions allocations allocations;
            "superpage_counts" Counts: faults faults faults_zero faults_zero faults_zero_page faults_zero_page
                faults_resident faults_resident faults_copy faults_copy faults_rights faults_rights
                faults_out_of_memory faults_out_of_memory promotions_at_fault promotions_at_fault
                promotions_by_copying promotions_by_copying reservations_made reservations_made
                reservations_preempted reservations_preempted reserved_found reserved_found
                evictions evictions bytes_zeroed bytes_zeroed bytes_copied bytes_copied
                resident_bytes resident_bytes peak_resident_bytes peak_resident_bytes
                free_bytes free_bytes sizes sizes size size;
        };
        let codes = [
            ("SUPERPAGE_OK", Code::Ok),
            ("SUPERPAGE_NULL", Code::Null),
            ("SUPERPAGE_VALUE", Code::Value),
            ("SUPERPAGE_NO_SPACE", Code::NoSpace),
            ("SUPERPAGE_UNMAPPED", Code::Unmapped),
            ("SUPERPAGE_PROTECTION", Code::Protection),
            ("SUPERPAGE_NO_MEMORY", Code::NoMemory),
            ("SUPERPAGE_REFUSED", Code::Refused),
            ("SUPERPAGE_BUSY", Code::Busy),
            ("SUPERPAGE_PANICKED", Code::Panicked),
            ("SUPERPAGE_DEFECT", Code::Defect),
        ];
        pairs.extend(codes.map(|(name, code)| (name.to_string(), code as usize)));
        let kinds = [
            ("HIT", Kind::Hit),
            ("ZERO", Kind::Zero),
            ("ZERO_PAGE", Kind::ZeroPage),
            ("RESIDENT", Kind::Resident),
            ("COPY", Kind::Copy),
            ("RIGHTS", Kind::Rights),
            ("SPURIOUS", Kind::Spurious),
            ("OTHER", Kind::Other),
        ];
        let rights = [("READ", Protection::READ), ("WRITE", Protection::WRITE), ("EXECUTE", Protection::EXECUTE)];
        let hints = [("NONE", Hint::None), ("HUGE", Hint::Huge), ("BASE", Hint::Base)];
        let bits = [("SIZES", MAX_LEVELS), ("REFERENCED", REFERENCED as usize), ("MODIFIED", MODIFIED as usize)];
        let constants = kinds.into_iter().map(|(name, kind)| (name.to_string(), kind as usize));
        let constants = constants.chain(rights.map(|(name, right)| (name.to_string(), usize::from(right.bits()))));
        let constants = constants.chain(hints.map(|(name, hint)| (format!("HINT_{name}"), hint as usize)));
        let constants = constants.chain(bits.map(|(name, value)| (name.to_string(), value)));
        pairs.extend(constants.map(|(name, value)| (format!("SUPERPAGE_{name}"), value)));
        let header = include_str!("../include/superpage.h");
        assert!(pairs.iter().all(|(name, _)| name.contains('(') || header.contains(name.as_str())));

        let printed = |(name, _): &(String, usize)| format!("printf(\"%zu\\n\", (size_t){name});\n");
        let lines: String = pairs.iter().map(printed).collect();
        let program = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include \"superpage.h\"\nint main(void) {{\n{lines}return 0;\n}}\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let [source, built] = ["sizes.c", "sizes"].map(|name| folder.path().join(name));
        std::fs::write(&source, program).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let Ok(compiled) =
            Command::new("cc").args(["-std=c99", "-I"]).arg(include).arg(&source).arg("-o").arg(&built).status()
        else {
            superpage_testing::skip!("cc", "no compiler");
            return;
        };
        assert!(compiled.success());
        let output = String::from_utf8(Command::new(&built).output().unwrap().stdout).unwrap();
        let there: Vec<usize> = output.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(there.len(), pairs.len());
        for ((name, here), there) in pairs.iter().zip(there) {
            assert_eq!(*here, there, "{name}");
        }
    }
}
