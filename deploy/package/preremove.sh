#!/bin/sh
# $1 is "remove" or "upgrade" of dpkg; of rpm, 0 at a removal and 1 at an upgrade,
# which restarts what runs once the new files are there.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	systemctl stop rowmill.service 'rowmill-node@*.service'
	systemctl disable --quiet rowmill.service rowmill-node@.service
fi
