"""How the page looks: light, dark, on a phone and on paper."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1c2024; --quiet: #5c6670; --rule: #d9dee3; --panel: #f5f7f9;
  --first: #2f65b0; --second: #b85f0a; --third: #2a7a4b; --level: #70767d; --heat: #0f4585; --on-heat: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --text: #e6e9ec; --quiet: #9aa4ae; --rule: #333a41; --panel: #1d2126;
    --first: #7fabea; --second: #f0a455; --third: #6cc793; --level: #9aa0a6; --heat: #7fb2f5; --on-heat: #101317;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 68rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 0.75rem; border-bottom: 1px solid var(--rule); padding-bottom: 0.25rem; }
h3 { font-size: 0.95rem; margin: 0 0 0.25rem; }
p { margin: 0.5rem 0; max-width: 46rem; }
a { color: var(--first); }
.quiet, figcaption, .meaning { color: var(--quiet); font-size: 0.875rem; }
.state { border-left: 4px solid var(--second); padding-left: 0.75rem; }
.grid-of { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
.cards { display: grid; gap: 0.75rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 11.5rem), 1fr)); }
.card { background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; padding: 0.75rem; }
.card .figure { font-size: 1.75rem; font-variant-numeric: tabular-nums; line-height: 1.2; }
.card .beside { font-size: 0.875rem; }
figure { margin: 0; }
.single { max-width: 40rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--quiet); font: 11px system-ui, sans-serif; }
svg.key { display: inline-block; width: 2.2em; height: 0.8em; margin: 0 0.3em 0 0; vertical-align: middle; }
.keys { list-style: none; margin: 0.25rem 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0 1.25rem; }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--quiet); stroke-width: 1; }
.boundary { stroke: var(--quiet); stroke-width: 0.8; stroke-dasharray: 3 3; opacity: 0.6; }
.level { stroke: var(--level); stroke-width: 1.5; stroke-dasharray: 8 3 2 3; }
.line { fill: none; stroke-width: 1.6; stroke-linecap: round; stroke-linejoin: round; }
.line.first { stroke: var(--first); }
.line.second { stroke: var(--second); stroke-dasharray: 6 4; }
.line.third { stroke: var(--third); stroke-dasharray: 1 4; stroke-width: 2; }
.dot.first { fill: var(--first); }
.dot.second { fill: var(--second); }
.dot.third { fill: var(--third); }
.cell { fill: var(--heat); }
.cell.learned { stroke: var(--text); stroke-width: 1.2; }
svg text.value { fill: var(--text); }
svg text.strong { fill: var(--on-heat); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.9rem 0.25rem 0; }
tr { border-bottom: 1px solid var(--rule); }
th { font-weight: 500; }
th[scope="col"] { color: var(--quiet); font-weight: 400; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; }
details { margin: 0.5rem 0; }
@media print {
  :root {
    color-scheme: light;
    --page: #ffffff; --text: #000000; --quiet: #444444; --rule: #cccccc; --panel: #ffffff;
    --first: #2f65b0; --second: #b85f0a; --third: #2a7a4b; --level: #70767d; --heat: #0f4585; --on-heat: #ffffff;
  }
  body { max-width: none; padding: 0; font-size: 11pt; }
  figure, .card, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .cell, .card { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  details::details-content { content-visibility: visible; display: block; }
}
"""
