//! How files of fathom's begin: what is there already and begins otherwise is somebody else's.

/// What every page begins with; a page that exists is known by it.
pub(crate) const BEGINNING: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">";

/// Whether a file begins like a page of fathom's.
pub(crate) fn is_page(head: &[u8]) -> bool {
    head.starts_with(BEGINNING.as_bytes())
}

/// Whether a file begins like a picture of fathom's.
pub(crate) fn is_picture(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    text.starts_with("<svg xmlns=") && text.contains("<clipPath id=\"inside\"><rect x=")
}
