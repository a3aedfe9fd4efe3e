#!/bin/sh
# A removal leaves settings, key and data. What dpkg calls a purge takes them too,
# but not the user: files elsewhere may belong to it. rpm has no purge.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rm -rf /etc/rowmill /var/lib/rowmill
fi
