"""``python -m hydra_core``: see :mod:`hydra_core.cli`."""

import sys

from hydra_core.cli import main

sys.exit(main())
