"""What a data file may cost, in one place, so that the app can say it beforehand."""

MAX_PIXELS = 64_000_000  # of one image, read from its header before anything is decoded
MAX_IMAGE_BYTES = 64 * 1024**2  # of one image file
MAX_TABLE_BYTES = 512 * 1024**2  # of one CSV, TSV, JSONL or parquet file
MAX_UNPACKED_BYTES = 4 * 1024**3  # of all files in a zip together
MAX_ZIP_RATIO = 50  # unpacked / packed, of the whole zip; photographs stay near 1
ZIP_RATIO_FLOOR = 512 * 1024  # bytes: a small zip of plain-coloured bitmaps may pack better, and does no harm
MAX_ZIP_FILES = 200_000


def describe_limits() -> str:
    """The limits in one sentence, for the person who is about to choose a file."""
    return (
        f"Limits: {megabytes(MAX_IMAGE_BYTES)} and {MAX_PIXELS // 10**6} megapixels an image, "
        f"{megabytes(MAX_TABLE_BYTES)} a table; a zip of at most {MAX_ZIP_FILES:,} files that unpacks to at "
        f"most {megabytes(MAX_UNPACKED_BYTES)} and {MAX_ZIP_RATIO} times its size."
    )


def megabytes(size: int) -> str:
    """``67108864`` as ``64 MB``."""
    return f"{size / 1024**2:,.0f} MB"
