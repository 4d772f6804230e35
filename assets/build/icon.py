"""The app's icon, assets/icon.png: one body, three heads. A file of our own, so that no page asks another host for one.

python assets/build/icon.py
"""

from pathlib import Path

from PIL import Image, ImageDraw

ACCENT, SIZE = "#0F766E", 256
BODY, HEADS = (128, 196), ((56, 72), (128, 48), (200, 72))

if __name__ == "__main__":
    picture = Image.new("RGBA", (SIZE, SIZE), (0, 0, 0, 0))
    draw = ImageDraw.Draw(picture)
    for x, y in HEADS:
        draw.line([BODY, (x, y)], fill=ACCENT, width=20)
        draw.ellipse([x - 34, y - 34, x + 34, y + 34], fill=ACCENT)
    draw.ellipse([BODY[0] - 46, BODY[1] - 46, BODY[0] + 46, BODY[1] + 46], fill=ACCENT)
    picture.resize((64, 64), Image.Resampling.LANCZOS).save(Path(__file__).resolve().parents[1] / "icon.png")
