//! Why a call fails: a code, and a sentence for people.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use superpage_vm::{Error, FaultError};

/// The codes of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Code {
    Ok = 0,
    Null = 1,
    Value = 2,
    NoSpace = 3,
    Unmapped = 4,
    Protection = 5,
    NoMemory = 6,
    Refused = 7,
    Busy = 8,
    Panicked = 9,
    Defect = 10,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Problem {
    code: Code,
    message: String,
}

thread_local! {
    /// The message of the last call that failed.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

impl Problem {
    pub(crate) fn new(code: Code, message: impl ToString) -> Problem {
        Problem { code, message: message.to_string() }
    }

    pub(crate) fn value(message: impl ToString) -> Problem {
        Problem::new(Code::Value, message)
    }

    pub(crate) fn is(&self, code: Code) -> bool {
        self.code == code
    }

    /// Keeps the message for this thread, and returns the code.
    pub(crate) fn keep(self) -> Code {
        let Problem { code, mut message } = self;
        message.retain(|letter| letter != '\0');
        let message = CString::new(message).unwrap_or_default();
        // A thread that ends has no place for it any more.
        let _ = MESSAGE.try_with(|kept| *kept.borrow_mut() = message);
        code
    }
}

/// The message that was kept last in this thread; empty if there is none.
pub(crate) fn message() -> *const c_char {
    MESSAGE.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(CStr::as_ptr(c""))
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let code = match error {
            Error::NoSpace(_) => Code::NoSpace,
            Error::Unmapped(_) => Code::Unmapped,
            Error::NoFrame => Code::NoMemory,
            Error::Frames(_) | Error::Range { .. } | Error::NotWired(_) => Code::Value,
            _ => Code::Refused,
        };
        Problem::new(code, error)
    }
}

impl From<FaultError> for Problem {
    fn from(error: FaultError) -> Problem {
        let code = match error {
            FaultError::NoSpace(_) => Code::NoSpace,
            FaultError::Unmapped(_) => Code::Unmapped,
            FaultError::Protection(..) => Code::Protection,
            FaultError::OutOfMemory(_) | FaultError::NoPoolPage(_) => Code::NoMemory,
            _ => Code::Refused,
        };
        Problem::new(code, error)
    }
}
