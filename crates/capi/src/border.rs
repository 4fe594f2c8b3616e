//! The border to C: the functions of the header, and the calls that C provides. All `unsafe` of the
//! crate is here.

use crate::error::{Code, Problem, message};
use crate::manager::Manager;
use crate::types::{Calls, Config, Counts, Done, Mapping};
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Mutex, TryLockError};
use superpage_vm::SpaceId;

/// What C provides, if anything. To make one is to believe the header's conditions on the calls.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks(Option<Calls>);

// SAFETY: the header says that the functions are called in the thread that calls the manager, one
// at a time: `context` is for any thread, and is only passed on.
unsafe impl Send for Callbacks {}

/// Calls what is there, and returns what it returned.
macro_rules! call {
    ($callbacks:expr, $name:ident $(, $argument:expr)*) => {
        $callbacks.0.and_then(|calls| {
            // SAFETY: the header says what each function gets and that it returns; references to
            // mappings live as long as the call.
            calls.$name.map(|function| unsafe { function(calls.context $(, $argument)*) })
        })
    };
}

impl Callbacks {
    /// Page tables of C are changed and read by three functions: all or none must be there.
    fn new(calls: Option<Calls>) -> Result<Callbacks, Problem> {
        let partial = |calls: &Calls| {
            let there = [calls.map.is_some(), calls.unmap.is_some(), calls.used.is_some()];
            there.contains(&true) && there.contains(&false)
        };
        if calls.as_ref().is_some_and(partial) {
            return Err(Problem::new(Code::Null, "of the calls map, unmap and use, some are null: give all or none"));
        }
        Ok(Callbacks(calls))
    }

    pub(crate) fn map(&self, space: SpaceId, mapping: &Mapping) {
        call!(self, map, space.0, mapping);
    }

    pub(crate) fn unmap(&self, space: SpaceId, mapping: &Mapping) -> u32 {
        call!(self, unmap, space.0, mapping).unwrap_or(0)
    }

    pub(crate) fn used(&self, space: SpaceId, mapping: &Mapping, clear: u32) -> u32 {
        call!(self, used, space.0, mapping, clear).unwrap_or(0)
    }

    pub(crate) fn flush(&self, space: SpaceId, address: u64, bytes: u64) {
        call!(self, flush, space.0, address, bytes);
    }

    pub(crate) fn zero(&self, physical: u64, bytes: u64) {
        call!(self, zero, physical, bytes);
    }

    pub(crate) fn copy(&self, from: u64, to: u64, bytes: u64) {
        call!(self, copy, from, to, bytes);
    }
}

/// What a handle points to. The lock keeps calls from callbacks and from other threads out.
pub(crate) struct Superpage(Mutex<Manager>);

/// Threads may take turns with a handle, and a second one at the same time finds the lock taken.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Superpage>();
};

fn null(what: &str) -> Problem {
    Problem::new(Code::Null, format!("{what} is a null pointer"))
}

/// A text of C; `None` if it is null.
///
/// # Safety
/// It ends with a 0 and does not change as long as the result lives.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Problem> {
    let Some(text) = NonNull::new(text.cast_mut()) else { return Ok(None) };
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    text.to_str().map(Some).map_err(|error| Problem::value(format!("{what}: {error}")))
}

/// Puts a value where C wants it.
///
/// # Safety
/// The pointer is null, or to memory for the value that nobody else uses.
unsafe fn put<T>(value: T, to: *mut T, what: &str) -> Result<(), Problem> {
    let to = NonNull::new(to).ok_or_else(|| null(what))?;
    // SAFETY: as the caller promises; what was there need not be initialized, and is not dropped.
    unsafe { to.write(value) };
    Ok(())
}

/// Runs a call, and keeps why it failed. A panic ends here.
fn answer(call: impl FnOnce() -> Result<(), Problem>) -> Code {
    // Nobody sees what a panic leaves half changed: the handle's lock is poisoned then.
    let ended = catch_unwind(AssertUnwindSafe(call));
    let panicked = |_| Err(Problem::new(Code::Panicked, "the manager has a defect, and panicked; the handle is lost"));
    ended.unwrap_or_else(panicked).map_or_else(Problem::keep, |()| Code::Ok)
}

