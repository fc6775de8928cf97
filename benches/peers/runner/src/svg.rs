//! A picture of rectangles, lines and words, that is readable on a light page and on a dark one.

use std::fmt::Write as _;

/// Colours stand here once. A viewer that prefers dark pages gets the second set.
const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.dim{fill:#59636e}.head{font-weight:600}.back{fill:#fff}\
.grid{stroke:#d1d9e0}.late{stroke:#59636e}\
.ours{fill:#0969da;stroke:#0969da}.peer{fill:#afb8c1;stroke:#afb8c1}.raw{fill:none;stroke:#59636e}\
.c0{fill:#bc4c00;stroke:#bc4c00}.c1{fill:#1a7f37;stroke:#1a7f37}.c2{fill:#8250df;stroke:#8250df}\
.c3{fill:#bf3989;stroke:#bf3989}.c4{fill:#7d6a00;stroke:#7d6a00}.c5{fill:#cf222e;stroke:#cf222e}\
.c6{fill:#0e7490;stroke:#0e7490}.limit{fill:#59636e;stroke:#59636e;stroke-dasharray:4 3}\
.curve{fill:none;stroke-width:1.5}.ours.curve{stroke-width:3}text.key{stroke:none}\
@media (prefers-color-scheme:dark){\
text{fill:#e6edf3}.dim{fill:#9198a1}.back{fill:#0d1117}\
.grid{stroke:#30363d}.late{stroke:#9198a1}\
.ours{fill:#4493f8;stroke:#4493f8}.peer{fill:#57606a;stroke:#57606a}.raw{fill:none;stroke:#9198a1}\
.c0{fill:#f0883e;stroke:#f0883e}.c1{fill:#3fb950;stroke:#3fb950}.c2{fill:#ab7df8;stroke:#ab7df8}\
.c3{fill:#db61a2;stroke:#db61a2}.c4{fill:#d29922;stroke:#d29922}.c5{fill:#ff7b72;stroke:#ff7b72}\
.c6{fill:#39c5cf;stroke:#39c5cf}.limit{fill:#9198a1;stroke:#9198a1}\
.curve{fill:none}}";

/// Which point of a text its place is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being drawn. Lengths are in pixels, from the upper left corner.
#[derive(Debug)]
pub(crate) struct Svg {
    width: f64,
    title: String,
    body: String,
}

impl Svg {
    /// An empty picture. The title is for those who do not see it.
    pub(crate) fn new(width: f64, title: &str) -> Self {
        Self {
            width,
            title: escaped(title),
            body: String::new(),
        }
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub(crate) fn rectangle(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), class: &str) {
        self.add(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.add(&format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), class: &str) {
        self.add(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{class}\"/>"
        ));
    }

    /// A line from point to point.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let points = points.join(" ");
        self.add(&format!(
            "<polyline points=\"{points}\" class=\"{class} curve\"/>"
        ));
    }

    /// The file.
    pub(crate) fn finish(self, height: f64) -> String {
        let Self { width, title, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" class=\"back\"/>\n{body}</svg>\n"
        )
    }

    fn add(&mut self, element: &str) {
        // Writing into a string cannot fail.
        writeln!(self.body, "{element}").ok();
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_end_their_element() {
        let mut svg = Svg::new(10.0, "a < b");
        svg.text((0.0, 0.0), Anchor::Start, "head", "x & y");
        let file = svg.finish(10.0);
        assert!(file.contains("a &lt; b") && file.contains("x &amp; y"));
    }
}
