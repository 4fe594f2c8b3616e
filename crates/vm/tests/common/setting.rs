//! What a world starts from: ladder, memory, swap space, policy. It is drawn from numbers, and
//! printed as text that goes on meaning the same whatever policies, parameters and values are
//! added: a case to keep is written with it.

use super::watch::WATCH;
use std::time::Duration;
use superpage_pages::{Ladder, Level, PageSize, Random};
use superpage_vm::{Config, Definition, Policy, Target, Values};

/// Ladders with ratios from 2 to 128, one of base pages alone, two of real machines, all sizes that
/// there can be, and those of the Itanium.
const LADDERS: [&str; 9] = [
    "4K",
    "4K 8K 32K 128K",
    "4K 16K 32K 256K",
    "4K 64K",
    "4K 512K",
    "8K 64K 512K 4M",
    "4K 64K 2M",
    "4K 8K 16K 32K 64K 128K 256K 512K 1M 2M 4M 8M 16M 32M 64M 128M 256M 512M 1G",
    "4K 8K 16K 64K 256K 1M 4M 16M 64M 256M",
];
/// The manager, with one file: a plan, by which huge pages pay everywhere.
const MANAGER: Target = Target { read: Some(|_| Ok("huge,mmap,200001\n".into())), ..Target::MANAGER };
/// The most frames that count as a superpage: larger ones find no memory.
const LARGE: u64 = 1024;

/// What a world starts from.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The page sizes of the memory manager, such as `"4K 64K"`.
    pub(crate) ladder: &'static str,
    /// A size that page tables lack, or nothing.
    pub(crate) lacks: &'static str,
    /// A policy as users write it; `watch` is the one of these tests.
    pub(crate) policy: String,
    pub(crate) frames: u64,
    pub(crate) swap_pages: u64,
    /// Whether the daemon comes when it is called, and not only when memory is full.
    pub(crate) daemon_comes: bool,
    /// Whether a process ends that finds no memory.
    pub(crate) ends: bool,
}

impl Setting {
    /// Of the memory manager.
    pub(crate) fn config(&self, policy: Policy) -> Config {
        let Setting { frames, swap_pages, .. } = *self;
        Config { ladder: ladder(self.ladder, ""), frames, policy, swap_pages }
    }

    /// The policy, if it is this one, or one that has a name.
    pub(crate) fn policy(&self, own: &'static Definition) -> Policy {
        let (name, parameters) = self.policy.split_once(':').unwrap_or((&self.policy, ""));
        if name != own.name {
            return Policy::parse(&self.policy, &MANAGER).unwrap_or_else(|error| panic!("{}: {error}", self.policy));
        }
        let pairs = parameters.split(',').filter_map(|pair| pair.split_once('='));
        Policy::of(own, pairs, &MANAGER).unwrap()
    }

    /// The sizes that page tables have.
    pub(crate) fn mapped(&self) -> Ladder {
        ladder(self.ladder, self.lacks)
    }
}

/// The ladder of a size list without one of them.
fn ladder(sizes: &str, without: &str) -> Ladder {
    let sizes = sizes.split(' ').filter(|size| *size != without);
    Ladder::new(&sizes.map(|size| size.parse().unwrap()).collect::<Vec<PageSize>>()).unwrap()
}

/// Answers questions from a number. Each answer depends on that number, on the name of the
/// question, and on the choices by name, whatever other questions there are: a choice that is added
/// changes those answers alone that become the new one.
#[derive(Clone, Copy)]
struct Draw(u128);

impl Draw {
    fn number(self, question: &str) -> u64 {
        let start = (self.0 as u64) ^ ((self.0 >> 64) as u64).rotate_left(29) ^ 0xcbf2_9ce4_8422_2325;
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Random::new(question.bytes().fold(start, mix)).next()
    }

    /// One of these, all equally likely.
    fn of<'a>(self, question: &str, choices: &[&'a str]) -> &'a str {
        let most = choices.iter().max_by_key(|choice| self.number(&format!("{question} {choice}")));
        most.expect("there are choices")
    }

    /// Whether something is true that is so once in so many times.
    fn once_in(self, question: &str, times: u64) -> bool {
        self.number(question).is_multiple_of(times)
    }

    /// A value of a policy's own parameter, in its range; `superpages` are the sizes to choose
    /// from.
    fn value(self, question: &str, values: Values, superpages: &[&str]) -> String {
        let number = self.number(question);
        let time = |least: Duration| {
            let times = [0, 1, 1_000_000, 100_000_000, 400_000_000, 2_000_000_000, 60_000_000_000];
            let time = Duration::from_nanos(times[(number % 7) as usize]);
            format!("{}ns", time.max(least).as_nanos())
        };
        match values {
            Values::Words(words) => self.of(question, words).to_string(),
            // One of the sizes, or all.
            Values::PageSizes if self.once_in(&format!("all of {question}"), superpages.len() as u64 + 1) => {
                superpages.join("+")
            }
            Values::PageSizes => self.of(question, superpages).to_string(),
            Values::PageSize => self.of(question, superpages).to_string(),
            Values::Bytes => format!("{}", 4096_u64 << (number % 12)),
            Values::Share => format!("{}%", 1 + number % 100),
            Values::Time => time(Duration::ZERO),
            Values::TimeFrom(least) => time(least),
            // Mostly near the ends.
            Values::Count(least, most) => {
                let far = number / 4 % (most - least + 1).min(8);
                format!("{}", [least + far, most - far][(number % 2) as usize])
            }
            Values::Path => "plan.csv".to_string(),
            other => panic!("{other:?}: values to be drawn"),
        }
    }
}

