"""``python -m mgmem``: what torchrun starts."""

import sys

from mgmem.cli import main

sys.exit(main())
