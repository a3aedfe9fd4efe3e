# first.sh runs the commands of a page one by one, as a new user would, on the machine
# of machine.sh. /io has each command in N.sh, and prepare.sh and undo.sh. It runs all
# commands twice: on an empty machine, and again after undo.sh. The output of a command
# goes to ROUND.N.out; the file times has lines of round, N and seconds.
sudo() { "$@"; } # the script already runs as root
cd /io
. /io/prepare.sh
: >/io/times
for round in 1 2; do
	for command in /io/[0-9].sh; do
		number=$(basename "$command" .sh)
		before=$EPOCHREALTIME
		. "$command" >"/io/$round.$number.out"
		echo "$round $number $(echo "$before $EPOCHREALTIME" | awk '{print $2 - $1}')" >>/io/times
	done
	[ "$(jq '.outputs | map(select(. != null)) | length' "/io/$round.$number.out")" = 2 ]
	[ $round = 2 ] || . /io/undo.sh
done
