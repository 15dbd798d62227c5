"""HTML, SVG and style that all pages share."""
