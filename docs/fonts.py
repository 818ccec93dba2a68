"""The site's three typefaces, from npm: copied at build time, and never committed."""

import shutil
import subprocess
from pathlib import Path

FAMILIES = {  # the name in CSS, the package and its version; all three have the OFL
    "Source Serif 4 Variable": ("source-serif-4", "5.3.1"),
    "Inter Variable": ("inter", "5.3.0"),
    "JetBrains Mono Variable": ("jetbrains-mono", "5.3.0"),
}
PRELOADED = ("source-serif-4", "inter")  # what the first screen is set in
FACE = """@font-face {{ font-family: "{family}"; src: url("fonts/{name}.woff2") format("woff2");
  font-weight: 200 800; font-display: swap; }}
"""


def write_fonts(static: Path, downloads: Path) -> str:
    """Copy the fonts to `static`/fonts, and return the CSS that names them; nothing without npm."""
    packages = [f"@fontsource-variable/{name}@{version}" for name, version in FAMILIES.values()]
    faces = ""
    for family, (name, version) in FAMILIES.items():
        package = downloads / "node_modules/@fontsource-variable" / name
        if f'"version": "{version}"' not in _text(package / "package.json"):
            command = ["npm", "install", "--no-save", "--prefix", f"{downloads}", *packages]
            if not shutil.which("npm") or subprocess.run(command, capture_output=True).returncode:
                print("the site uses the fonts of its reader's system: npm gave none")
                return ""
        (static / "fonts").mkdir(exist_ok=True)
        font = package / f"files/{name}-latin-wght-normal.woff2"
        shutil.copy(font, static / f"fonts/{name}.woff2")
        shutil.copy(package / "LICENSE", static / f"fonts/{name}-LICENSE")
        faces += FACE.format(family=family, name=name)
    return faces


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""
