package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/document"
	"github.com/rowmill/rowmill/store"
)

// endpointDue enters an endpoint where those are found that have deliveries to be
// sent, by the first of them, or removes it there.
const endpointDue = `
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if #first > 0 then redis.call('ZADD', KEYS[4], first[2], ARGV[2]) else redis.call('ZREM', KEYS[4], ARGV[2]) end
`

// putDeliveryScript writes a delivery.
//
//	KEYS[1]  hash of deliveries: "version token delivery"
//	KEYS[2]  sorted set of the endpoint's deliveries
//	KEYS[3]  sorted set of those of them that are due
//	KEYS[4]  sorted set of endpoints with such
//	KEYS[5]  sorted set of deliveries that expire
//	ARGV[1]  id
//	ARGV[2]  the endpoint
//	ARGV[3]  version that it must have, 0 for none
//	ARGV[4]  the next version
//	ARGV[5]  token of the call
//	ARGV[6]  the delivery
//	ARGV[7]  when it is due, ms since 1970; empty where it is not
//	ARGV[8]  when it expires, likewise
//
// It answers with the version that it has then, and 1 where this call wrote it.
var putDeliveryScript = guarded(`
local current, token = '0', ''
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old then current, token = string.match(old, '^(%d+) (%S+) ') end
if token == ARGV[5] then return {current, 1} end
if current ~= ARGV[3] then return {current, 0} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
if ARGV[7] ~= '' then redis.call('ZADD', KEYS[3], ARGV[7], ARGV[1]) else redis.call('ZREM', KEYS[3], ARGV[1]) end
if ARGV[8] ~= '' then redis.call('ZADD', KEYS[5], ARGV[8], ARGV[1]) else redis.call('ZREM', KEYS[5], ARGV[1]) end
` + endpointDue + `
return {ARGV[4], 1}
`)

// dropDeliveryScript removes a delivery that still expires when it did.
//
//	KEYS, ARGV[1] and ARGV[2]  as of putDeliveryScript
//	ARGV[3]  until when it may have expired, ms since 1970
//
// It answers how many were removed.
var dropDeliveryScript = guarded(`
local at = redis.call('ZSCORE', KEYS[5], ARGV[1])
if not at or tonumber(at) > tonumber(ARGV[3]) then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
` + endpointDue + `
return redis.call('HDEL', KEYS[1], ARGV[1])
`)

func (s *Store) deliveryDue(endpoint string) string { return s.key("deliveriesdue", endpoint) }

// deliveryKeys are those that have something of an endpoint's deliveries.
func (s *Store) deliveryKeys(endpoint string) []string {
	return s.withMeta(s.key("deliveries"), s.key("deliverylist", endpoint), s.deliveryDue(endpoint), s.key("endpointsdue"), s.key("deliveryexpires"))
}

// millis is a time in the scores of sorted sets; empty for none.
func millis(at *time.Time) string {
	if at == nil {
		return ""
	}
	return decimal(at.UnixMilli())
}

// saveDelivery writes a delivery over what is stored of it, if it has the version
// before d's. It returns the version that there is then.
func (s *Store) saveDelivery(ctx context.Context, stored []byte, d store.Delivery) (wrote bool, version string, doubt bool, err error) {
	doc, err := document.Rewrite(stored, d)
	if err != nil {
		return false, "", false, fmt.Errorf("encode delivery %s: %w", d.ID, err)
	}
	token := newToken()
	var a answer
	doubt, err = s.try(ctx, true, func(ctx context.Context) error {
		list, err := putDeliveryScript.Run(ctx, s.client, s.deliveryKeys(d.Endpoint),
			d.ID, d.Endpoint, d.Version-1, d.Version, token, doc, millis(d.Due), millis(d.Expires)).Slice()
		a = list
		return err
	})
	return len(a) == 2 && a[1] == int64(1), a.text(0), doubt, err
}

// CreateDelivery stores a delivery.
func (s *Store) CreateDelivery(ctx context.Context, d store.Delivery) error {
	err := d.Check()
	if err == nil {
		d.Version = 1
		_, _, _, err = s.saveDelivery(ctx, nil, d)
	}
	if err != nil {
		return fmt.Errorf("create delivery %s: %w", d.ID, err)
	}
	return nil
}

// deliveries reads deliveries and their documents by their ids. Those that are gone
// are left out.
func (s *Store) deliveries(ctx context.Context, ids []string) (found []store.Delivery, docs [][]byte, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	var texts *driver.SliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { texts = p.HMGet(ctx, s.key("deliveries"), ids...) }); err != nil {
		return nil, nil, err
	}
	for i, id := range ids {
		text := answer(texts.Val()).text(i)
		if text == "" {
			continue
		}
		version, rest, _ := strings.Cut(text, " ")
		_, doc, _ := strings.Cut(rest, " ")
		var d store.Delivery
		err := json.Unmarshal([]byte(doc), &d)
		if err == nil {
			d.Version, err = strconv.ParseInt(version, 10, 64)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("decode delivery %s: %w", id, err)
		}
		found, docs = append(found, d), append(docs, []byte(doc))
	}
	return found, docs, nil
}