/// Runs a call on the manager of a handle.
///
/// # Safety
/// The handle is null, or one that [`superpage_new`] made and nobody freed.
unsafe fn on(handle: *const Superpage, call: impl FnOnce(&mut Manager) -> Result<(), Problem>) -> Code {
    answer(|| {
        // SAFETY: as the caller promises; the manager behind it is reached through its lock.
        let handle = unsafe { handle.as_ref() }.ok_or_else(|| null("manager"))?;
        call(&mut *lock(handle)?)
    })
}

fn lock(handle: &Superpage) -> Result<std::sync::MutexGuard<'_, Manager>, Problem> {
    handle.0.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Problem::new(Code::Busy, "another call with this manager is in progress"),
        TryLockError::Poisoned(_) => Problem::new(Code::Panicked, "the manager panicked in an earlier call"),
    })
}

/// The function of the header. Its pointer is valid until a call of this thread fails.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn superpage_message() -> *const c_char {
    message()
}

/// The function of the header.
///
/// # Safety
/// Pointers are null, or to what the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn superpage_new(config: *const Config, made: *mut *mut Superpage) -> Code {
    answer(|| {
        // SAFETY: null, or to a configuration, as the caller promises.
        let config = unsafe { config.as_ref() }.ok_or_else(|| null("config"))?;
        if made.is_null() {
            return Err(null("made"));
        }
        // SAFETY: null, or texts and calls, as the caller promises; they are not kept.
        let (sizes, policy, calls) =
            unsafe { (text(config.sizes, "sizes")?, text(config.policy, "policy")?, config.calls.as_ref().copied()) };
        let policy = policy.ok_or_else(|| null("policy"))?;
        let manager = Manager::new(config.memory, sizes, policy, Callbacks::new(calls)?)?;
        let handle = Box::into_raw(Box::new(Superpage(Mutex::new(manager))));
        // SAFETY: not null, so a place for a handle, as the caller promises.
        unsafe { put(handle, made, "made") }
    })
}

/// The function of the header.
///
/// # Safety
/// The handle is null, or one that [`superpage_new`] made and nobody freed, with no call in
/// progress in another thread.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn superpage_free(manager: *mut Superpage) -> Code {
    answer(|| {
        // SAFETY: as the caller promises.
        match unsafe { manager.as_ref() }.map(lock) {
            Some(Err(problem)) if problem.is(Code::Busy) => Err(problem),
            None => Ok(()),
            Some(locked) => {
                drop(locked);
                // SAFETY: it was made by `Box::into_raw`; no call is in progress in this thread,
                // and the header forbids those of other threads.
                drop(unsafe { Box::from_raw(manager) });
                Ok(())
            }
        }
    })
}

/// Defines functions of the header that call one of the manager, put its result, if any, where the
/// last argument says, and then perhaps call another.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $to:ident: $result:ty)? = $call:expr $(, then $after:expr)?;)*) => {$(
        /// The function of the header.
        ///
        /// # Safety
        /// The handle is null, or one that [`superpage_new`] made and nobody freed; other pointers
        /// are null, or to what the header says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            manager: *mut Superpage, $($argument: $type,)* $($to: *mut $result,)?
        ) -> Code {
            let call = |manager: &mut Manager| {
                $(if $to.is_null() {
                    return Err(null(stringify!($to)));
                })?
                let call: fn(&mut Manager, $($type),*) -> Result<_, Problem> = $call;
                let value = call(manager, $($argument),*)?;
                functions!(@put value $($to)?)$(.and_then(|()| $after(manager)))?
            };
            // SAFETY: as the caller promises.
            unsafe { on(manager, call) }
        }
    )*};
    (@put $value:ident) => { Ok::<(), Problem>($value) };
    (@put $value:ident $to:ident) => {
        // SAFETY: as the caller of the function promises.
        unsafe { put($value, $to, stringify!($to)) }
    };
}

