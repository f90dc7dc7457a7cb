//! What `fathom --version` says.

use std::sync::LazyLock;

/// Version and commit, for `-V`.
pub(crate) const SHORT: &str = concat!(env!("CARGO_PKG_VERSION"), ", ", env!("FATHOM_BUILD"));

/// The same with what was built in.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let features = [
            ("fjall", cfg!(feature = "fjall")),
            ("http", cfg!(feature = "http")),
            ("https", cfg!(feature = "https")),
            ("lmdb", cfg!(feature = "lmdb")),
            ("query", cfg!(feature = "query")),
            ("redb", cfg!(feature = "redb")),
            ("sqlite", cfg!(feature = "sqlite")),
        ];
        let said: Vec<String> = features
            .iter()
            .map(|(name, there)| format!("{}{name}", if *there { '+' } else { '-' }))
            .collect();
        format!("{SHORT}\nfeatures: {}", said.join(" "))
    });
    &LONG
}
