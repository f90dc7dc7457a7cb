//! What LinkBench draws: nodes by popularity, links of a node, sizes and bytes of payloads.

use fathom_stats::rng::SplitMix64;

use crate::kv::keys::Zipf;

/// Links of a node, and percent of nodes that have at most so many: `nlinks` of `config/Distribution.dat`, every point up to 10
/// and eight of each decade beyond, between which it is taken as straight. Its mean is 4.10, here 4.13.
const LINKS: [(u32, f64); 50] = [
    (0, 45.331_605_73),
    (1, 77.462_591_12),
    (2, 86.958_059_53),
    (3, 91.993_054_28),
    (4, 94.450_799_1),
    (5, 95.828_071_69),
    (6, 96.722_528_05),
    (7, 97.320_088_55),
    (8, 97.761_423_19),
    (9, 98.077_676_93),
    (10, 98.328_033_68),
    (13, 98.825_377_46),
    (18, 99.236_676_79),
    (24, 99.447_857_47),
    (32, 99.583_115_66),
    (42, 99.675_608_78),
    (56, 99.746_152_05),
    (75, 99.796_274_89),
    (100, 99.831_361_15),
    (133, 99.856_982_98),
    (178, 99.877_823_55),
    (237, 99.894_544),
    (316, 99.908_424_21),
    (422, 99.920_922_49),
    (562, 99.931_749_08),
    (750, 99.941_632_66),
    (1000, 99.950_659_16),
    (1334, 99.958_905_96),
    (1778, 99.966_480_06),
    (2371, 99.973_441_4),
    (3162, 99.979_610_2),
    (4217, 99.984_786_59),
    (5623, 99.989_071_66),
    (7499, 99.992_442_36),
    (10_000, 99.995_045_21),
    (13_335, 99.996_921_69),
    (17_783, 99.998_179_16),
    (23_714, 99.998_974_67),
    (31_623, 99.999_445_19),
    (42_170, 99.999_719_14),
    (56_234, 99.999_857_1),
    (74_989, 99.999_930_52),
    (100_000, 99.999_962_79),
    (133_352, 99.999_977_94),
    (177_828, 99.999_986_17),
    (237_137, 99.999_994_07),
    (316_228, 99.999_998_02),
    (421_697, 99.999_998_35),
    (562_341, 99.999_999_34),
    (961_963, 100.0),
];

/// Link types (`link_type_count`), over which the links of a node are shared out.
pub(super) const TYPES: u64 = 2;

/// Of all links of a node, those of a type: halves, rounded as `ID2Chooser.calcLinkCount` rounds them, which loads one more than there
/// should be of many nodes.
fn of_type(total: u64, link_type: u64) -> u64 {
    let least = total / TYPES;
    least + u64::from(link_type < total - least)
}

/// A permutation that leaves no popular node beside another one: numbers with the same rest by [`Self::GROUPS`] are turned by a random step
/// (`InvertibleShuffler.java`; its steps come from Java's generator, here from SplitMix64).
pub(super) struct Shuffler {
    steps: Vec<u64>,
    n: u64,
}

impl Shuffler {
    const GROUPS: u64 = 1024;

    pub(super) fn new(seed: u64, n: u64) -> Self {
        let groups = Self::GROUPS.min(n);
        let mut random = SplitMix64::new(seed);
        let least = n / groups;
        Self {
            steps: (0..groups)
                .map(|_| random.below(least as usize) as u64)
                .collect(),
            n,
        }
    }
    fn turned(&self, i: u64, back: bool) -> u64 {
        let groups = self.steps.len() as u64;
        let (group, at) = (i % groups, i / groups);
        let len = self.n / groups + u64::from(group < self.n % groups);
        let step = self.steps[group as usize];
        let step = if back { len - step } else { step };
        (at + step) % len * groups + group
    }
    /// The node of a rank.
    pub(super) fn permute(&self, rank: u64) -> u64 {
        self.turned(rank, false)
    }
    /// The rank of a node.
    pub(super) fn invert(&self, node: u64) -> u64 {
        self.turned(node, true)
    }
}

// Seeds of `RealDistribution.java`: who has links, who is asked for without regard to them, and nodes.
const LINKED: u64 = 20_343_988_438_726_021;
const UNLINKED: u64 = 53_238_253_823_453;
const NODES: u64 = 4_766_565_305_853_767_165;

/// For what a node is drawn. Exponents are those of `config/FBWorkload.properties`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// `read_shape` 0.8; 99.5 % without regard to the links (`read_uncorr_blend`).
    LinkRead,
    /// `write_shape` 0.741; 95 % without regard to the links (`write_uncorr_blend`).
    LinkWrite,
    /// `node_read_shape` 0.625.
    NodeRead,
    /// `node_update_shape` 0.606.
    NodeUpdate,
    /// Uniform.
    NodeDelete,
}

