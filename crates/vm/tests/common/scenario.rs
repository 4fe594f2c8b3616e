//! Operations, and short scenarios of them: what belongs together, such as to write a page, clean
//! it, write the same again and evict it, would come together by chance too rarely.

/// One operation: which, and what it works on (process, place, length, flags, more flags).
pub(crate) type Op = [u8; 6];

/// Kinds of plain operations: the first byte modulo this. All that are not named access memory.
pub(crate) const KINDS: u8 = 54;
pub(crate) const MAP: u8 = 0;
pub(crate) const UNMAP: u8 = 4;
pub(crate) const PROTECT: u8 = 5;
pub(crate) const DISCARD: u8 = 7;
pub(crate) const GROW: u8 = 8;
pub(crate) const REMAP: u8 = 9;
pub(crate) const FORK: u8 = 10;
pub(crate) const CREATE: u8 = 12;
pub(crate) const EXIT: u8 = 13;
pub(crate) const EXEC: u8 = 15;
pub(crate) const WIRE: u8 = 16;
pub(crate) const OPEN: u8 = 17;
pub(crate) const CLOSE: u8 = 18;
pub(crate) const READ_FILE: u8 = 19;
pub(crate) const WRITE_FILE: u8 = 20;
pub(crate) const SYNC: u8 = 21;
pub(crate) const REMOVE: u8 = 22;
pub(crate) const WIRE_PAGE: u8 = 23;
pub(crate) const UNWIRE_PAGE: u8 = 24;
pub(crate) const DAEMON: u8 = 25;
pub(crate) const IDLE: u8 = 26;
pub(crate) const READ_AND_WRITE: u8 = 27;
pub(crate) const PRESS: u8 = 28;
pub(crate) const COLLAPSE: u8 = 29;
pub(crate) const ADVISE: u8 = 31;
const READ: u8 = 32;
const WRITE: u8 = 33;
const EXECUTE: u8 = 35;
/// Calls that must be refused.
pub(crate) const REFUSED: u8 = 53;

/// From this first byte on, an operation stands for a scenario: nearly one in six.
const SCENARIOS: u8 = 4 * KINDS;

/// In the last byte: the range is of 2^(length mod 10) pages, and aligned.
pub(crate) const ALIGNED: u8 = 0xc0;
/// In the flags of an access: what is written is what was there.
pub(crate) const SAME: u8 = 0x18;
/// In the flags of a mapping: it is shared; it is of a file.
pub(crate) const SHARED: u8 = 0x08;
pub(crate) const OF_FILE: u8 = 0x10;
/// In the flags of pressure: what pressed is gone afterwards.
pub(crate) const GONE: u8 = 0x40;
/// In the last byte of a move: to where it is. In its flags: to a quarter of its length, or to four
/// times that.
pub(crate) const IN_PLACE: u8 = 0x04;
pub(crate) const QUARTER: u8 = 0x40;
pub(crate) const FOURFOLD: u8 = 0x80;
/// In the last byte of a mapping of a file: aligned as the file is; of a mapping: a heap.
pub(crate) const AS_FILE: u8 = 0x02;
const HEAP: u8 = 0x10;
/// In the last byte of a mapping of a file, or of an operation on a file: the bits of its number.
pub(crate) const FILE: u8 = 0x0d;
/// In the flags of a change of protection: read only. Without it: read and write.
const READ_ONLY: u8 = 0x24;
/// In the same: read and execute.
const NOT_WRITTEN: u8 = 0xa4;

/// A scenario of a program's file, and in the flags of it: it is collapsed.
pub(crate) const PROGRAM: u8 = SCENARIOS + 7;
pub(crate) const COLLAPSED: u8 = 0x40;

/// An operation made a scenario.
pub(crate) fn scenario([what, who, place, length, flags, more]: Op) -> Op {
    [SCENARIOS + what % (u8::MAX - SCENARIOS), who, place, length, flags, more]
}

/// The operations with each scenario spelled out.
pub(crate) fn plain(ops: impl IntoIterator<Item = Op>) -> Vec<Op> {
    ops.into_iter().flat_map(spelled_out).collect()
}

