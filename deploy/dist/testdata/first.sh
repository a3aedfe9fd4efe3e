# first.sh: the commands of a page, as a new user gives them one after the other, on the
# machine of machine.sh. /io has each in N.sh, and prepare.sh and undo.sh. It is done
# twice: on a machine that has nothing, and once more after undo.sh. What a command
# printed is ROUND.N.out, and times has lines of round, N and seconds.
sudo() { "$@"; } # who is here is root
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
