#!/usr/bin/env bash
# Brings in a browser of the distribution, whose writes are recorded: browser.sh chromium|firefox-esr
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh

name=${1:?usage: browser.sh chromium|firefox-esr}
have "$name" || add_packages 'to record what a browser writes' "$name"