fn spelled_out(op: Op) -> Vec<Op> {
    let [what, who, place, length, flags, more] = op;
    if what < SCENARIOS {
        return vec![op];
    }
    // An aligned region of 16 to 512 pages, a part of it of half as many or fewer, and another
    // region of the same size.
    let order = [4, 5, 6, 6, 7, 7, 8, 9][length as usize % 8];
    let all = |what, flags, more| [what, who, place, order, flags, ALIGNED | more];
    let part = |what, flags| [what, who, place, order - 1 - more % 4, flags, ALIGNED];
    // From the start of the region, a quarter of it or, two orders above that, all.
    let start = place & !((1 << (order - 2)) - 1);
    let heap = |what, above| [what, who, start, order - 2 + above, 0, ALIGNED | HEAP];
    let other = |what| [what, who, !place, order, 0, ALIGNED];
    let file = more & FILE;
    let of_file = |what| [what, who, place, order, 0, ALIGNED | file];
    let press = [PRESS, who, place, flags >> 3, flags, more];
    let idle = [IDLE, who, place, u8::MAX, 0, 0];
    // What rests on the most conditions comes twice as often.
    let scenario = match (what - SCENARIOS) % 12 {
        // Populated whole, changed in part, and whole and uniform again.
        0 => vec![
            all(MAP, 0, 0),
            all(WRITE, 0, 0),
            part(PROTECT, READ_ONLY),
            all(READ, 0, 0),
            all(PROTECT, 0, 0),
            all(WRITE, 0, 0),
            part(DISCARD, 0),
            part(ADVISE, flags),
            all(WRITE, 0, 0),
            all(ADVISE, flags, 0),
            all(COLLAPSE, 0, more & 3),
            all(WRITE, 0, 0),
        ],
        // A file is read whole and written in part, with what was there and with something new, and
        // cleaned in between.
        1 | 8 => vec![
            of_file(SYNC),
            all(MAP, OF_FILE | SHARED, AS_FILE | file),
            all(READ, 0, 0),
            idle,
            part(WRITE, SAME),
            of_file(SYNC),
            part(WRITE, 0),
            of_file(SYNC),
            part(WRITE, SAME),
            all(READ, 0, 0),
            press,
        ],
        // In use all the time while memory is short.
        2 | 9 => vec![
            all(MAP, 0, 0),
            all(WRITE, 0, 0),
            press,
            all(READ, 0, 0),
            press,
            all(COLLAPSE, 0, more & 3),
            all(READ, 0, 0),
            press,
            part(WRITE, 0),
        ],
        // To swap space and back, unchanged, and there again.
        3 => vec![
            all(MAP, 0, 0),
            all(WRITE, 0, 0),
            press,
            press,
            all(READ, 0, 0),
            idle,
            part(WRITE, SAME),
            press,
            press,
            all(READ, 0, 0),
        ],
        // Both sides of a fork write, and one of them ends.
        4 => vec![
            all(MAP, flags & SHARED, 0),
            all(WRITE, 0, 0),
            [FORK, who, place, length, flags, more],
            part(WRITE, 0),
            [WRITE, who.wrapping_add(1), place, order, 0, ALIGNED],
            [EXIT, who.wrapping_add(flags >> 6 & 1), place, length, flags, more],
            all(COLLAPSE, 0, more & 3),
            all(WRITE, 0, 0),
        ],
        // A file is used and closed, and what is wanted then is contiguity.
        5 => vec![
            of_file(OPEN),
            of_file(WRITE_FILE),
            of_file(SYNC),
            of_file(CLOSE),
            other(MAP),
            other(WRITE),
            [DAEMON; 6],
            of_file(OPEN),
            of_file(READ_FILE),
            of_file(CLOSE),
        ],
        // A heap grows as it is used, and shrinks.
        6 => vec![heap(MAP, 0), heap(WRITE, 0), heap(GROW, 2), heap(WRITE, 2), press, heap(GROW, 0), heap(READ, 0)],
        10 | 11 => given_up_after_fork(start, order, flags, press),
        // A program's file: executed, in half of them collapsed, written in part by this process
        // alone, dropped and read again.
        _ => {
            let mut scenario = vec![all(MAP, OF_FILE, AS_FILE | file)];
            if flags & COLLAPSED != 0 {
                let text = all(PROTECT, NOT_WRITTEN, 0);
                scenario.extend([text, part(EXECUTE, 0), all(COLLAPSE, 0, more & 3), all(EXECUTE, 0, 0)]);
            }
            scenario.extend([all(PROTECT, 0xe4, 0), all(EXECUTE, 0, 0)]);
            scenario.extend([part(WRITE, flags & SAME), press, all(EXECUTE, 0, 0), part(DISCARD, 0), all(READ, 0, 0)]);
            scenario
        }
    };
    // In half of them the process begins anew, so that memory is not always full by then.
    let anew = (flags & 0x80 != 0).then_some([EXEC, who, place, 0, 0, 0]);
    anew.into_iter().chain(scenario).collect()
}

/// A heap of 2^`order` pages is shared by fork, once or twice; one side writes some of it and gives
/// most of it up, in one of three ways; the other side ends; what is left grows again and is read.
fn given_up_after_fork(start: u8, order: u8, flags: u8, press: Op) -> Vec<Op> {
    let heap = |what, who, order| [what, who, start, order, 0, ALIGNED | HEAP];
    let in_place = |order, by| [REMAP, 0, start, order, by, ALIGNED | IN_PLACE];
    // Processes after the first one are numbered anew as they end.
    let (first, second) = ([EXIT, 0, 0, 0, 0, 0], [EXIT, 1, 0, 0, 0, 0]);
    let side = flags >> 2 & 1;
    let mut scenario = vec![second, second, second, second, [EXEC, 0, 0, 0, 0, 0]];
    scenario.extend([heap(MAP, 0, order), heap(WRITE, 0, order), [FORK, 0, 0, 0, 0, 0], heap(WRITE, side, order - 3)]);
    if flags & 2 != 0 {
        scenario.extend([[FORK, side, 0, 0, 0, 0], heap(WRITE, side, order - 2)]);
    }
    if flags & 0x40 != 0 {
        scenario.push(press);
    }
    scenario.push(match flags >> 3 & 3 {
        0 => [UNMAP, side, start + (1 << (order - 3)), order - 1, 0, ALIGNED],
        1 => [REMAP, side, start, order, QUARTER, ALIGNED | IN_PLACE],
        _ => heap(GROW, side, order - 2),
    });
    // All others end, so that what is left is the first.
    scenario.extend(if side == 0 { [second, second] } else { [first, second] });
    scenario.extend(if flags & 0x20 != 0 {
        [in_place(order - 2, FOURFOLD), in_place(order - 1, FOURFOLD)]
    } else {
        [heap(GROW, 0, order), heap(READ, 0, order - 1)]
    });
    scenario.push(heap(READ, 0, order));
    scenario
}
