#!/bin/sh
# From dpkg, $1 is "configure" or "abort-…"; from rpm, 1 at the first installation and
# more at an upgrade. A service that did not run is not started.
set -e
case "$1" in configure | [0-9]*) ;; *) exit 0 ;; esac

key=/etc/rowmill/api.key
if [ ! -e "$key" ]; then
	(umask 077 && od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$key.new")
	chgrp rowmill "$key.new"
	chmod 640 "$key.new"
	mv "$key.new" "$key"
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart rowmill.service 'rowmill-node@*.service'
fi
