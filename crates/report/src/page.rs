//! Self-contained pages of HTML, for light and dark screens, for paper, and for screen readers.

/// A whole page. `title` is plain text; `lead` and `main` are HTML: what follows the title, and the
/// rest. With rows to explore ([`crate::Explorer`]) it has the scripts that these need.
pub fn page(title: &str, lead: &str, main: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n{lead}</header>\n<main>\n{main}</main>\n{scripts}</body>\n</html>\n",
        include_str!("style.css"),
        title = escape(title),
        scripts = crate::explore::scripts(main),
    )
}

/// Text as HTML.
pub fn escape(text: &str) -> String {
    // What a terminal would obey does not belong into a page either.
    let text: String =
        text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text as HTML, with backquoted parts as code.
pub fn prose(text: &str) -> String {
    let parts = escape(text);
    let parts = parts.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 0 { part.to_string() } else { format!("<code>{part}</code>") }).collect()
}
