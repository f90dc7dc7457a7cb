//! What can be wrong with a simulated target.

/// Why a simulated target, model file or fit is refused. Each is one sentence that names the thing,
/// what was expected and what to do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimError {
    /// Not a simulated target at all.
    #[error("'{0}' is not a simulated target: expected sim:MODEL, such as sim:optane-900p")]
    NotSimulated(String),
    /// No such model.
    #[error("there is no model '{name}'{}: see 'fathom sim list', or give the path of a .toml file", nearest.map(|n| format!(" (did you mean '{n}'?)")).unwrap_or_default())]
    UnknownModel {
        /// As typed.
        name: String,
        /// The nearest known one.
        nearest: Option<&'static str>,
    },
    /// A model file that cannot be read.
    #[error("model file {path}: {message}")]
    File {
        /// Its path, or its name where it is built in.
        path: String,
        /// What is wrong, what was expected.
        message: String,
    },
    /// An option after `?`.
    #[error("option '{option}' of {target}: {message}")]
    Option {
        /// The target as typed.
        target: String,
        /// The option.
        option: String,
        /// What is wrong, what was expected.
        message: String,
    },
    /// A composition that cannot exist.
    #[error("{target}: {message}")]
    Composition {
        /// The target as typed.
        target: String,
        /// What is wrong, what was expected.
        message: String,
    },
    /// A run that no model can be fitted to.
    #[error("the run cannot be fitted: {0}")]
    Fit(String),
}

/// The candidate nearest to `name`, if it is near enough to be a typing error.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|c| {
            let part = c.contains(name) && name.len() >= 3;
            (if part { 0 } else { distance(name, c) }, c)
        })
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_word_and_nonsense_finds_none() {
        let names = ["optane-900p", "intel-s3510", "hdd"];
        assert_eq!(nearest("optane-900", names), Some("optane-900p"));
        assert_eq!(nearest("optnae-900p", names), Some("optane-900p"));
        assert_eq!(nearest("s3510", names), Some("intel-s3510"));
        assert_eq!(nearest("banana-split", names), None);
    }
}
