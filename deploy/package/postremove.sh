#!/bin/sh
# A removal keeps settings, key and data. A purge by dpkg removes them too, but not the
# user: files elsewhere may belong to the user. rpm has no purge.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rm -rf /etc/rowmill /var/lib/rowmill
fi
