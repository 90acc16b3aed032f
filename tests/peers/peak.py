"""Runs a command and prints the most memory that it had at once, in KiB."""

import resource
import subprocess
import sys

code = subprocess.run(sys.argv[1:]).returncode
print("peak:", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.exit(code)