functions! {
    superpage_create() -> space: u32 = |vm| Ok(vm.create());
    superpage_fork(parent: u32) -> child: u32 = Manager::fork;
    superpage_exit(space: u32) = Manager::exit;
    superpage_map(space: u32, address: u64, bytes: u64, rights: u32) = |vm, space, address, bytes, rights| {
        vm.map(space, (address, bytes), rights)
    };
    superpage_unmap(space: u32, address: u64, bytes: u64) = |vm, space, address, bytes| {
        vm.unmap(space, (address, bytes))
    };
    superpage_protect(space: u32, address: u64, bytes: u64, rights: u32) = |vm, space, address, bytes, rights| {
        vm.protect(space, (address, bytes), rights)
    };
    superpage_advise(space: u32, address: u64, bytes: u64, hint: u32) = |vm, space, address, bytes, hint| {
        vm.advise(space, (address, bytes), hint)
    };
    superpage_discard(space: u32, address: u64, bytes: u64) = |vm, space, address, bytes| {
        vm.discard(space, (address, bytes))
    };
    superpage_translate(space: u32, address: u64) -> found: Mapping = |vm, space, address| {
        vm.translate(space, address)
    };
    superpage_fault(space: u32, address: u64, access: u32) -> done: Done = Manager::fault;
    superpage_access(space: u32, address: u64, access: u32) -> done: Done = Manager::access;
    superpage_tick(now: u64, spent: u64) -> next: u64 = Manager::tick, then Manager::goes_on;
    superpage_wire() -> physical: u64 = Manager::wire;
    superpage_unwire(physical: u64) = Manager::unwire;
    superpage_get_counts() -> counts: Counts = |vm| Ok(vm.counts());
    superpage_validate() = |vm| vm.validate();
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_pages::Ladder;
    use superpage_vm::{Answers, Background, Definition, Made, Policy, System, Target, Time};

    #[test]
    fn a_panic_ends_at_the_border() {
        let manager = Manager::new(1 << 24, None, "base", Callbacks(None)).unwrap();
        let handle = Box::into_raw(Box::new(Superpage(Mutex::new(manager))));
        let mut space = 0;
        // SAFETY: it was made as `superpage_new` does, and is freed last.
        unsafe {
            assert_eq!(on(handle, |_| panic!("as a test")), Code::Panicked);
            assert_eq!(superpage_create(handle, &mut space), Code::Panicked);
            assert!(CStr::from_ptr(superpage_message()).to_str().unwrap().contains("panicked in an earlier call"));
            assert_eq!(superpage_free(handle), Code::Ok);
        }
    }

    /// A policy whose background cannot go on. None of those that C can name does that.
    #[derive(Debug)]
    struct Stuck;

    impl Background for Stuck {
        fn next(&self) -> Option<Time> {
            Some(7)
        }

        fn tick(&mut self, _: Time, _: &mut dyn System) {}

        fn failed(&self) -> Option<String> {
            Some("it is stuck".into())
        }
    }

    const STUCK: Definition = Definition {
        name: "stuck",
        paper: "",
        help: "",
        parameters: &[],
        needs: &[],
        make: |_| Made::with(Answers::BASE, Stuck),
    };

    #[test]
    fn a_background_that_cannot_go_on_is_refused_and_next_is_written() {
        let policy = Policy::of(&STUCK, [], &Target::MANAGER).unwrap();
        let manager = Manager::with(1 << 24, Ladder::X86_64, policy, Callbacks(None)).unwrap();
        let handle = Box::into_raw(Box::new(Superpage(Mutex::new(manager))));
        let mut next = 0;
        // SAFETY: it was made as `superpage_new` does, and is freed last.
        unsafe {
            assert_eq!(superpage_tick(handle, 5, 0, &mut next), Code::Refused);
            assert_eq!(next, 7);
            assert!(CStr::from_ptr(superpage_message()).to_str().unwrap().contains("it is stuck"));
            assert_eq!(superpage_free(handle), Code::Ok);
        }
    }

    #[test]
    fn a_defect_that_validate_finds_leaves_the_handle_usable() {
        let mut manager = Manager::new(1 << 24, None, "base", Callbacks(None)).unwrap();
        let space = manager.create();
        manager.map(space, (0, 4096), 3).unwrap();
        manager.access(space, 0, 2).unwrap();
        manager.lose_tables();
        let handle = Box::into_raw(Box::new(Superpage(Mutex::new(manager))));
        let mut space = 0;
        // SAFETY: it was made as `superpage_new` does, and is freed last.
        unsafe {
            assert_eq!(superpage_validate(handle), Code::Defect);
            assert_eq!(superpage_create(handle, &mut space), Code::Ok);
            assert_eq!(superpage_free(handle), Code::Ok);
        }
    }
}