/// A graph of so many nodes, numbered from 1.
pub(super) struct Graph {
    pub(super) nodes: u64,
    linked: Shuffler,
    unlinked: Shuffler,
    by_number: Shuffler,
    /// In the order of [`Access`].
    zipf: [Zipf; 4],
}

impl Graph {
    pub(super) fn new(nodes: u64) -> Self {
        let nodes = nodes.max(2);
        Self {
            nodes,
            linked: Shuffler::new(LINKED, nodes),
            unlinked: Shuffler::new(UNLINKED, nodes),
            by_number: Shuffler::new(NODES, nodes),
            zipf: [0.8, 0.741, 0.625, 0.606].map(|shape| Zipf::new(nodes, shape)),
        }
    }

    /// Links of a type that a node was loaded with.
    pub(super) fn links(&self, node: u64, link_type: u64) -> u64 {
        // LinkBench takes the rank's upper end, which gives the first of any graph 961,963 links, however small it is.
        let rank = self.linked.invert(node - 1) as f64 + 0.5;
        let percent = 100.0 * (1.0 - rank / self.nodes as f64);
        let at = LINKS.partition_point(|l| l.1 < percent);
        let (most, below) = LINKS[at];
        let total = match at.checked_sub(1).map(|before| LINKS[before]) {
            Some((least, above)) if most - least > 1 => {
                let part = (percent - above) / (below - above);
                least + (part * f64::from(most - least)).round() as u32
            }
            _ => most,
        };
        of_type(u64::from(total), link_type)
    }

    /// A node.
    pub(super) fn draw(&self, access: Access, random: &mut SplitMix64) -> u64 {
        let shuffler = match access {
            Access::LinkRead if random.unit() >= 0.995 => &self.linked,
            Access::LinkWrite if random.unit() >= 0.95 => &self.linked,
            Access::LinkRead | Access::LinkWrite => &self.unlinked,
            _ => &self.by_number,
        };
        let rank = match self.zipf.get(access as usize) {
            Some(zipf) => zipf.draw(random.unit()).min(self.nodes - 1),
            None => random.below(self.nodes as usize) as u64,
        };
        shuffler.permute(rank) + 1
    }

    /// The other end of a link, which is there with about the given chance: links of a node lead to it and those after it.
    pub(super) fn other(
        &self,
        node: u64,
        link_type: u64,
        exists: f64,
        random: &mut SplitMix64,
    ) -> u64 {
        let range = (self.links(node, link_type) as f64 / exists)
            .ceil()
            .max(1.0);
        node + random.below(range as usize) as u64
    }
}

/// Links that one request asks for: geometric with a mean of 2.6 (`link_multiget_dist_prob` 0.382), at most 127. (The Java code
/// adds one to what it draws; the mean is the one that was meant and published.)
pub(super) fn multiget(random: &mut SplitMix64) -> usize {
    let n = (1.0 - random.unit()).ln() / (1.0f64 - 0.382).ln();
    (n.ceil() as usize).clamp(1, 127)
}

/// A character that needs no quoting in any database.
fn letter(i: u64) -> u8 {
    match b' ' + i as u8 {
        b'\'' => b'~',
        b'\\' => b'}',
        c => c,
    }
}

/// Characters of payloads: sizes are log-normal with a sigma of 1 (`LINK_DATASIZE_SIGMA`), contents pieces of random text among
/// pieces that come again (`MotifDataGenerator.java`), which sets how well they compress.
pub(super) struct Payload {
    median: f64,
    most: usize,
    range: u64,
    unique: f64,
    motifs: Vec<u8>,
}

impl Payload {
    /// Pieces of a payload, and what they are taken from (`DEFAULT_MOTIF_BUFFER_SIZE`: its configured length of 128 is not read).
    const PIECE: usize = 128;
    const MOTIFS: usize = 512;

    /// Of links: a median of 8 bytes, at most 255; bytes 32 to 100, 22.5 % of them unique.
    pub(super) fn of_links() -> Self {
        Self::new(8.0, 254, 69, 0.225)
    }
    /// Of nodes: a median of 128 bytes; 63 % of them unique. LinkBench takes the 171 bytes from 50 on; here they are the 95
    /// characters that any database takes as text.
    pub(super) fn of_nodes() -> Self {
        Self::new(128.0, (1 << 20) - 1, 95, 0.63)
    }
    fn new(median: f64, most: usize, range: u64, unique: f64) -> Self {
        let mut random = SplitMix64::new(0x11_4b);
        let motifs = (0..Self::MOTIFS).map(|_| letter(random.next_u64() % range));
        Self {
            median,
            most,
            range,
            unique,
            motifs: motifs.collect(),
        }
    }

