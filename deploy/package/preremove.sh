#!/bin/sh
# From dpkg, $1 is "remove" or "upgrade"; from rpm, 0 at a removal and 1 at an upgrade.
# An upgrade restarts running services after the new files are installed.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	systemctl stop rowmill.service 'rowmill-node@*.service'
	systemctl disable --quiet rowmill.service rowmill-node@.service
fi