/// The setting of a world. `answers` picks the policy: one of those with a name, or that of these
/// tests, with half of its own parameters and about a fifth of its answers drawn. `frames` picks
/// the size of memory: a few pages, or about what a half to four of the largest superpages take.
pub(crate) fn setting(ladder_number: u8, answers: u128, frames: u16) -> Setting {
    let draw = Draw(answers);
    // The one in which most mechanisms are on comes twice as often.
    let definitions: Vec<&Definition> = Target::MANAGER.policies().chain([&WATCH]).collect();
    let mut names: Vec<&str> = definitions.iter().map(|definition| definition.name).collect();
    names.push("reservation again");
    let name = draw.of("policy", &names).trim_end_matches(" again");
    let definition = definitions.iter().find(|definition| definition.name == name).unwrap();
    setting_of(definition, "", ladder_number, answers, frames)
}

/// The same of a policy that is given, with what `fixed` does not say of its parameters drawn.
pub(crate) fn setting_of(
    definition: &Definition,
    fixed: &str,
    ladder_number: u8,
    answers: u128,
    frames: u16,
) -> Setting {
    let (draw, name) = (Draw(answers), definition.name);
    let sizes = LADDERS[ladder_number as usize % LADDERS.len()];
    let superpages: Vec<&'static str> = sizes.split(' ').skip(1).collect();
    let fixed = || fixed.split(',').filter_map(|pair| pair.split_once('='));
    let open = |name: &str| fixed().all(|(key, _)| key != name);
    let mut pairs: Vec<(&str, String)> = fixed().map(|(key, value)| (key, value.to_string())).collect();
    for parameter in Target::MANAGER.parameters(definition).filter(|parameter| open(parameter.name)) {
        let of_sizes = matches!(parameter.values, Values::PageSizes | Values::PageSize);
        let drawn =
            if of_sizes { !superpages.is_empty() } else { draw.once_in(&format!("whether {}", parameter.name), 2) };
        if drawn {
            pairs.push((parameter.name, draw.value(parameter.name, parameter.values, &superpages)));
        }
    }
    for key in Policy::keys().iter().filter(|key| open(key.name)) {
        // What hardly any policy with a name does is always drawn.
        let drawn = matches!(key.name, "hash" | "demote-on-write" | "text")
            || draw.once_in(&format!("whether {}", key.name), 5);
        if drawn {
            pairs.push((key.name, draw.of(key.name, key.values).to_string()));
        }
    }
    // Page tables may lack a size.
    let lacks = name == "mthp" || draw.once_in("whether page tables lack a size", 8);
    let lacks = if lacks { draw.of("lacks", &[&superpages[..], &[""]].concat()) } else { "" };
    let ladder = ladder(sizes, "");
    let large = ladder.pages(Level(ladder.len() as u8 - 1)).clamp(128, LARGE);
    let (size, more) = (frames % 8, u64::from(frames / 8 % 64));
    let frames = [1, large / 2, large, large * 3 / 2, 2 * large, 2 * large, 3 * large, 4 * large][size as usize] + more;
    // A static pool must fit.
    let page = pairs.iter().find(|(key, _)| *key == "size").and_then(|(_, size)| size.parse::<PageSize>().ok());
    if name == "hugetlb" && open("pool") {
        let most = page.map_or(0, |page| (frames * ladder.base().bytes()) / page.bytes());
        pairs.retain(|(key, _)| *key != "pool" && (*key != "size" || most > 0));
        let (some, page) = (draw.number("pool") % (most + 1), page.map_or(0, |page| page.bytes()));
        if some > 0 && draw.once_in("whether pool", 2) {
            pairs.push(("pool", format!("{}", some * page)));
        }
    }
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Setting {
        ladder: sizes,
        lacks,
        policy: format!("{name}:{}", pairs.join(",")),
        frames,
        swap_pages: draw.of("swap", &["4000", "1000", "300", "5", "0"]).parse().unwrap(),
        daemon_comes: draw.once_in("daemon", 2),
        ends: !draw.once_in("goes on", 4),
    }
}
