package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/document"
	"github.com/rowmill/rowmill/store"
)

// claimScript makes a session the owner of an orphan.
//
//	ARGV[6]  the adopter, JSON that ends with its epoch, 0
//	ARGV[7]  most adopters that are listed
//	ARGV[8]  the event, JSON that begins with its time, 0
//	ARGV[9]  names of the fields of a record
//
// It checks that the session is alive, the job not over, and its owner, if
// any, dead. It answers ok and the fields' values, missing, foreign, lease, over,
// conflict where the owner is alive, or forgot.
var claimScript = jobScript(noting + `
local job = redis.call('HMGET', JOB, 'status', 'session', 'account', 'order', 'token', 'head', 'epoch', 'adopters', 'events')
if not job[1] then return {'missing'} end
if foreign(job[1], job[6]) then return {'foreign'} end
if job[5] ~= TOKEN then
  if not alive(SESSION) then return {'lease'} end
  if over[job[1]] then return {'over', job[1]} end
  if alive(job[2]) then return {'conflict'} end
  local no = forgot()
  if no then return no end
  local status = job[1]
  if status == '` + string(rowmill.StatusPending) + `' then status = '` + string(rowmill.StatusSubmitted) + `' end
  local now = redis.call('TIME')
  local epoch = math.max(job[7] + 1, now[1] * 1000 + math.floor(now[2] / 1000)) -- store.NextEpoch
  epoch = string.format('%.0f', epoch)
  local adopters = '[' -- store.Record.Adopt
  if job[2] ~= '' and job[8] then
    local list = cjson.decode(job[8])
    if #list > 0 and #list < tonumber(ARGV[7]) and list[#list].epoch == tonumber(job[7]) then
      adopters = string.sub(job[8], 1, -2) .. ','
    end
  end
  adopters = adopters .. string.sub(ARGV[6], 1, -3) .. epoch .. '}]'
  local event = '{"at":' .. epoch .. string.sub(ARGV[8], #'{"at":0' + 1)
  if job[2] ~= '' then event = string.sub(event, 1, -2) .. ',"lost":true}' end
  redis.call('HSET', JOB, 'session', SESSION, 'status', status, 'token', TOKEN, 'epoch', epoch, 'adopters', adopters, 'events', noted(job[9], event))
  redis.call('HINCRBY', JOB, 'version', 1)
  if job[2] == '' then unwait(job[3], job[4]) end
  redis.call('HSET', P .. 'owned', ID, SESSION .. ' ' .. string.sub(job[4], 1, 16) .. ' ' .. job[3])
  redis.call('HSET', P .. 'turns', job[3], redis.call('INCR', P .. 'turn'))
  wrote()
end
return {'ok', holds(), redis.call('HMGET', JOB, unpack(ARGV, 9))}
`)

// noting begins a script that notes an event, JSON, with others, a line each, as
// store.Record.Note does.
var noting = `
local function noted(events, event)
  local lines, gone = {}, nil
  for line in string.gmatch(events or '', '[^\n]+') do
    lines[#lines + 1] = line
    if not gone and string.find(line, '"what":"` + store.EventWaits + `"', 1, true) then gone = #lines end
  end
  if #lines >= ` + strconv.Itoa(store.MostEvents) + ` then table.remove(lines, gone or 1) end
  lines[#lines + 1] = event
  return table.concat(lines, '\n')
end
`