func (s *Store) delivery(ctx context.Context, id string) (d store.Delivery, doc []byte, err error) {
	found, docs, err := s.deliveries(ctx, []string{id})
	if err == nil && len(found) == 0 {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return d, nil, fmt.Errorf("delivery %s: %w", id, err)
	}
	return found[0], docs[0], nil
}

// GetDelivery returns a delivery.
func (s *Store) GetDelivery(ctx context.Context, id string) (store.Delivery, error) {
	d, _, err := s.delivery(ctx, id)
	return d, err
}

// PutDelivery replaces a delivery whose version still is d.Version.
func (s *Store) PutDelivery(ctx context.Context, d store.Delivery) (store.Delivery, error) {
	if err := d.Check(); err != nil {
		return d, fmt.Errorf("put delivery %s: %w", d.ID, err)
	}
	before, doc, err := s.delivery(ctx, d.ID)
	switch {
	case err != nil:
		return d, fmt.Errorf("put: %w", err)
	case before.Version != d.Version:
		return d, fmt.Errorf("put delivery %s: its version is %d, not %d: %w", d.ID, before.Version, d.Version, rowmill.ErrConflict)
	case before.Account != d.Account || before.Endpoint != d.Endpoint:
		return d, fmt.Errorf("put delivery %s: its account and endpoint cannot change", d.ID)
	}
	next := d
	next.Version++
	wrote, version, doubt, err := s.saveDelivery(ctx, doc, next)
	switch {
	case err != nil:
		return d, fmt.Errorf("put delivery %s: %w", d.ID, err)
	case wrote:
		return next, nil
	case doubt: // it may have been ours, which another has replaced since
		s.unknown.Inc()
		return d, fmt.Errorf("put delivery %s: %w", d.ID, store.ErrOutcomeUnknown)
	}
	return d, fmt.Errorf("put delivery %s: its version is %s, not %d: %w", d.ID, version, d.Version, rowmill.ErrConflict)
}

// ListDeliveries returns a page of an endpoint's deliveries.
func (s *Store) ListDeliveries(ctx context.Context, endpoint string, page store.Page) (found []store.Delivery, more bool, err error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	ids, more, err := s.ids(ctx, s.key("deliverylist", endpoint), page)
	if err == nil {
		found, _, err = s.deliveries(ctx, ids)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list deliveries: %w", err)
	}
	return found, more, nil
}

// until are the members of a sorted set up to a time, the first ones.
func until(now time.Time, limit int) *driver.ZRangeBy {
	return &driver.ZRangeBy{Min: "-inf", Max: decimal(now.UnixMilli()), Count: int64(limit)}
}

// DueDeliveries returns deliveries that are due, one of each endpoint.
func (s *Store) DueDeliveries(ctx context.Context, now time.Time, limit int) (found []store.Delivery, err error) {
	var endpoints *driver.StringSliceCmd
	err = s.read(ctx, func(p driver.Pipeliner) { endpoints = p.ZRangeByScore(ctx, s.key("endpointsdue"), until(now, limit)) })
	var firsts []*driver.StringSliceCmd
	if err == nil && len(endpoints.Val()) > 0 {
		err = s.read(ctx, func(p driver.Pipeliner) {
			firsts = nil
			for _, endpoint := range endpoints.Val() {
				firsts = append(firsts, p.ZRangeByScore(ctx, s.deliveryDue(endpoint), until(now, 1)))
			}
		})
	}
	var ids []string
	for _, first := range firsts {
		ids = append(ids, first.Val()...)
	}
	if err == nil {
		found, _, err = s.deliveries(ctx, ids)
	}
	if err != nil {
		return nil, fmt.Errorf("list deliveries that are due: %w", err)
	}
	// One that was taken between these reads is another's.
	return slices.DeleteFunc(found, func(d store.Delivery) bool { return d.Due == nil || d.Due.UnixMilli() > now.UnixMilli() }), nil
}

// DropDeliveries removes deliveries that have expired.
func (s *Store) DropDeliveries(ctx context.Context, now time.Time, limit int) (dropped int, err error) {
	var ids *driver.StringSliceCmd
	err = s.read(ctx, func(p driver.Pipeliner) { ids = p.ZRangeByScore(ctx, s.key("deliveryexpires"), until(now, limit)) })
	var found []store.Delivery
	if err == nil {
		found, _, err = s.deliveries(ctx, ids.Val())
	}
	for _, d := range found {
		var gone int
		if err == nil {
			_, err = s.try(ctx, true, func(ctx context.Context) (err error) {
				gone, err = dropDeliveryScript.Run(ctx, s.client, s.deliveryKeys(d.Endpoint), d.ID, d.Endpoint, now.UnixMilli()).Int()
				return err
			})
		}
		dropped += gone
	}
	if err != nil {
		return dropped, fmt.Errorf("remove deliveries that have expired: %w", err)
	}
	return dropped, nil
}
