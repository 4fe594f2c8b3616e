//! The multi-list reservation scheme (Navarro et al., section 4.8).
//!
//! A reservation is an extent of frames of which some, but not all, are populated. It is on one
//! list: that of the largest free extent it would yield if it were preempted. Each list is sorted
//! by most recent page allocation, the least recent at the head, where preemption takes. The links
//! run through one arena, so that every operation is O(1).

use crate::object::population::{NONE, NodeId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::MAX_LEVELS;

/// The number of a reservation in the arena.
pub(crate) type ReservationId = u32;

#[derive(Clone, Copy)]
struct Reservation {
    /// The slot of the population map's node that has the extent (the level is stored apart, to
    /// pack).
    slot: u32,
    prev: u32,
    next: u32,
    level: u8,
    list: u8,
    /// When a page was last allocated in it; for one put at the head, no later than what was there.
    stamp: u64,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

/// All reservations, on their lists.
pub(crate) struct Reservations {
    arena: Vec<Reservation>,
    /// The first of the unused places in the arena, linked by `next`.
    vacant: u32,
    lists: [List; MAX_LEVELS],
    /// Counts page allocations in reservations.
    clock: u64,
}

impl Reservations {
    pub(crate) fn new() -> Reservations {
        let empty = List { head: NONE, tail: NONE };
        Reservations { arena: Vec::new(), vacant: NONE, lists: [empty; MAX_LEVELS], clock: 0 }
    }

    /// A new reservation, in which a page was just allocated: at the tail of its list.
    pub(crate) fn add_tail(&mut self, node: NodeId, list: u8) -> ReservationId {
        let id = self.allocate(node);
        self.link_tail(id, list);
        id
    }

    /// A new reservation that is the next to be preempted: at the head of its list.
    pub(crate) fn add_head(&mut self, node: NodeId, list: u8) -> ReservationId {
        let id = self.allocate(node);
        self.link_head(id, list);
        id
    }

    /// A page was allocated in the reservation, which now belongs on `list`.
    pub(crate) fn touch(&mut self, id: ReservationId, list: u8) {
        if self.lists[list as usize].tail == id {
            self.clock += 1;
            self.arena[id as usize].stamp = self.clock;
        } else {
            self.unlink(id);
            self.link_tail(id, list);
        }
    }

    /// Pages of the reservation were freed, so that it now belongs on `list`: at its head if that
    /// is another one.
    pub(crate) fn yield_more(&mut self, id: ReservationId, list: u8) {
        if self.arena[id as usize].list != list {
            self.unlink(id);
            self.link_head(id, list);
        }
    }

    /// The reservation is fully populated, preempted or gone.
    pub(crate) fn remove(&mut self, id: ReservationId) {
        self.unlink(id);
        self.arena[id as usize].next = self.vacant;
        self.vacant = id;
    }

    /// The reservation on `list` whose most recent page allocation was least recent.
    pub(crate) fn head(&self, list: u8) -> Option<NodeId> {
        let id = self.lists[list as usize].head;
        (id != NONE).then(|| self.node(id))
    }

    /// When a page was last allocated in the reservation at the head of `list`, if there is one;
    /// smaller is earlier.
    pub(crate) fn age(&self, list: u8) -> Option<u64> {
        let id = self.lists[list as usize].head;
        (id != NONE).then(|| self.arena[id as usize].stamp)
    }

    /// The list that the reservation is on.
    pub(crate) fn list(&self, id: ReservationId) -> u8 {
        self.arena[id as usize].list
    }

    /// The node that has the extent.
    pub(crate) fn node(&self, id: ReservationId) -> NodeId {
        let reservation = &self.arena[id as usize];
        NodeId { level: reservation.level, slot: reservation.slot }
    }

    /// The reservations on `list`, from its head.
    pub(crate) fn iter(&self, list: u8) -> impl Iterator<Item = ReservationId> + '_ {
        let link = |id: u32| (id != NONE).then_some(id);
        core::iter::successors(link(self.lists[list as usize].head), move |id| link(self.arena[*id as usize].next))
    }

    /// Bytes held.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.arena.capacity() * size_of::<Reservation>()
    }

    /// Checks links, back links, list numbers and the order of time stamps; returns the number of
    /// reservations.
    pub(crate) fn validate(&self) -> Result<usize, String> {
        let mut count = 0;
        for (number, list) in self.lists.iter().enumerate() {
            let (mut prev, mut stamp) = (NONE, 0);
            for id in self.iter(number as u8) {
                let reservation = &self.arena[id as usize];
                if reservation.prev != prev || reservation.list as usize != number {
                    return Err(format!("reservation {id} on list {number} has a wrong back link or list"));
                }
                if reservation.stamp < stamp || reservation.stamp > self.clock {
                    return Err(format!("reservation {id} on list {number} is out of order of page allocations"));
                }
                (prev, stamp) = (id, reservation.stamp);
                count += 1;
                if count > self.arena.len() {
                    return Err(format!("reservation list {number} has a cycle"));
                }
            }
            if list.tail != prev {
                return Err(format!("the tail of reservation list {number} is not its last"));
            }
        }
        Ok(count)
    }

    fn allocate(&mut self, node: NodeId) -> ReservationId {
        let fresh =
            Reservation { slot: node.slot, prev: NONE, next: NONE, level: node.level, list: 0, stamp: self.clock };
        if self.vacant == NONE {
            crate::object::population::reserve_some(&mut self.arena, 1);
            self.arena.push(fresh);
            (self.arena.len() - 1) as u32
        } else {
            let id = self.vacant;
            self.vacant = self.arena[id as usize].next;
            self.arena[id as usize] = fresh;
            id
        }
    }

    fn link_tail(&mut self, id: ReservationId, list: u8) {
        self.clock += 1;
        let tail = core::mem::replace(&mut self.lists[list as usize].tail, id);
        let reservation = &mut self.arena[id as usize];
        (reservation.prev, reservation.next, reservation.list) = (tail, NONE, list);
        reservation.stamp = self.clock;
        match tail {
            NONE => self.lists[list as usize].head = id,
            tail => self.arena[tail as usize].next = id,
        }
    }

    fn link_head(&mut self, id: ReservationId, list: u8) {
        let head = core::mem::replace(&mut self.lists[list as usize].head, id);
        let before = if head == NONE { u64::MAX } else { self.arena[head as usize].stamp };
        let reservation = &mut self.arena[id as usize];
        (reservation.prev, reservation.next, reservation.list) = (NONE, head, list);
        reservation.stamp = reservation.stamp.min(before);
        match head {
            NONE => self.lists[list as usize].tail = id,
            head => self.arena[head as usize].prev = id,
        }
    }

    fn unlink(&mut self, id: ReservationId) {
        let Reservation { prev, next, list, .. } = self.arena[id as usize];
        match prev {
            NONE => self.lists[list as usize].head = next,
            prev => self.arena[prev as usize].next = next,
        }
        match next {
            NONE => self.lists[list as usize].tail = prev,
            next => self.arena[next as usize].prev = prev,
        }
    }
}