    pub(super) fn fill(&self, random: &mut SplitMix64, into: &mut String) {
        into.clear();
        let size = (random.normal().exp() * self.median).round() as usize;
        let mut left = size.min(self.most);
        while left > 0 {
            let n = left.min(Self::PIECE);
            if random.unit() < self.unique {
                for _ in 0..n {
                    into.push(char::from(letter(random.next_u64() % self.range)));
                }
            } else {
                let at = random.below(Self::MOTIFS - n + 1);
                let piece = &self.motifs[at..at + n];
                into.extend(piece.iter().map(|b| char::from(*b)));
            }
            left -= n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffler_is_a_permutation_and_its_inverse() {
        for n in [2, 1000, 1024, 5000, 12_345] {
            let shuffler = Shuffler::new(LINKED, n);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                let j = shuffler.permute(i);
                assert!(!std::mem::replace(&mut seen[j as usize], true));
                assert_eq!(shuffler.invert(j), i);
            }
        }
    }

    #[test]
    fn links_of_nodes_are_distributed_as_observed() {
        let graph = Graph::new(200_000);
        let all: Vec<u64> = (1..=200_000)
            .map(|n| graph.links(n, 0) + graph.links(n, 1))
            .collect();
        let share = |most: u64| {
            let n = all.iter().filter(|l| **l <= most).count();
            n as f64 / 2000.0
        };
        // Of Distribution.dat; a single link stays one, two become three by LinkBench's rounding.
        for (most, percent) in [
            (0, 45.33),
            (1, 77.46),
            (12, 98.54),
            (101, 99.83),
            (1001, 99.95),
        ] {
            assert!(
                (share(most) - percent).abs() < 0.15,
                "{most}: {}",
                share(most)
            );
        }
        // Mean of the file 4.10 with the tail that a graph of this size has, and with the rounding.
        let mean = all.iter().sum::<u64>() as f64 / 2e5;
        assert!((3.9..4.9).contains(&mean), "{mean}");
    }

    #[test]
    fn nodes_are_asked_for_as_skewed_as_the_configuration_says() {
        let n = 10_000u64;
        let graph = Graph::new(n);
        let mut random = SplitMix64::new(9);
        for (access, shape) in [
            (Access::LinkRead, 0.8),
            (Access::LinkWrite, 0.741),
            (Access::NodeRead, 0.625),
            (Access::NodeUpdate, 0.606),
            (Access::NodeDelete, 0.0),
        ] {
            let mut hits = vec![0u32; n as usize + 1];
            for _ in 0..400_000 {
                hits[graph.draw(access, &mut random) as usize] += 1;
            }
            hits.sort_unstable_by(|a, b| b.cmp(a));
            let top: u32 = hits[..100].iter().sum();
            let sum = |m: u64| (1..=m).map(|i| (i as f64).powf(-shape)).sum::<f64>();
            let expected = sum(100) / sum(n);
            let seen = f64::from(top) / 4e5;
            // Two orders are blended, and the most frequent of uniform ones are more frequent by chance.
            assert!(
                seen > expected * 0.9 && seen < expected * 1.1 + 0.01,
                "{access:?}: {seen} instead of {expected}"
            );
        }
    }

    #[test]
    fn sizes_have_their_medians_and_requests_their_mean() {
        let mut random = SplitMix64::new(4);
        let mut text = String::new();
        for (payload, median) in [(Payload::of_links(), 8), (Payload::of_nodes(), 128)] {
            let mut sizes: Vec<usize> = (0..20_000)
                .map(|_| {
                    payload.fill(&mut random, &mut text);
                    text.len()
                })
                .collect();
            sizes.sort_unstable();
            let off = sizes[10_000].abs_diff(median);
            assert!(off <= median / 20, "{} instead of {median}", sizes[10_000]);
            // One sigma above the median: e times as long.
            let above = sizes[16_827] as f64 / median as f64;
            assert!((2.5..3.0).contains(&above), "{above}");
        }
        let mean = (0..100_000).map(|_| multiget(&mut random)).sum::<usize>() as f64 / 1e5;
        assert!((2.55..2.68).contains(&mean), "{mean}");
    }

    #[test]
    fn the_other_end_is_there_as_often_as_wanted() {
        let graph = Graph::new(50_000);
        let mut random = SplitMix64::new(2);
        for exists in [0.5, 0.9] {
            let (mut there, mut all) = (0, 0);
            for node in 1..=50_000 {
                let links = graph.links(node, 0);
                if links < 20 {
                    continue;
                }
                for _ in 0..20 {
                    let other = graph.other(node, 0, exists, &mut random);
                    there += u32::from(other < node + links);
                    all += 1;
                }
            }
            let share = f64::from(there) / f64::from(all);
            assert!((share - exists).abs() < 0.03, "{share} instead of {exists}");
        }
    }
}
