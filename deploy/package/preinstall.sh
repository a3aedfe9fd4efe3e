#!/bin/sh
# Create the user before the files that belong to the user.
set -e
getent group rowmill >/dev/null || groupadd --system rowmill
getent passwd rowmill >/dev/null || useradd --system --gid rowmill --home-dir /var/lib/rowmill --no-create-home \
	--shell /usr/sbin/nologin --comment Rowmill rowmill
