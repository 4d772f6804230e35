"""How the HTML report looks: light and dark, on paper too."""

STYLE = """
:root { color-scheme: light dark; --ink: #17211F; --ground: #FFFFFF; --line: #C9D1CF; --accent: #0F766E; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #E8EFED; --ground: #0F1715; --line: #3A4744; --accent: #2DB5A8; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 64rem;
  margin: 0 auto; padding: 1.5rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 2px solid var(--accent); }
table { border-collapse: collapse; margin: 0.8rem 0; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: right; }
th:first-child, td:first-child, table.words td, table.words th { text-align: left; }
caption { caption-side: bottom; text-align: left; font-size: 0.85rem; padding-top: 0.3rem; }
.wide { overflow-x: auto; }
/* The figures have dark ink: they keep a light ground in the dark too. */
figure { margin: 1rem 0; background: #FFFFFF; color: #17211F; border: 1px solid var(--line); border-radius: 0.5rem; }
figcaption { padding: 0.3rem 0.8rem; font-size: 0.85rem; }
.grids { display: flex; flex-wrap: wrap; gap: 1.5rem; }
table.grid th, table.grid td { text-align: center; min-width: 1.4rem; padding: 0.1rem; }
table.grid td.kept { background: var(--accent); color: var(--ground); }
pre { overflow-x: auto; padding: 0.8rem; border: 1px solid var(--line); border-radius: 0.5rem; font-size: 0.85rem; }
.missing { opacity: 0.85; font-style: italic; }
@media print { body { max-width: none; } figure, table { break-inside: avoid; } }
"""
