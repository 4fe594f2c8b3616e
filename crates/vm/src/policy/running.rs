//! A policy at work in a manager: its answers, what map entries prefer to them, its background, and
//! the events that this asks for.

use super::Policy;
use super::answers::{Answers, Hints};
use super::background::{Background, Event, Events, Prefer, Time, Wants};
use crate::{Address, Error, Fault, FaultError, SpaceId, Why};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use superpage_pages::{Hint, Level, PageRange, Vpn};

/// A policy that a manager runs.
pub(crate) struct Running {
    /// They never change.
    pub(crate) answers: Answers,
    /// What map entries may prefer, by number; the first is nothing.
    preferences: Vec<Prefer>,
    background: Option<Box<dyn Background>>,
    events: Events,
    wants: Wants,
    /// When the background was last called.
    now: Time,
    /// By reason: regions that were not promoted.
    refused: [u64; Why::ALL.len()],
}

impl Running {
    pub(crate) fn new(policy: &Policy) -> Running {
        let background = policy.background();
        let asks = background.as_ref();
        Running {
            answers: policy.answers,
            preferences: vec![Prefer::default()],
            events: asks.map(|background| background.events()).unwrap_or_default(),
            wants: asks.map(|background| background.wants()).unwrap_or_default(),
            background,
            now: 0,
            refused: [0; Why::ALL.len()],
        }
    }

    /// The answers in a map entry that prefers something, by number, or where the program's hint
    /// changes them; `None`: the policy's.
    #[inline]
    pub(crate) fn answers_in(&self, prefer: u16, hint: Hint) -> Option<Answers> {
        let place = &self.answers.place;
        let hinted = place.hinted.filter(|_| hint == Hint::Huge && place.hints != Hints::Ignored);
        if prefer == 0 && hinted.is_none() {
            return None;
        }
        let (prefer, mut answers) = (self.preferences[prefer as usize], self.answers);
        answers.place.frames = prefer.place.unwrap_or(answers.place.frames);
        answers.place.size = prefer.size.unwrap_or(answers.place.size);
        if let Some(hinted) = hinted {
            answers.place.size = prefer.hinted.unwrap_or(hinted);
        }
        answers.scarce.then = prefer.scarce.unwrap_or(answers.scarce.then);
        Some(answers)
    }

    /// What entries with this number prefer.
    pub(crate) fn preference(&self, number: u16) -> &Prefer {
        &self.preferences[number as usize]
    }

    /// The number of a preference: one that is known, or the next.
    pub(crate) fn number_of(&self, prefer: &Prefer) -> Result<u16, Error> {
        let known = self.preferences.iter().position(|known| known == prefer);
        u16::try_from(known.unwrap_or(self.preferences.len())).map_err(|_| Error::Preferences)
    }

    /// Entries have this preference, by the number that [`Running::number_of`] returned.
    pub(crate) fn keep(&mut self, number: u16, prefer: Prefer) {
        if number as usize == self.preferences.len() {
            self.preferences.push(prefer);
        }
    }

    pub(crate) fn events(&self) -> Events {
        self.events
    }

    pub(crate) fn wants(&self) -> &Wants {
        &self.wants
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn background(&self) -> Option<&dyn Background> {
        self.background.as_deref()
    }

    /// Takes the background out, to be called at this time; [`Running::resume`] puts it back.
    pub(crate) fn suspend(&mut self, now: Time) -> Option<Box<dyn Background>> {
        let background = self.background.take()?;
        debug_assert!(now >= self.now, "time never decreases");
        self.now = now;
        Some(background)
    }

    pub(crate) fn resume(&mut self, background: Box<dyn Background>) {
        self.background = Some(background);
    }

    /// Tells the background of something that it wants to know.
    #[cold]
    pub(crate) fn tell(&mut self, event: Event) {
        if let Some(background) = &mut self.background {
            background.notify(event);
        }
    }

    /// Tells the background how a fault ended, as far as it wants to know.
    #[cold]
    fn tell_fault(&mut self, at: Address, hint: Hint, ended: &Result<Fault, FaultError>) {
        match *ended {
            Ok(Fault { kind, wanted, mapped, allocated, .. }) => {
                if self.wants.fault {
                    self.tell(Event::Fault { at, kind, wanted, mapped });
                }
                if self.wants.starved && allocated.is_some_and(|allocated| allocated < wanted) {
                    self.tell(Event::Starved { level: wanted, hint });
                }
            }
            Err(FaultError::OutOfMemory(_)) if self.wants.starved => {
                self.tell(Event::Starved { level: Level::BASE, hint });
            }
            Err(_) => {}
        }
    }

    /// A fault in an entry with this hint has ended.
    #[inline]
    pub(crate) fn fault_ended(&mut self, at: Address, hint: Hint, ended: &Result<Fault, FaultError>) {
        if self.wants.fault || self.wants.starved {
            self.tell_fault(at, hint, ended);
        }
    }

    /// A fault was resolved: the page is mapped at this level.
    #[inline]
    pub(crate) fn faulted(&mut self, Address { space, at }: Address, mapped: Level) {
        if self.events.faulted
            && let Some(background) = &mut self.background
        {
            background.faulted(space, at, mapped);
        }
    }

    /// The TLBs had no translation of a page that is mapped at this level.
    pub(crate) fn missed(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        if self.events.missed
            && let Some(background) = &mut self.background
        {
            background.missed(space, at, mapped);
        }
    }

    /// A range was mapped.
    pub(crate) fn mapped(&mut self, space: SpaceId, range: PageRange) {
        if self.wants.mapped {
            self.tell(Event::Mapped { space, range });
        }
    }

    /// A range was unmapped.
    pub(crate) fn unmapped(&mut self, space: SpaceId, range: PageRange) {
        if self.wants.unmapped {
            self.tell(Event::Unmapped { space, range });
        }
    }

    /// An address space has ended.
    pub(crate) fn gone(&mut self, space: SpaceId) {
        if self.events.gone
            && let Some(background) = &mut self.background
        {
            background.gone(space);
        }
    }

    /// A region was not promoted.
    pub(crate) fn refused(&mut self, why: Why) {
        self.refused[why as usize] += 1;
    }

    /// How often regions were not promoted, by reason.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (Why, u64)> + '_ {
        Why::ALL.iter().copied().zip(self.refused)
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.preferences.capacity() * size_of::<Prefer>()
    }
}
