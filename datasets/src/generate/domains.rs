//! Host names that resemble those of the most visited sites.
//!
//! Calibrated on a list of 242,594 real ones, which cannot be shipped: its lengths, labels,
//! top-level domains, and how many prefixes of 4, 8 and 12 bytes are distinct. The names are made
//! up of shipped words, syllables and letters.

use std::io::Write;

use super::distinct::distinct;
use super::vocabulary::Vocabulary;
use crate::bytes::arena::KeyArena;
use crate::progress::Progress;
use crate::random::Random;

const PURPOSE_DOMAINS: u64 = 0x34;

/// Words in names: a few are in very many.
const SKEW: f64 = 2.2;

/// Top-level domains and how often names have them, in proportion; those of the hosts of large
/// sites come on top.
const TOPS: [(&str, u64); 44] = [
    ("com", 5_600),
    ("net", 640),
    ("org", 210),
    ("cn", 135),
    ("cc", 88),
    ("dating", 77),
    ("ru", 63),
    ("co", 52),
    ("me", 50),
    ("io", 48),
    ("jp", 46),
    ("xyz", 41),
    ("in", 38),
    ("br", 38),
    ("de", 37),
    ("tv", 29),
    ("vip", 27),
    ("uk", 24),
    ("info", 24),
    ("edu", 23),
    ("ir", 21),
    ("it", 21),
    ("fr", 21),
    ("ca", 17),
    ("app", 17),
    ("pl", 16),
    ("kr", 16),
    ("tw", 16),
    ("top", 15),
    ("es", 13),
    ("mx", 13),
    ("au", 13),
    ("biz", 13),
    ("club", 13),
    ("tech", 13),
    ("site", 12),
    ("nl", 12),
    ("to", 11),
    ("hk", 10),
    ("tr", 10),
    ("ai", 9),
    ("gov", 9),
    ("shop", 9),
    ("eu", 8),
];

/// First labels of hosts, the commonest first.
const HOSTS: [&str; 24] = [
    "www", "mail", "media", "m", "video", "api", "blog", "cdn", "img", "static", "shop", "news", "en",
    "support", "login", "forum", "dev", "app", "web", "docs", "images", "store", "my", "help",
];
/// Languages of hosts of large sites.
const LANGUAGES: [&str; 32] = [
    "zh-cn", "es-la", "it-it", "fr-fr", "de-de", "pt-br", "ar-ar", "hi-in", "ja-jp", "en-gb", "ko-kr",
    "es-es", "pt-pt", "nl-nl", "hu-hu", "pl-pl", "ro-ro", "id-id", "sv-se", "th-th", "cs-cz", "zh-tw",
    "vi-vn", "da-dk", "ru-ru", "fr-ca", "el-gr", "fi-fi", "nb-no", "tr-tr", "zh-hk", "ms-my",
];
/// Large sites, which have very many hosts; made up.
const LARGE: [&str; 6] = [
    "social.com",
    "lite.social.com",
    "pages.social.com",
    "socialcdn.net",
    "edge.streams.com",
    "chat.social.com",
];
/// The site whose hosts are named after other sites.
const MIRROR: &str = "cdn.mirrorproject.org";
/// What servers are for.
const SERVERS: [&str; 8] =
    ["scontent", "video", "external", "edge-chat", "edge-video-shv", "instant", "media", "xx-upload"];

/// `count` distinct ascending host names. As many as there are real ones in the list have 17.6
/// bytes on average (the real ones 17.4), 80 % distinct prefixes of eight bytes (82 %), and at ε 32
/// 144 keys per segment over these (132). `None` without memory for them. About 1 µs per key.
pub fn domains(count: usize, seed: u64, progress: Option<&dyn Progress>) -> Option<KeyArena> {
    let mut maker = Maker { random: Random::new(seed, PURPOSE_DOMAINS), vocabulary: Vocabulary::new() };
    distinct(count, progress, |host| maker.write_host(host))
}

struct Maker {
    random: Random,
    vocabulary: Vocabulary,
}

impl Maker {
    fn write_host(&mut self, out: &mut Vec<u8>) {
        match self.random.below(1_000) {
            0..685 => self.write_site(out),
            685..812 => {
                self.write_label(out);
                out.push(b'.');
                self.write_site(out);
            }
            812..872 => self.write_mirrored(out),
            _ => self.write_server(out),
        }
    }

