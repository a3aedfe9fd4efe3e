#!/bin/sh
# Before the files: the user to whom some of them belong.
set -e
getent group rowmill >/dev/null || groupadd --system rowmill
getent passwd rowmill >/dev/null || useradd --system --gid rowmill --home-dir /var/lib/rowmill --no-create-home \
	--shell /usr/sbin/nologin --comment Rowmill rowmill
