//! Bars: a panel for each case, a bar for each peer.

use crate::svg::{Anchor, Svg};

const WIDTH: f64 = 820.0;
const COLUMN: f64 = WIDTH / 2.0;
const MARGIN: f64 = 16.0;
/// Where the bars begin, and how much room there is for the figure behind the longest.
const NAMES: f64 = 110.0;
const FIGURES: f64 = 80.0;
const STEP: f64 = 18.0;
const THICK: f64 = 12.0;

/// A case.
#[derive(Debug)]
pub(crate) struct Panel {
    /// What is measured.
    pub(crate) title: String,
    /// The unit, and which way is better.
    pub(crate) unit: &'static str,
    pub(crate) bars: Vec<Bar>,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    /// Where a thin line goes on to: one in a hundred is beyond.
    pub(crate) late: Option<f64>,
    /// The value as people read it.
    pub(crate) text: String,
}

/// Draws the panels in two columns.
pub(crate) fn draw(title: &str, panels: &[Panel]) -> String {
    let mut svg = Svg::new(WIDTH, title);
    svg.text((MARGIN, 24.0), Anchor::Start, "head", title);
    let mut top = 40.0;
    for pair in panels.chunks(2) {
        let mut bottom = top;
        for (left, panel) in [0.0, COLUMN].into_iter().zip(pair) {
            bottom = panel.draw(&mut svg, left + MARGIN, top).max(bottom);
        }
        top = bottom + STEP;
    }
    svg.finish(top)
}

impl Panel {
    /// Draws it and returns where it ends.
    fn draw(&self, svg: &mut Svg, left: f64, top: f64) -> f64 {
        svg.text((left, top + 12.0), Anchor::Start, "head", &self.title);
        svg.text((left, top + 27.0), Anchor::Start, "dim", self.unit);
        let ends = self.bars.iter().map(Bar::end);
        let longest = ends.fold(f64::MIN_POSITIVE, f64::max);
        let scale = (COLUMN - MARGIN - NAMES - FIGURES) / longest;
        let (start, mut y) = (left + NAMES, top + 34.0);
        for bar in &self.bars {
            let class = match bar.name {
                "ours" => "ours",
                "raw" => "raw",
                _ => "peer",
            };
            let (base, middle) = (y + THICK - 2.0, y + THICK / 2.0);
            svg.text(
                (start - 6.0, base),
                Anchor::End,
                emphasis(bar.name),
                name(bar.name),
            );
            let length = (bar.value * scale).max(1.0);
            svg.rectangle((start, y), (length, THICK), class);
            if let Some(late) = bar.late {
                svg.line(
                    (start + length, middle),
                    (start + late * scale, middle),
                    "late",
                );
            }
            let behind = start + (bar.end() * scale).max(1.0) + 6.0;
            svg.text((behind, base), Anchor::Start, emphasis(bar.name), &bar.text);
            y += STEP;
        }
        y
    }
}

impl Bar {
    fn end(&self) -> f64 {
        self.late.map_or(self.value, |late| late.max(self.value))
    }
}

/// How a peer is called in pictures.
pub(crate) fn name(peer: &'static str) -> &'static str {
    match peer {
        "ours" => "this library",
        "raw" => "limit",
        "published" => "alkstore 0.1.0",
        peer => peer,
    }
}

fn emphasis(peer: &str) -> &'static str {
    if peer == "ours" { "head" } else { "dim" }
}