    /// The first label of a host in a site of its own.
    fn write_label(&mut self, out: &mut Vec<u8>) {
        if self.random.below(5) < 3 {
            // Roughly one over the rank.
            let rank = libm::pow(HOSTS.len() as f64, self.random.open_fraction()) as usize;
            out.extend_from_slice(HOSTS[rank - 1].as_bytes());
        } else {
            self.write_name(out);
        }
    }

    fn write_site(&mut self, out: &mut Vec<u8>) {
        self.write_name(out);
        out.push(b'.');
        let total = TOPS.iter().map(|(_, share)| share).sum();
        let mut rest = self.random.below(total);
        for (top, share) in TOPS {
            if rest < share {
                if matches!(top, "br" | "uk" | "kr" | "au") {
                    out.extend_from_slice(if top == "uk" || top == "kr" { b"co." } else { b"com." });
                }
                return out.extend_from_slice(top.as_bytes());
            }
            rest -= share;
        }
    }

    /// A registered name.
    fn write_name(&mut self, out: &mut Vec<u8>) {
        match self.random.below(100) {
            // Words, one after the other.
            0..45 => {
                self.write_word(out);
                if self.random.below(100) < 66 {
                    if self.random.below(100) < 20 {
                        out.push(b'-');
                    }
                    self.write_word(out);
                }
            }
            // Initials.
            45..69 => {
                let letters = 4 + self.random.below(5);
                (0..letters).for_each(|_| self.write_letter(out));
            }
            // Syllables.
            69..85 => {
                for _ in 0..2 + self.random.below(3) {
                    self.write_letter(out);
                    out.push(b"aeiouaio"[self.random.below(8) as usize]);
                    if self.random.below(3) == 0 {
                        out.push(b"ngrst"[self.random.below(5) as usize]);
                    }
                }
            }
            // Digits before or after letters.
            rest => {
                let digits = 1 + self.random.below(3);
                let number = self.random.below(10u64.pow(digits as u32));
                if rest < 91 {
                    // Writing to a vector does not fail.
                    let _ = write!(out, "{number}");
                    (0..2 + self.random.below(3)).for_each(|_| self.write_letter(out));
                } else {
                    self.write_word(out);
                    let _ = write!(out, "{number}");
                }
            }
        }
    }

    fn write_word(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.vocabulary.draw(&mut self.random, SKEW));
    }

    fn write_letter(&mut self, out: &mut Vec<u8>) {
        const LETTERS: &[u8] = b"sscchhdmmttgyyzzjjxxbbllwwqfffkkppnnrvaeiou";
        out.push(LETTERS[self.random.below(LETTERS.len() as u64) as usize]);
    }

    /// A host that is named after another site, points as hyphens.
    fn write_mirrored(&mut self, out: &mut Vec<u8>) {
        if self.random.below(2) == 0 {
            self.write_label(out);
            out.extend_from_slice(b"--");
        }
        self.write_name(out);
        out.extend_from_slice(b"-com.");
        out.extend_from_slice(MIRROR.as_bytes());
    }

    /// A host of a large site.
    fn write_server(&mut self, out: &mut Vec<u8>) {
        let Self { random, vocabulary } = self;
        // Writing to a vector does not fail.
        let _ = match random.below(2) {
            0 => {
                let server = SERVERS[random.below(SERVERS.len() as u64) as usize];
                let place = vocabulary.draw(random, SKEW);
                let place = &place[..3];
                out.extend_from_slice(server.as_bytes());
                let (shard, set) = (random.below(10), random.below(4) + 1);
                write!(out, "-{shard:02}-").and_then(|()| {
                    out.extend_from_slice(place);
                    write!(out, "{set}.")
                })
            }
            _ => {
                for _ in 0..1 + random.below(5) {
                    out.extend_from_slice(
                        LANGUAGES[random.below(LANGUAGES.len() as u64) as usize].as_bytes(),
                    );
                    out.push(b'.');
                }
                Ok(())
            }
        };
        out.extend_from_slice(LARGE[random.below(LARGE.len() as u64) as usize].as_bytes());
    }
}
