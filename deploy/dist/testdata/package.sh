# package.sh tests a package from its installation to its purge, on the machine of
# machine.sh. /io has first.KIND, second.KIND (a later version), and the kind.
kind=$(cat /io/kind)
case $kind in
deb)
	install() { dpkg --force-confold -i "$1"; }
	installed() { dpkg-query -W -f '${Version}' rowmill; }
	contents() { dpkg -L rowmill; }
	remove() { dpkg -r rowmill; }
	;;
rpm)
	# Debian's rpm does not know Debian's packages, so skip its dependency checks.
	install() { rpm --force-debian --nodeps -U "$1"; }
	installed() { rpm -q --qf '%{VERSION}-%{RELEASE}' rowmill; }
	contents() { rpm -ql rowmill; }
	remove() { rpm --force-debian -e rowmill; }
	;;
esac

is() { [ "$1" = "$2" ] || { echo "it is $1, not $2" >&2; return 1; }; }
state() { systemctl is-active "$1" || true; }
pid() { systemctl show -p MainPID --value "$1"; }
# Lists changed files of the disk and all folders of Rowmill.
files() { find /layer ! -type d -printf '/%P\n' -o -name '*rowmill*' -printf '/%P\n' | sort; }
getent passwd rowmill && { echo 'this machine has a user rowmill' >&2; exit 1; }
trap 'journalctl --no-pager -n 50' ERR
files >/io/before

# After the installation nothing runs.
install "/io/first.$kind"
is "$(installed)" "$(cat /io/first)"
is "$(stat -c '%U %G %a' /var/lib/rowmill)" 'rowmill rowmill 750'
is "$(stat -c '%U %G %a' /etc/rowmill)" 'root rowmill 750'
is "$(stat -c '%U %G %a' /etc/rowmill/rowmill.yaml)" 'root rowmill 640'
is "$(stat -c '%U %G %a %s' /etc/rowmill/api.key)" 'root rowmill 640 48'
is "$(state rowmill)" inactive
is "$(getent passwd rowmill | cut -d : -f 6,7)" /var/lib/rowmill:/usr/sbin/nologin
contents | grep -x /usr/share/man/man1/rowmill-jobs-submit.1.gz
rowmill completion bash | cmp - /usr/share/bash-completion/completions/rowmill

# Run a job through the unit with its whole sandbox. A started unit answers at once.
systemctl enable --now rowmill
main=$(pid rowmill)
is "$(stat -c %U "/proc/$main")" rowmill
is "$(readlink "/proc/$main/exe")" /usr/bin/rowmill
grep -x $'NoNewPrivs:\t1' "/proc/$main/status"
grep -x $'Seccomp:\t2' "/proc/$main/status"
grep -x $'CapBnd:\t0000000000000000' "/proc/$main/status"
ROWMILL_API_KEY=$(cat /etc/rowmill/api.key)
export ROWMILL_API_KEY
printf 'one\ntwo\n' | rowmill jobs submit - --format json --output /tmp/rows.json
is "$(jq '.outputs | length' /tmp/rows.json)" 2
job=$(rowmill jobs list -o json | jq -r '.[0].job_id')
rowmill jobs results "$job" --format json --output /tmp/results.json

# Run another node with its own settings and data.
printf 'api_key_file: /etc/rowmill/api.key\nhttp: {listen: 127.0.0.1:8090}\n' >/etc/rowmill/gpu1.yaml
chgrp rowmill /etc/rowmill/gpu1.yaml
systemctl enable --now rowmill-node@gpu1
printf 'three\n' | rowmill jobs submit - --server http://127.0.0.1:8090 --format json --output /tmp/row.json
is "$(jq '.outputs | length' /tmp/row.json)" 1
is "$(stat -c %U /var/lib/rowmill/nodes/gpu1)" rowmill

# Upgrade: running services run the new version; settings, key and data stay.
echo '# ours' >>/etc/rowmill/rowmill.yaml
systemctl stop rowmill-node@gpu1
install "/io/second.$kind"
is "$(installed)" "$(cat /io/second)"
[ "$(pid rowmill)" != "$main" ]
is "$(state rowmill-node@gpu1)" inactive
is "$(tail -n 1 /etc/rowmill/rowmill.yaml)" '# ours'
is "$(cat /etc/rowmill/api.key)" "$ROWMILL_API_KEY"
rowmill jobs results "$job" --format json --output /tmp/later.json
cmp /tmp/results.json /tmp/later.json
journalctl --no-pager -u rowmill -u rowmill-node@gpu1 >/tmp/journal
if grep -F "$ROWMILL_API_KEY" /tmp/journal; then exit 1; fi

# After the removal nothing runs or is enabled; settings and data stay.
remove
is "$(state rowmill)" inactive
if find /proc -maxdepth 1 -user rowmill | grep .; then exit 1; fi
if [ -e /usr/bin/rowmill ] || find /etc/systemd -name '*rowmill*' | grep .; then exit 1; fi
[ -e /etc/rowmill/api.key ]
ls /var/lib/rowmill | grep .

# After the purge only the user is left. Files of the package managers and of systemd
# are ignored.
[ "$kind" = rpm ] || dpkg -P rowmill
files >/io/after
comm -13 /io/before /io/after >/io/added
grep -vE '^/(var/(lib/(dpkg|rpm|systemd)|log|cache)/|root/|etc/((passwd|group|shadow|gshadow|subuid|subgid)-?|\.pwd\.lock|machine-id|mtab)$)' /io/added >/io/left || true
case $kind in
deb) is "$(cat /io/left)" '' ;;
rpm) # rpm has no purge
	grep -x /etc/rowmill/rowmill.yaml.rpmsave /io/left
	is "$(grep -vE '^/(etc|var/lib)/rowmill(/|$)' /io/left)" ''
	;;
esac
getent passwd rowmill