// Claim makes session the owner of an orphan.
func (s *Store) Claim(ctx context.Context, jobID, session string, by store.Adopter) (store.Record, error) {
	what := "claim job " + jobID
	f := store.Fence{JobID: jobID, Session: session}
	by.Epoch = 0
	adopter, err := json.Marshal(by)
	if err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	event, err := json.Marshal(store.Event{What: store.EventClaimed, Node: by.Node, Process: by.Process})
	if err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	args := []any{string(adopter), store.MostAdopters, string(event)}
	for _, name := range recordFields {
		args = append(args, name)
	}
	a, _, err := s.run(ctx, claimScript, f, newToken(), args...)
	if err == nil && a.word() == wordConflict {
		err = fmt.Errorf("it has a live owner: %w", rowmill.ErrConflict)
	} else if err == nil {
		err = fenced(f, a)
	}
	if err != nil {
		return store.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	return collect(recordFields, a.list(2)).record()
}

// releaseScript takes a job's owner away. It checks the fence, and answers ok,
// missing, lease, over or forgot.
var releaseScript = jobScript(noting + `
local job = redis.call('HMGET', JOB, 'status', 'session', 'epoch', 'account', 'order', 'token', 'events')
if job[6] == TOKEN then return {'ok', holds()} end
local no = refused(job[1], job[2], job[3])
if no then return no end
local now = redis.call('TIME')
local event = string.format('{"at":%.0f,"what":"` + store.EventReleased + `"}', now[1] * 1000 + math.floor(now[2] / 1000))
redis.call('HSET', JOB, 'session', '', 'token', TOKEN, 'events', noted(job[7], event))
redis.call('HINCRBY', JOB, 'version', 1)
redis.call('HDEL', P .. 'owned', ID)
wait(job[4], job[5])
return {'ok', wrote()}
`)

// Release gives a job back.
func (s *Store) Release(ctx context.Context, f store.Fence) error {
	a, _, err := s.run(ctx, releaseScript, f, newToken())
	if err == nil {
		err = fenced(f, a)
	}
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// orphansScript reads who waits.
//
//	KEYS[1]  hash of owned jobs
//	KEYS[2]  set of accounts with jobs that nobody ever owned or that were released
//	KEYS[3]  hash of accounts' turns
//	ARGV[1]  prefix of all keys
//
// It answers with two lists: of the owned jobs whose session is dead, as they
// are in their hash, name and value; and of each account that has orphans its
// name, the number of its jobs with a live owner, and its turn or 0.
var orphansScript = driver.NewScript(`
local dead, taken, has, living, accounts = {}, {}, {}, {}, {}
local owned = redis.call('HGETALL', KEYS[1])
for i = 1, #owned, 2 do
  local session, account = string.match(owned[i + 1], '^(%S+) %x+ (.*)$')
  if living[session] == nil then living[session] = redis.call('EXISTS', ARGV[1] .. 'session:' .. session) end
  if living[session] == 1 then
    taken[account] = (taken[account] or 0) + 1
  else
    dead[#dead + 1], dead[#dead + 2] = owned[i], owned[i + 1]
    has[account] = true
  end
end
for _, account in ipairs(redis.call('SMEMBERS', KEYS[2])) do has[account] = true end
for account in pairs(has) do
  accounts[#accounts + 1] = account
  accounts[#accounts + 1] = tostring(taken[account] or 0)
  accounts[#accounts + 1] = redis.call('HGET', KEYS[3], account) or '0'
end
return {dead, accounts}
`)

// An applicant is an account with orphans.
type applicant struct {
	account string
	taken   int64    // its jobs with a live owner, and those listed so far
	turn    int64    // when a job of it was last claimed; 0 for never
	places  []string // its orphans in order, oldest first
}

// Orphans lists jobs without a live owner. Whoever has the fewest jobs with an
// owner comes first, then whoever's last turn is longest ago: so that accounts
// take turns also across calls and with a single slot.
//
// The cost grows with the jobs that have an owner, the accounts that wait and
// the limit, not with the jobs that are over or wait. The reads are several
// steps, and jobs move between them: what is found is a proposal, which Claim
// accepts or refuses.
func (s *Store) Orphans(ctx context.Context, limit int) ([]store.Orphan, error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	// Those that this program must not claim stand in nobody's way.
	for ask := limit; ; ask *= 2 {
		orphans, found, err := s.orphans(ctx, ask)
		if err != nil {
			return nil, fmt.Errorf("find orphans: %w", err)
		}
		if len(orphans) >= limit || found < ask {
			return orphans[:min(len(orphans), limit)], nil
		}
	}
}

// orphans finds up to limit orphans and returns those that may be claimed, and
// how many it found.
func (s *Store) orphans(ctx context.Context, limit int) (orphans []store.Orphan, found int, err error) {
	applicants, err := s.applicants(ctx)
	if err != nil {
		return nil, 0, err
	}
	// Whoever comes after the first limit accounts is not reached: each of
	// those has an orphan.
	slices.SortFunc(applicants, compareApplicants)
	applicants = applicants[:min(len(applicants), limit)]
	if err := s.fill(ctx, applicants, limit); err != nil {
		return nil, 0, err
	}
	var chosen []store.Orphan
	for len(chosen) < limit {
		applicants = slices.DeleteFunc(applicants, func(a *applicant) bool { return len(a.places) == 0 })
		if len(applicants) == 0 {
			break
		}
		a := slices.MinFunc(applicants, compareApplicants)
		chosen = append(chosen, store.Orphan{JobID: a.places[0][orderDigits:], Account: a.account})
		a.places = a.places[1:]
		a.taken++
	}
	orphans, err = s.withStatus(ctx, chosen)
	return orphans, len(chosen), err
}

// compareApplicants says whose turn it is.
func compareApplicants(a, b *applicant) int {
	return cmp.Or(cmp.Compare(a.taken, b.taken), cmp.Compare(a.turn, b.turn), strings.Compare(a.account, b.account))
}

// applicants returns the accounts that have orphans, with those of dead
// sessions.
func (s *Store) applicants(ctx context.Context) ([]*applicant, error) {
	var a answer
	if _, err := s.try(ctx, false, func(ctx context.Context) error {
		list, err := orphansScript.Run(ctx, s.client, []string{s.key("owned"), s.key("waiters"), s.key("turns")}, s.config.Prefix).Slice()
		a = list
		return err
	}); err != nil {
		return nil, err
	}
	dead, accounts := a.list(0), a.list(1)
	var applicants []*applicant
	known := map[string]*applicant{}
	for i := 0; i < len(accounts); i += 3 {
		taken, err := strconv.ParseInt(accounts.text(i+1), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the jobs of an account: %w", err)
		}
		turn, err := strconv.ParseInt(accounts.text(i+2), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the last turn of an account: %w", err)
		}
		found := &applicant{account: accounts.text(i), taken: taken, turn: turn}
		known[found.account] = found
		applicants = append(applicants, found)
	}
	for i := 0; i < len(dead); i += 2 {
		_, rest, _ := strings.Cut(dead.text(i+1), " ")
		created, account, _ := strings.Cut(rest, " ")
		if owner := known[account]; owner != nil {
			owner.places = append(owner.places, created+dead.text(i))
		}
	}
	return applicants, nil
}

// fill adds up to limit jobs without a session to each applicant.
func (s *Store) fill(ctx context.Context, applicants []*applicant, limit int) error {
	found := make([]*driver.StringSliceCmd, len(applicants))
	if len(applicants) == 0 {
		return nil
	}
	if err := s.read(ctx, func(p driver.Pipeliner) {
		for i, a := range applicants {
			found[i] = p.ZRangeByLex(ctx, s.key("waiting", a.account), &driver.ZRangeBy{Min: "-", Max: "+", Count: int64(limit)})
		}
	}); err != nil {
		return err
	}
	for i, a := range applicants {
		a.places = append(a.places, found[i].Val()...)
		slices.Sort(a.places)
		a.places = slices.Compact(a.places)
	}
	return nil
}

// withStatus adds the jobs' states and leaves out those that have ended and
// those that a newer version of the program wrote.
func (s *Store) withStatus(ctx context.Context, chosen []store.Orphan) ([]store.Orphan, error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	found := make([]*driver.SliceCmd, len(chosen))
	if err := s.read(ctx, func(p driver.Pipeliner) {
		for i, o := range chosen {
			found[i] = p.HMGet(ctx, s.job(o.JobID), "status", "head", "session", "epoch", "adopters")
		}
	}); err != nil {
		return nil, err
	}
	var orphans []store.Orphan
	for i, o := range chosen {
		got := answer(found[i].Val())
		o.Status = rowmill.Status(got.text(0))
		if o.Status == "" || o.Status.Terminal() {
			continue
		}
		rec := store.Record{Job: rowmill.Job{ID: o.JobID, Status: o.Status}}
		var head struct {
			SchemaVersion int `json:"schema_version"`
			Job           struct {
				Priority rowmill.Priority `json:"job_priority"`
			} `json:"job"`
		}
		if err := document.Decode(got.text(1), &head); err != nil {
			return nil, fmt.Errorf("decode the record of job %s: %w", o.JobID, err)
		}
		rec.SchemaVersion, o.Priority = head.SchemaVersion, head.Job.Priority
		if rec.CheckVersion() == nil {
			owned, err := fields{"head": "{}", "session": got.text(2), "epoch": got.text(3), "adopters": got.text(4)}.header()
			if err != nil {
				return nil, fmt.Errorf("job %s: %w", o.JobID, err)
			}
			o.Tried = owned.Tried()
			orphans = append(orphans, o)
		}
	}
	return orphans, nil
}
